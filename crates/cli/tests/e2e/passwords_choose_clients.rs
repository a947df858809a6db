//! `basic_auth`: who has the name and password of a user enters, and servers learn who it is.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use offramp_testkit::process::require;
use offramp_testkit::server::Listen;

use crate::reload_loses_no_request::reload;
use crate::support::http_app::{Seen, named};
use crate::support::http_curl::{HTTP, curl, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};
use crate::support::offramp::{offramp, output, stderr, stdout};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];
/// Of `U*U` and `U*U*`, from the test vectors of bcrypt's author; cheap, and public.
const ANNA: &str = "anna:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";
const ANNA_LATER: &str = "anna:$2a$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK\n";

/// The line that `offramp password` prints for `password` on its standard input.
fn line(home: &Home, name: &str, password: &str) -> String {
    let mut command = offramp(home.path(), &["password", name]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{password}\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    stdout(&output)
}

/// An application behind the passwords of `users`.
fn served(users: &str, keys: &str) -> (offramp_testkit::server::Server, Seen, Instance) {
    let home = Home::new();
    let (app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    fs::write(home.file("users"), users).unwrap();
    let keys = if keys.is_empty() { "basic_auth = \"users\"" } else { keys };
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n{keys}\n"));
    (app, seen, instance)
}

#[test]
fn a_user_enters_and_the_server_learns_the_name() {
    let home = Home::new();
    let users = format!("# staff\n{ANNA}{}", line(&home, "bernd müller", "schöne Grüße"));
    let (_app, seen, instance) = served(&users, "");
    for version in VERSIONS {
        let answer = get(&instance, &[version], "https://localhost/");
        assert_eq!(answer.status(), 401);
        assert_eq!(answer.field("www-authenticate"), "Basic realm=\"restricted\", charset=\"UTF-8\"");
        for wrong in ["anna:U*", "bernd:U*U"] {
            assert_eq!(get(&instance, &[version, "--user", wrong], "https://localhost/").status(), 401);
        }
        let claims = ["--header", "Remote-User: root", "--header", "Remote_User: root"];
        for (user, name) in [("anna:U*U", "anna"), ("bernd müller:schöne Grüße", "bernd müller")] {
            let arguments = [&[version, "--user", user][..], &claims].concat();
            let answer = get(&instance, &arguments, "https://localhost/[1-3]");
            assert_eq!(answer.status(), 200, "{}", answer.said);
            for request in seen.take() {
                assert_eq!(request.field("remote-user"), name);
                assert_eq!((request.field("remote_user"), request.field("authorization")), ("", ""));
            }
        }
    }
    assert!(seen.take().is_empty(), "nobody else has reached the application");
    let events = instance.stop();
    let named: Vec<_> = events.iter().filter(|event| !event["user"].is_null()).collect();
    assert_eq!(named.len(), 12);
    assert!(named.iter().all(|event| event["status"] == 200));
    assert_eq!(events.iter().filter(|event| cause(event) == "unauthorized").count(), 6);
}

#[test]
fn the_keys_of_the_table_have_their_effects() {
    let keys = "basic_auth = { file = \"users\", realm = \"the office\", header = \"X-WebAuth-User\", \
                keep_authorization = true }";
    let (_app, seen, instance) = served(ANNA, keys);
    let answer = get(&instance, &[], "https://localhost/");
    assert_eq!(answer.field("www-authenticate"), "Basic realm=\"the office\", charset=\"UTF-8\"");
    get(&instance, &["--user", "anna:U*U"], "https://localhost/");
    let request = seen.one();
    assert_eq!(request.field("x-webauth-user"), "anna");
    assert_eq!(request.field("authorization"), "Basic YW5uYTpVKlU=");
    assert_eq!(request.field("remote-user"), "");
    instance.stop();
}

#[test]
fn a_policy_or_the_defaults_ask_for_passwords() {
    let answer = |path: &str| format!("[[route]]\npath = \"{path}\"\nrespond = {{ body = \"in\" }}\n");
    let run = |shared: &str| {
        let home = Home::new();
        fs::write(home.file("users"), ANNA).unwrap();
        home.run(&format!(
            "{CERTIFICATE}{HTTP}[{shared}]\nbasic_auth = \"users\"\n{}{}{}",
            answer("/staff"),
            if shared == "policy.staff" { "policy = \"staff\"\n" } else { "" },
            answer("/open")
        ))
    };
    for (shared, open) in [("policy.staff", 200), ("defaults.route", 401)] {
        let instance = run(shared);
        for version in VERSIONS {
            let status = |path: &str, more: &[&str]| {
                get(&instance, &[&[version], more].concat(), &format!("https://localhost{path}")).status()
            };
            assert_eq!((status("/staff", &[]), status("/open", &[])), (401, open), "{shared}");
            let anna = ["--user", "anna:U*U"];
            assert_eq!((status("/staff", &anna), status("/open", &anna)), (200, 200), "{shared}");
        }
        instance.stop();
    }
}

#[test]
fn a_change_of_the_file_counts_from_the_reload_on() {
    let (_app, _seen, instance) = served(ANNA, "");
    let status = |user: &str| get(&instance, &["--http2", "--user", user], "https://localhost/").status();
    assert_eq!((status("anna:U*U"), status("anna:U*U*")), (200, 401));
    fs::write(instance.home.file("users"), ANNA_LATER).unwrap();
    assert!(reload(&instance).contains(" reloaded "));
    assert_eq!((status("anna:U*U"), status("anna:U*U*")), (401, 200));
    fs::write(instance.home.file("users"), format!("{ANNA_LATER}é:$argon2id$v=19$m=4194304,t=3,p=1$a$b\n"))
        .unwrap();
    let outcome = reload(&instance);
    assert!(outcome.contains("reload refused") && outcome.contains("users:2:18: "), "{outcome}");
    assert_eq!(status("anna:U*U*"), 200);
    let check = output(instance.home.path(), &["check", "--config", "offramp.toml"]);
    let said = stderr(&check);
    assert!(!check.status.success() && said.contains("users:2:18: ") && said.contains("too much"), "{said}");
    instance.stop();
}

#[test]
fn guessing_takes_longer_and_longer_and_keeps_nobody_else_out() {
    let (_app, seen, instance) = served(ANNA, "");
    let status = |from: &str, user: &str| {
        let answer = curl(&instance, &["--http2", "--interface", from, "--user", user], "https://localhost/");
        (answer.status(), answer.field("retry-after").parse().unwrap_or(0))
    };
    assert_eq!(status("127.0.0.1", "anna:U*U").0, 200);
    // The waits double, so that a slow machine is too early sooner or later.
    let mut wrong = 0;
    let seconds: u32 = loop {
        match status("127.0.0.1", &format!("anna:guess{wrong}")) {
            (401, _) => wrong += 1,
            (429, seconds) => break seconds,
            (other, _) => panic!("{other} after {wrong} guesses"),
        }
    };
    assert!(wrong >= 5 && (1..=64).contains(&seconds), "{wrong} guesses, {seconds} seconds");
    assert_eq!(status("127.0.0.2", "anna:U*U").0, 200);
    let events = instance.stop();
    let refused = events.iter().find(|event| cause(event) == "too_many_logins").unwrap();
    assert_eq!(text(refused, "fault"), "policy");
    assert_eq!(seen.take().len(), 2);
}

#[test]
fn checks_run_in_the_order_that_is_drawn() {
    let home = Home::new();
    let route = "[[route]]\nrespond = { body = \"in\" }\ndeny = \"127.0.0.7\"\nbasic_auth = \"users\"\n";
    fs::write(home.file("users"), ANNA).unwrap();
    let limits = "[limits]\nrequests_per_client = \"1/h\"\n";
    let (_app, _) = named(&Listen::Unix(home.file("app.sock")), "app");
    let proxied = "[[route]]\npath = \"/app\"\nserver = \"unix:app.sock\"\nmax_body = \"8B\"\ndeny = \"127.0.0.7\"\n\
                   basic_auth = \"users\"\nforward_auth = { server = \"unix:nobody.sock\" }\n";
    let closed = proxied.replace("/app", "/closed");
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{route}{proxied}{closed}maintenance = true\n"));
    let limited = Home::new();
    fs::write(limited.file("users"), ANNA).unwrap();
    let limited = limited.run(&format!("{limits}{CERTIFICATE}{HTTP}{route}"));
    let (misdirected, denied) = (["--header", "Host: other.test"], ["--interface", "127.0.0.7"]);
    let large = ["--data", "more than eight bytes"];
    let mut statuses = Vec::new();
    for version in VERSIONS {
        let ask_for = |path: &str, instance: &Instance, arguments: &[&[&str]]| {
            let url = format!("https://localhost/{path}");
            curl(instance, &[&[version][..], &arguments.concat()].concat(), &url).status()
        };
        let ask = |instance: &Instance, arguments: &[&[&str]]| ask_for("app", instance, arguments);
        ask(&limited, &[&denied]);
        statuses.push([
            ask(&limited, &[&misdirected, &denied, &large]),
            ask(&instance, &[&misdirected, &denied, &large]),
            ask_for("closed", &instance, &[&denied, &large]),
            ask_for("closed", &instance, &[&large]),
            ask(&instance, &[&large]),
            ask(&instance, &[]),
            ask(&instance, &[&["--user", "anna:U*U"]]),
        ]);
    }
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/access.md");
    let page = fs::read_to_string(page).unwrap();
    let drawing = page.split("```").nth(1).unwrap();
    let is_step = |line: &&str| line.trim_start().starts_with(|first: char| first.is_ascii_digit());
    let drawn: Vec<u16> = drawing
        .lines()
        .filter(is_step)
        .filter_map(|line| line.split_whitespace().last()?.parse().ok())
        .filter(|status| *status >= 400)
        .collect();
    assert_eq!(statuses, [&drawn[..], &drawn[..]]);
    instance.stop();
    limited.stop();
}

#[test]
fn a_terminal_asks_twice_and_shows_nothing() {
    let home = Home::new();
    let binary = offramp(home.path(), &[]).get_program().to_owned();
    let ask = |answers: [&str; 2]| {
        let mut script = Command::new(require("script", "bsdutils"));
        script.args(["-qec", &format!("'{}' password anna", binary.display()), "/dev/null"]);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let (mut input, mut shown) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut all = Vec::new();
        for (prompt, answer) in ["Password: ", "Again: "].into_iter().zip(answers) {
            while !all.ends_with(prompt.as_bytes()) {
                let mut byte = [0];
                shown.read_exact(&mut byte).unwrap();
                all.push(byte[0]);
            }
            input.write_all(format!("{answer}\n").as_bytes()).unwrap();
        }
        shown.read_to_end(&mut all).unwrap();
        drop(input);
        (child.wait().unwrap().success(), String::from_utf8(all).unwrap())
    };
    let (done, shown) = ask(["secret", "secret"]);
    assert!(done && shown.contains("anna:$argon2id$v=19$") && !shown.contains("secret"), "{shown}");
    let (done, shown) = ask(["secret", "other"]);
    assert!(!done && shown.contains("differ") && !shown.contains("secret"), "{shown}");
}

#[test]
fn what_cannot_be_a_line_is_refused() {
    let home = Home::new();
    for name in ["a:b", "", "#a"] {
        let mut command = offramp(home.path(), &["password", name]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"secret\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{name}");
    }
    let mut command = offramp(home.path(), &["password", "anna"]);
    let empty = command.stdin(Stdio::null()).output().unwrap();
    assert!(empty.status.code() == Some(2) && stderr(&empty).contains("1 to 1024"), "{}", stderr(&empty));
}
