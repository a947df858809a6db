//! `offramp why`: situations that are made for real, and the first sentence of the answer to each.

use std::process::Output;

use offramp_testkit::process::free_address;
use offramp_testkit::server::{Listen, Server, apps};
use serde_json::Value;

use crate::logs_answer_for_what_was_served::fetch;
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER};
use crate::support::offramp::{output, stderr, stdout};

/// Routes of many kinds on a listener with TLS and one without, with a log store.
fn situations(app: &str, closed: &str) -> String {
    format!(
        "{CERTIFICATE}{LISTENER}mode = \"http\"\n\
         [[listener]]\nname = \"plain\"\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
         [log_store]\nurl = \"sqlite:access.db\"\n\
         [backend.down]\nservers = [\"{closed}\"]\nhealth = {{ interval = \"200ms\", fall = 1 }}\n\
         [backend.half]\nservers = [\"{closed}\", \"{app}\"]\nhealth = {{ interval = \"200ms\", fall = 1 }}\n\
         [[route]]\nhost = \"a.example.org\"\nrespond = {{ body = \"hello\" }}\n\
         [[route]]\nhost = \"shop.example.org\"\nserver = \"{app}\"\n\
         [[route]]\nhost = \"shop.example.org\"\npath = \"/api\"\nbackend = \"half\"\n\
         [[route]]\nhost = \"shop.example.org\"\npath = \"/old\"\nredirect = \"https://shop.example.org/new\"\n\
         [[route]]\nhost = \"down.example.org\"\nbackend = \"down\"\n\
         [[route]]\nhost = \"gone.example.org\"\npath = \"/only\"\nrespond = {{ status = 410, body = \"gone\" }}\n\
         [[route]]\nhost = \"inner.example.org\"\nserver = \"{app}\"\nallow = [\"192.0.2.0/24\"]\n\
         [[route]]\nhost = \"*.wild.example.org\"\nserver = \"{app}\"\n"
    )
}

pub(crate) fn why(instance: &Instance, words: &[&str]) -> Output {
    let arguments = [&["why", "--config", "offramp.toml"], words].concat();
    output(instance.home.path(), &arguments)
}

/// The first line of an answer for people, on a wide terminal.
pub(crate) fn first(instance: &Instance, words: &[&str]) -> String {
    let answer = why(instance, &[words, &["--json"]].concat());
    assert!(answer.status.success(), "{words:?}: {}", stderr(&answer));
    let json: Value = serde_json::from_slice(&answer.stdout).unwrap();
    json["first"].as_str().unwrap().to_owned()
}

/// The id of the request for this host and path, once it is in the log store.
pub(crate) fn stored(instance: &Instance, host: &str, path: &str) -> String {
    instance.until("the request is stored", || {
        let sql = format!("SELECT request_id FROM requests WHERE host = '{host}' AND path = '{path}'");
        let store = ["logs", "query", &sql, "--store", "sqlite:access.db", "--json"];
        let rows: Value = serde_json::from_slice(&output(instance.home.path(), &store).stdout).ok()?;
        Some(rows[0]["request_id"].as_str()?.to_owned())
    })
}

/// Questions whose whole first sentence is known.
fn whole_sentences(app: &str, closed: &str) -> Vec<(Vec<&'static str>, String)> {
    let down = format!(
        "The only server of backend down, {closed}, is down: it fails its health checks: Connection refused (os error 111)."
    );
    vec![
        (vec!["https://a.example.org/x"], "a.example.org/x takes route a.example.org: Offramp answers 200 itself.".into()),
        (vec!["https://shop.example.org/"], format!("shop.example.org/ takes route shop.example.org: it goes to {app}.")),
        (vec!["https://shop.example.org/api/1"], "shop.example.org/api/1 takes route shop.example.org/api: it goes to backend half.".into()),
        (vec!["https://shop.example.org/%61pi"], "shop.example.org/api takes route shop.example.org/api: it goes to backend half.".into()),
        (vec!["https://shop.example.org//api"], "shop.example.org/api takes route shop.example.org/api: it goes to backend half.".into()),
        (vec!["https://shop.example.org/apis"], format!("shop.example.org/apis takes route shop.example.org: it goes to {app}.")),
        (vec!["https://shop.example.org/old/1"], "shop.example.org/old/1 takes route shop.example.org/old: it is redirected with 308.".into()),
        (vec!["https://down.example.org/"], "down.example.org/ takes route down.example.org: it goes to backend down, and no server of it takes requests now.".into()),
        (vec!["https://gone.example.org/"], "No route of listener default matches gone.example.org/: Offramp answers 404 (no_route).".into()),
        (vec!["https://inner.example.org/"], format!("inner.example.org/ takes route inner.example.org: it goes to {app}.")),
        (vec!["https://x.wild.example.org/"], format!("x.wild.example.org/ takes route *.wild.example.org: it goes to {app}.")),
        (vec!["https://x.y.wild.example.org/"], "No route of listener default matches x.y.wild.example.org/: Offramp answers 404 (no_route).".into()),
        (vec!["https://shop.exmaple.org/"], "No route of listener default matches shop.exmaple.org/: Offramp answers 404 (no_route).".into()),
        (vec!["http://shop.example.org/"], format!("shop.example.org/ takes route shop.example.org: it goes to {app}.")),
        (vec!["not-routed", "https://gone.example.org/onl"], "No route of listener default matches gone.example.org/onl: Offramp answers 404 (no_route).".into()),
        (vec!["not-routed", "nobody.example.com"], "No route of listener default matches nobody.example.com/: Offramp answers 404 (no_route).".into()),
        (vec!["502"], down.clone()),
        (vec!["502", "down"], down.clone()),
        (vec!["502", "half"], format!("1 of 2 servers of backend half take requests; {closed} is down: it fails its health checks: Connection refused (os error 111).")),
        (vec!["502", "https://down.example.org/"], "down.example.org/ takes route down.example.org: it goes to backend down, and no server of it takes requests now.".into()),
    ]
}

#[test]
fn each_situation_has_its_first_sentence() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let (app, closed) = (app.address().to_string(), free_address().to_string());
    let instance = Home::new().run(&situations(&app, &closed));
    let urls = [
        "a.example.org/x",
        "shop.example.org/",
        "down.example.org/",
        "gone.example.org/only",
        "gone.example.org/",
        "inner.example.org/",
    ];
    for url in urls {
        fetch(&instance, "curl/8", &[&format!("https://{url}")]);
    }
    // The prober has to find out first.
    instance
        .until("the server is down", || first(&instance, &["502", "down"]).contains("is down").then_some(()));
    let rows = whole_sentences(&app, &closed);
    let mut wrong = Vec::new();
    for (words, expected) in rows {
        let said = first(&instance, &words);
        if said != expected {
            wrong.push(format!("{words:?}: {said}"));
        }
    }
    let requests = [
        ("a.example.org", "/x", "The request ended with status 200."),
        (
            "shop.example.org",
            "/",
            &format!("The request ended with status 200, which the server {app} answered."),
        ),
        (
            "down.example.org",
            "/",
            "The request ended with status 503: Every server of the backend is known to be down; answered with 503. (no_server_alive)",
        ),
        ("gone.example.org", "/only", "The request ended with status 410."),
        (
            "gone.example.org",
            "/",
            "The request ended with status 404: No route matches the client's listener, name and ALPN, or host and path; a request is answered with 404. (no_route)",
        ),
        (
            "inner.example.org",
            "/",
            "The request ended with status 403: `allow` or `deny` of the listener or the route refuses the client's address. A request is answered with 403; a connection is closed before its handshake, by a route with the alert access_denied. (address_denied)",
        ),
    ];
    for (host, path, expected) in requests {
        let said = first(&instance, &[&stored(&instance, host, path)]);
        if said != expected {
            wrong.push(format!("{host}{path}: {said}"));
        }
    }
    let begin = [
        (
            vec!["127.0.0.1"],
            "4 of the latest 6 requests of 127.0.0.1 failed; 1 of them ended with status 503 because of no_server_alive: ",
        ),
        (vec!["127.0.0.1", "--since", "5m"], "4 of the latest 6 requests of 127.0.0.1 failed; "),
        (vec!["192.0.2.77"], "No request of 192.0.2.77 was stored (since: 1h)."),
        (vec!["slow"], "Of the latest 6 requests half took "),
        (vec!["slow", "shop.example.org"], "Of the latest 1 requests to shop.example.org half took "),
        (
            vec!["slow", "nobody.example.org", "--since", "10m"],
            "No request to nobody.example.org was stored (since: 10m).",
        ),
    ];
    for (words, expected) in begin {
        let said = first(&instance, &words);
        if !said.starts_with(expected) {
            wrong.push(format!("{words:?}: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_answer_is_text_with_evidence_and_remedy() {
    let instance = Home::new().run(&situations("127.0.0.1:2", "127.0.0.1:1"));
    let answer = why(&instance, &["https://gone.example.org/"]);
    let text = stdout(&answer);
    assert!(
        answer.status.success() && text.starts_with("No route of listener default matches gone.example.org/"),
        "{text}"
    );
    for part in [
        "\n  - Route gone.example.org/only does not match: its path is /only, and / is not below it.",
        "offramp.toml:",
        "\nWhat to do:\n  - Add a [[route]]",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn without_an_offramp_the_file_answers_for_urls_and_refusals_name_the_questions() {
    let home = Home::new();
    home.configure(&situations("127.0.0.1:2", "127.0.0.1:1"));
    let asked = |words: &[&str]| output(home.path(), &[&["why", "--config", "offramp.toml"], words].concat());
    let answer = asked(&["https://gone.example.org/only/1"]);
    assert!(
        answer.status.success() && stderr(&answer).contains("this is what the configuration says"),
        "{}",
        stderr(&answer)
    );
    assert!(stdout(&answer).starts_with("gone.example.org/only/1 takes route "), "{}", stdout(&answer));
    for (words, code, part) in [
        (vec!["502"], 1, "no Offramp listens"),
        (vec!["not-routed"], 2, "offramp why not-routed URL"),
        (vec!["Why?"], 2, "offramp why REQUEST-ID"),
        (vec!["no_route", "x"], 2, "is no question about x"),
        (vec!["502", "--since", "10m"], 2, "for slow, a client, a URL and a request"),
        (vec!["https://"], 2, "write a URL such as"),
    ] {
        let refused = asked(&words);
        assert_eq!(refused.status.code(), Some(code), "{words:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(part), "{words:?}: {}", stderr(&refused));
    }
}
