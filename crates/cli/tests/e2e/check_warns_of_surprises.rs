//! What is allowed and yet hardly meant is warned of, by `check` and by `run`; and `check` tells all mistakes at once,
//! of the text and of the files that it names.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

use offramp_testkit::ca::{Key, Leaf, Validity};
use offramp_testkit::process::{Source, require};

use crate::support::instance::{CERTIFICATE, Home, LIFE, ask};
use crate::support::offramp::{output, stderr, stdout};

/// A home whose key is its owner's alone.
fn home() -> Home {
    let home = Home::new();
    fs::set_permissions(home.file("server.key"), Permissions::from_mode(0o600)).unwrap();
    home
}

/// `check` of what is configured in the home.
fn check(home: &Home, text: &str) -> Output {
    let file = home.configure(text);
    output(home.path(), &["check", "-c", file.to_str().unwrap()])
}

/// The warnings of a configuration that is good.
fn warnings(home: &Home, text: &str) -> String {
    let output = check(home, text);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    stderr(&output)
}

/// Two listeners of HTTP on free ports: `web` with TLS and `plain` without.
const WEB_AND_PLAIN: &str = "\
[[listener]]
name = \"web\"
address = \"127.0.0.1:0\"
mode = \"http\"
[[listener]]
name = \"plain\"
address = \"127.0.0.1:0\"
mode = \"http\"
tls = false
";

#[test]
fn a_route_in_clear_text_is_warned_of() {
    let home = home();
    let route = "[[route]]\nhost = \"www.example.org\"\nserver = \"127.0.0.1:1\"\n";
    let redirect = "[[route]]\nlistener = \"plain\"\nredirect = \"https\"\n";
    let all = format!("{CERTIFICATE}{WEB_AND_PLAIN}{route}");
    assert!(warnings(&home, &all).contains("the listener `plain` serves this route in clear text"));
    for fine in [
        // Everything plain is sent to https.
        format!("{all}{redirect}"),
        format!("{all}{}", redirect.replace("redirect", "host = \"www.example.org\"\nredirect")),
        all.replace("server =", "listener = \"web\"\nserver ="),
        // It is written down that this is meant.
        all.replace("server =", "listener = [\"web\", \"plain\"]\nserver ="),
        // There is no TLS that could be missed.
        "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = false\n[[route]]\nserver = \"127.0.0.1:1\"\n"
            .to_owned(),
    ] {
        let said = warnings(&home, &fine);
        assert!(!said.contains("clear text"), "{fine}{said}");
    }
    let elsewhere = redirect.replace("redirect", "path = \"/other\"\nredirect");
    assert!(warnings(&home, &format!("{all}{elsewhere}")).contains("clear text"));
}

#[test]
fn a_root_in_clear_text_or_closed_to_the_user_is_warned_of() {
    let home = home();
    let root = home.file("www");
    fs::create_dir(&root).unwrap();
    let route = format!("[[route]]\nhost = \"www.example.org\"\nroot = \"{}\"\n", root.display());
    let all = format!("{CERTIFICATE}{WEB_AND_PLAIN}{route}");
    assert!(warnings(&home, &all).contains("the listener `plain` serves this route in clear text"));
    let fine = all.replace("root =", "listener = \"web\"\nroot =");
    assert!(!warnings(&home, &fine).contains("clear text"));
    // Whoever runs this test owns the directory.
    fs::set_permissions(&root, Permissions::from_mode(0o300)).unwrap();
    let is_root =
        fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0).unwrap();
    let file = home.configure(&fine);
    if is_root {
        // Root may read everything; whom it becomes may not.
        let text = fs::read_to_string(&file).unwrap().replace("user = \"root\"", "user = \"nobody\"");
        fs::write(&file, text).unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
    }
    let output = output(home.path(), &["check", "-c", file.to_str().unwrap()]);
    let said = stderr(&output);
    assert!(said.contains("offramp.toml:") && said.contains("www"), "{said}");
    if is_root {
        assert!(output.status.success() && said.contains("root: the user `nobody` may not read"), "{said}");
        assert!(said.contains("www has mode 0300 and belongs to"), "{said}");
    } else {
        assert!(said.contains("root: cannot read the directory"), "{said}");
    }
    fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_host_without_a_certificate_and_a_certificate_that_will_be_refused_are_warned_of() {
    let home = home();
    let route = |hosts: &str| {
        format!(
            "{CERTIFICATE}[[listener]]\naddress = \"127.0.0.1:0\"\n[[route]]\nhost = {hosts}\nserver = \"127.0.0.1:1\"\n"
        )
    };
    for covered in ["\"localhost\"", "\"www.example.org\"", "\"*.example.org\""] {
        assert_eq!(warnings(&home, &route(covered)), "", "{covered}");
    }
    for (hosts, told) in [
        ("[\"localhost\", \"example.org\"]", "no certificate covers `example.org`: "),
        ("\"a.www.example.org\"", "no certificate covers `a.www.example.org`: "),
        ("[\"*.example.com\", \"x.test\"]", "no certificate covers `*.example.com`, `x.test`: "),
    ] {
        let said = warnings(&home, &route(hosts));
        assert!(said.contains("offramp.toml:") && said.contains(told), "{said}");
    }
    // Who does not end TLS here needs none.
    let passed = route("\"x.test\"").replace("\nserver =", "\npassthrough =");
    assert_eq!(warnings(&home, &passed), "");
    // The local CA covers what it is asked for, though nothing is issued before a start.
    let local =
        route("\"x.test\"").replace(CERTIFICATE, "[[certificate]]\nlocal = true\nnames = [\"x.test\"]\n");
    assert_eq!(warnings(&home, &local), "");
    let old = Leaf { validity: Validity::Expired, ..Leaf::server(Key::P256, &["localhost"]) };
    home.ca.issue("old", &old).unwrap();
    let said = warnings(&home, &route("\"localhost\"").replace("\"server.", "\"old."));
    assert!(said.contains("EXPIRED on"), "{said}");
    let mut own = Command::new(require("openssl", "openssl"));
    own.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "3",
    ]);
    own.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    own.args(["-keyout", "own.key", "-out", "own.chain.pem"]).current_dir(home.path());
    assert!(own.output().unwrap().status.success());
    let said = warnings(&home, &route("\"localhost\"").replace("\"server.", "\"own."));
    assert!(
        said.contains("is self-signed") && !said.contains("expires on"),
        "three of its three days are left: {said}"
    );
}

#[test]
fn a_socket_that_the_user_cannot_open_is_warned_of() {
    let home = home();
    let is_root =
        fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0).unwrap();
    let _app = UnixListener::bind(home.file("app.sock")).unwrap();
    let text = Home::one_route("unix:app.sock");
    assert_eq!(warnings(&home, &text), "");
    fs::set_permissions(home.file("app.sock"), Permissions::from_mode(0o400)).unwrap();
    let file = home.configure(&text);
    if is_root {
        // Root may open everything; whom it becomes may not.
        let text = fs::read_to_string(&file).unwrap().replace("user = \"root\"", "user = \"nobody\"");
        fs::write(&file, text).unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
    }
    let output = output(home.path(), &["check", "-c", file.to_str().unwrap()]);
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("may not connect to unix:"), "{said}");
    assert!(said.contains("app.sock has mode 0400 and belongs to"), "{said}");
}

#[test]
fn run_warns_of_the_same() {
    let home = home();
    let text = format!(
        "{CERTIFICATE}{WEB_AND_PLAIN}[[listener]]\nname = \"own\"\naddress = \"unix:own.sock\"\n\
         [[route]]\nlistener = [\"web\"]\nhost = \"x.test\"\nserver = \"127.0.0.1:1\"\n\
         [[route]]\nhost = \"localhost\"\nserver = \"unix:own.sock\"\n"
    );
    let told = ["serves this route in clear text", "no certificate covers `x.test`", "own listener `own`"];
    let said = warnings(&home, &text);
    for part in told {
        assert!(said.contains(part), "{part}: {said}");
    }
    let instance = home.run(&text);
    for part in told {
        instance.until(part, || {
            instance.process.lines(Source::Stderr).iter().any(|line| line.contains(part)).then_some(())
        });
    }
    instance.stop();
}

#[test]
fn mistakes_of_the_text_hide_none_of_the_files() {
    let home = home();
    let output = check(
        &home,
        "[limits]\nidle_timout = \"5m\"\n\
         [access_log]\noutput = \"nowhere/access.log\"\n\
         [[certificate]]\ncert = \"missing.pem\"\n\
         [[listener]]\nname = \"db\"\naddress = \":443\"\n\
         [[route]]\nlistener = \"db\"\nhost = \"a b\"\npath = \"/x\"\nserver = \"127.0.0.1:1\"\n\
         client_auth = { ca = \"nobody.pem\" }\n",
    );
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    for part in [
        "idle_timout",
        "`:443` is not an address",
        "`a b`",
        "`path` applies to HTTP only, but the listener `db` relays connections",
        "nowhere",
        "missing.pem",
        "nobody.pem",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(said.trim_end().ends_with("offramp.toml: 7 errors"), "{said}");
}

#[test]
fn a_log_beside_the_configuration_is_a_file() {
    let home = home();
    let text = format!("[access_log]\noutput = \"access.log\"\n{}", Home::one_route("127.0.0.1:1"));
    let instance = home.run(&text);
    let path = instance.home.file("access.log");
    instance.until("the log is there", || path.exists().then_some(()));
    instance.stop();
}

#[test]
fn an_authority_that_no_certificate_names_is_warned_of() {
    let home = home();
    let section = "[acme.other]\ndirectory = \"https://ca.test/dir\"\nemail = \"me@example.org\"\n";
    let route = Home::one_route("127.0.0.1:1");
    let said = warnings(&home, &format!("{section}{route}"));
    assert!(
        said.contains("no certificate asks the authority `other`") && said.contains("offramp.toml:"),
        "{said}"
    );
    let used = "[[certificate]]\nacme = \"other\"\nnames = [\"a.example.org\"]\n";
    let said = warnings(&home, &format!("{section}{route}{used}"));
    assert!(!said.contains("no certificate asks"), "{said}");
}

#[test]
fn ways_around_a_rule_and_texts_that_are_meant_otherwise_are_warned_of() {
    let home = home();
    let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n";
    let guard = "[[route]]\npath = \"/admin\"\nserver = \"127.0.0.1:1\"\nallow = [\"192.0.2.1\"]\n";
    let open = "[[route]]\nserver = \"127.0.0.1:1\"\n";
    let all = format!("{listener}{guard}{open}");
    let ordinary = warnings(&home, &all);
    assert!(!ordinary.contains("guards"), "{ordinary}");
    for (route, part) in [
        (
            "path = \"/app\"\nserver = \"127.0.0.1:1\"\nstrip_path = true\n",
            "`/app/admin` of this route is `/admin`",
        ),
        (
            "path = \"/x\"\nserver = \"127.0.0.1:2\"\nrewrite = { match = '^//x', to = \"/y\" }\n",
            "matches no path",
        ),
        (
            "path = \"/y\"\nserver = \"127.0.0.1:2\"\nrequest_headers = { set = { X-Client = \"$remote_addr\" } }\n",
            "write `{client}`",
        ),
    ] {
        let said = warnings(&home, &format!("{all}[[route]]\n{route}"));
        assert!(said.contains(part), "{route}{said}");
    }
}

/// The kernel has no Landlock for what is started: `check` warns, and the start is refused for the same reason.
#[test]
fn a_sandbox_that_the_kernel_cannot_have_is_warned_of() {
    let home = home();
    let without_landlock = |text: &str, command: &str| {
        let file = home.configure(text);
        let offramp = crate::support::offramp::offramp(home.path(), &[command, "-c", file.to_str().unwrap()]);
        let mut strace = Command::new(require("strace", "strace"));
        strace.args(["-f", "-o", "/dev/null", "-e", "inject=landlock_create_ruleset:error=ENOSYS"]);
        strace
            .args(["-e", "trace=landlock_create_ruleset"])
            .arg(offramp.get_program())
            .args(offramp.get_args());
        strace.current_dir(home.path());
        for (name, value) in offramp.get_envs() {
            match value {
                Some(value) => strace.env(name, value),
                None => strace.env_remove(name),
            };
        }
        ask(strace, b"", LIFE)
    };
    let route = Home::one_route("127.0.0.1:1");
    for (mode, since) in [("strict", "6.7"), ("required", "5.13")] {
        let text = format!("sandbox = \"{mode}\"\n{route}");
        let reason = format!(
            "sandbox = \"{mode}\", but files: the kernel has no Landlock, which Linux can have since {since}"
        );
        let checked = without_landlock(&text, "check");
        assert!(checked.status.success(), "{}", stderr(&checked));
        let warning = format!("warning: a start is refused on this machine: {reason}");
        assert!(stderr(&checked).contains(&warning), "{}", stderr(&checked));
        let started = without_landlock(&text, "run");
        assert!(!started.status.success() && stderr(&started).contains(&reason), "{}", stderr(&started));
        assert!(stderr(&started).contains("`sandbox = \"on\"` does without"), "{}", stderr(&started));
        assert!(!warnings(&home, &text).contains("sandbox"), "this kernel has Landlock");
    }
    let checked = without_landlock(&route, "check");
    assert!(checked.status.success() && !stderr(&checked).contains("sandbox"), "{}", stderr(&checked));
}
