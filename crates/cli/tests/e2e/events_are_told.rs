//! Receivers of notifications are told of servers that go down and come back, in the form that each expects.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Output;

use offramp_testkit::process::Source;

use crate::open_connections_are_shown_and_closed::ctl;
use crate::support::figures::Page;
use crate::support::instance::{Home, Instance};
use crate::support::offramp::{output, stderr, stdout};
use crate::support::upgrade::Upgraded;
use crate::support::webhook::{PLAIN, SILENT, Site, Told, backend, event, receiver};

fn test(instance: &Instance, more: &[&str]) -> Output {
    let mut arguments = vec!["notify", "test", "-c", "offramp.toml"];
    arguments.extend(more);
    output(instance.home.path(), &arguments)
}

#[test]
fn a_server_is_told_down_and_up_and_a_receiver_that_fails_is_tried_again() {
    let (app, hook) = (Site::start(200), Site::start(500));
    let url = format!("http://{}/hook?key=hidden", hook.address);
    let instance = Home::new().run(&format!(
        "{PLAIN}{}{}[metrics]\naddress = \"127.0.0.1:0\"\n",
        backend(app.address),
        receiver("one", &url, "on = [\"server\", \"change\"]\n")
    ));
    app.answers(503);
    let first = hook.request(&instance, 0);
    let about = format!("app {}", app.address);
    assert_eq!(event(&first), ["server", "begins", &about]);
    assert!(first.head.starts_with("post /hook?key=hidden http/1.1\n"), "{}", first.head);
    assert!(first.json()["text"].as_str().unwrap().contains("it fails its health checks: "), "{first:?}");

    hook.answers(200);
    let again = hook.request(&instance, 1);
    assert_eq!((again.body, again.head), (first.body, first.head), "the same message is sent again");
    app.answers(200);
    assert_eq!(event(&hook.request(&instance, 2)), ["server", "ends", &about]);
    let page = instance.until("the last answer", || {
        let page = Page::scrape(instance.metrics());
        let count =
            |result| page.get(&format!("offramp_notifications_total{{name=\"one\",result=\"{result}\"}}"));
        (count("sent") == 2.0).then(|| [count("retried"), count("refused"), count("dropped")])
    });
    assert_eq!(page, [1.0, 0.0, 0.0]);

    // A reload changes receivers, and is told itself to who wants to know.
    let other = Site::start(200);
    let file = instance.home.file("offramp.toml");
    let text = fs::read_to_string(&file).unwrap();
    let url = format!("http://{}/", other.address);
    fs::write(&file, format!("{text}{}", receiver("two", &url, "on = [\"server\"]\n"))).unwrap();
    assert!(ctl(&instance, &["reload"]).status.success());
    let change = hook.request(&instance, 3);
    assert_eq!(event(&change), ["change", "happened", "to version 2"]);
    assert!(change.body.contains("notify two: added"), "{}", change.body);
    app.answers(503);
    assert_eq!(event(&other.request(&instance, 0)), ["server", "begins", &about]);

    let list = stdout(&output(instance.home.path(), &["notify", "list", "-c", "offramp.toml"]));
    assert!(list.starts_with("NAME") && list.contains(&format!("http://{}", hook.address)), "{list}");
    let log = instance.process.lines(Source::Stderr).join("\n");
    assert!(log.contains("cannot send notifications; will try again"), "{log}");
    assert!(log.contains("notifications are taken again"), "{log}");
    assert!(!log.contains("hidden") && !list.contains("hidden"), "{log}{list}");
    instance.stop();
}

/// Every form, over TLS with secrets from files and over plain HTTP, by messages that an operator asks for.
#[test]
fn each_receiver_gets_its_form() {
    let (app, hook) = (Site::start(200), Site::start(200));
    let front = Instance::before(hook.address);
    let home = Home::new();
    fs::copy(front.home.ca.certificate(), home.file("front-ca.pem")).unwrap();
    fs::write(home.file("url"), format!("https://localhost:{}/T0/B0/secret\n", front.address().port()))
        .unwrap();
    fs::write(home.file("token"), "syt_token\n").unwrap();
    let url = format!("http://{}", hook.address);
    let room = format!("{url}/rooms/!a:b/send/m.room.message");
    let instance = home.run(&format!(
        "{PLAIN}{}[[notify]]\nname = \"slack\"\nurl_file = \"url\"\nca = \"front-ca.pem\"\nformat = \"slack\"\n{}{}{}{}",
        backend(app.address),
        receiver("ntfy", &url, "format = \"ntfy\"\ntoken_file = \"token\"\n"),
        receiver("matrix", &room, "format = \"matrix\"\ntoken_file = \"token\"\n"),
        receiver("own", &url, "body = '{\"msg\": \"{title}\\n{text}\", \"n\": {count}, \"kind\": \"{kind}\"}'\n"),
        receiver("away", "http://127.0.0.1:1/", ""),
    ));
    let said = test(&instance, &["slack"]);
    assert_eq!((stderr(&said), said.status.code()), (String::new(), Some(0)));
    let origin = format!("https://localhost:{}", front.address().port());
    assert_eq!(stdout(&said), format!("slack: {origin} answered 200 OK: ok\n"));
    let told = |line: &str| {
        let found = hook.requests().into_iter().find(|told| told.head.starts_with(line));
        found.unwrap_or_else(|| panic!("no {line} in {:?}", hook.requests()))
    };
    assert!(told("post /t0/b0/secret ").json()["text"].as_str().unwrap().contains("nothing is wrong"));

    for name in ["ntfy", "matrix", "own"] {
        assert!(test(&instance, &[name]).status.success(), "{name}");
    }
    let posts: Vec<Told> =
        hook.requests().into_iter().filter(|told| told.head.starts_with("post / ")).collect();
    let [ntfy, own] = &posts[..] else { panic!("{posts:?}") };
    for field in ["title: ", "priority: ", "authorization: bearer syt_token", "content-type: text/plain"] {
        assert!(ntfy.head.contains(&format!("\n{field}")), "{field}: {}", ntfy.head);
    }
    assert!(ntfy.body.starts_with("test of notifications to ntfy"), "{}", ntfy.body);
    assert_eq!((&own.json()["n"], &own.json()["kind"]), (&1.into(), &"test".into()));
    assert!(!own.head.contains("authorization"), "{}", own.head);
    let matrix = told("put /rooms/!a:b/send/m.room.message/offramp-");
    assert!(matrix.head.contains("\nauthorization: bearer syt_token\n"), "{}", matrix.head);
    assert_eq!(matrix.json()["msgtype"], "m.text");

    hook.answers(302);
    let said = test(&instance, &["own"]);
    assert!(stderr(&said).contains("did not take the message: 302"), "{}", stderr(&said));
    assert_eq!(said.status.code(), Some(1));
    let said = test(&instance, &["owm"]);
    assert!(stderr(&said).contains("no receiver `owm`; the nearest one is `own`"), "{}", stderr(&said));
    // Without a name all are tried, and the outcomes are told together.
    hook.answers(200);
    let said = test(&instance, &[]);
    assert_eq!((stdout(&said).lines().count(), said.status.code()), (4, Some(1)), "{}", stdout(&said));
    assert!(
        stderr(&said).contains("error: away: ") && stderr(&said).contains("refused"),
        "{}",
        stderr(&said)
    );
    let log = instance.process.lines(Source::Stderr).join("\n");
    assert!(!log.contains("secret") && !log.contains("syt_token"), "{log}");
    instance.stop();
    front.stop();
}

#[test]
fn a_receiver_that_hangs_holds_up_nothing() {
    let (app, hook) = (Site::start(200), Site::start(SILENT));
    let instance = Home::new().run(&format!(
        "{PLAIN}{}{}",
        backend(app.address),
        receiver("one", &format!("http://{}/", hook.address), "")
    ));
    app.answers(503);
    hook.request(&instance, 0);
    // While it hangs, changes are made and requests are answered.
    assert!(ctl(&instance, &["reload"]).status.success());
    let mut stream = TcpStream::connect(instance.address()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
    let told = instance.until("the time limit", || {
        let lines = instance.process.lines(Source::Stderr);
        lines.into_iter().find(|line| line.contains("cannot send notifications"))
    });
    assert!(told.contains("no answer within 10 s"), "{told}");
    instance.stop();
}

#[test]
fn files_that_are_wrong_are_told_by_check_and_refuse_a_change() {
    let hook = Site::start(200);
    let instance = Home::new().run(&format!("{PLAIN}{}", backend(hook.address)));
    let file = instance.home.file("offramp.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(instance.home.file("url"), "ftp://hooks.example.org/secret\n").unwrap();
    fs::write(
        &file,
        format!("{text}[[notify]]\nname = \"a\"\nurl_file = \"url\"\ntoken_file = \"missing\"\n"),
    )
    .unwrap();
    let check = output(instance.home.path(), &["check", "-c", "offramp.toml"]);
    let refused = ctl(&instance, &["reload"]);
    for said in [check, refused] {
        let text = stderr(&said) + &stdout(&said);
        assert!(!said.status.success() && text.contains("no URL for notifications"), "{text}");
        assert!(text.contains("missing") && !text.contains("secret"), "{text}");
    }
    instance.stop();
}

/// A state that goes on during an upgrade is not told twice, and its end is told by the new process.
#[test]
fn an_upgrade_tells_nothing_twice() {
    let (app, hook) = (Site::start(200), Site::start(200));
    let upgraded = Upgraded::of(Home::new().run(&format!(
        "{PLAIN}{}{}",
        backend(app.address),
        receiver("one", &format!("http://{}/", hook.address), "on = [\"server\"]\n")
    )));
    app.answers(503);
    let about = format!("app {}", app.address);
    assert_eq!(event(&hook.request(&upgraded.instance, 0)), ["server", "begins", &about]);
    upgraded.upgrade();
    upgraded.until_others_ended();
    app.answers(200);
    let second = hook.request(&upgraded.instance, 1);
    assert_eq!(event(&second), ["server", "ends", &about], "{:?}", hook.requests());
    upgraded.stop();
}

/// Messages that receivers do not take for now, one by its answer and one by its silence, are told by the new process.
#[test]
fn an_upgrade_leaves_messages_that_are_tried_again_to_the_new_process() {
    let (app, busy, silent) = (Site::start(200), Site::start(503), Site::start(SILENT));
    let to =
        |name: &str, site: &Site| receiver(name, &format!("http://{}/", site.address), "on = [\"server\"]\n");
    let upgraded = Upgraded::of(Home::new().run(&format!(
        "{PLAIN}{}{}{}[metrics]\naddress = \"127.0.0.1:0\"\n",
        backend(app.address),
        to("busy", &busy),
        to("silent", &silent)
    )));
    let instance = &upgraded.instance;
    app.answers(503);
    let (of_busy, of_silent) = (busy.request(instance, 0), silent.request(instance, 0));
    instance.until("a failed try", || {
        let lines = upgraded.logged("cannot send notifications");
        lines.iter().any(|line| line.contains("busy")).then_some(())
    });
    upgraded.upgrade();
    busy.answers(200);
    silent.answers(200);
    // The old process ends when its try has got no answer, and not before.
    upgraded.until_others_ended();
    let sent = |count: f64| {
        instance.until("messages that were sent", || {
            let page = Page::scrape(instance.metrics());
            let of =
                |name| page.get(&format!("offramp_notifications_total{{name=\"{name}\",result=\"sent\"}}"));
            (of("busy") == count && of("silent") == count).then_some(())
        });
    };
    sent(1.0);
    for (site, first) in [(&busy, of_busy), (&silent, of_silent)] {
        let all = site.requests();
        assert!(all.len() > 1 && all.iter().all(|told| told.body == first.body), "{all:?}");
    }
    app.answers(200);
    sent(2.0);
    let about = format!("app {}", app.address);
    for site in [&busy, &silent] {
        assert_eq!(event(site.requests().last().unwrap()), ["server", "ends", &about]);
    }
    let left = fs::read_dir(instance.home.file("state/notify")).unwrap().count();
    assert_eq!(left, 0, "a message would be told again");
    upgraded.stop();
}
