//! Which version of the configuration an answer is of, and which a change is meant for.

use serde_json::json;

use super::changes::{Rig, ask};
use super::client::Answer;

#[test]
fn a_tag_is_never_newer_than_what_it_is_of() {
    let rig = Rig::new();
    let socket = rig.folder.path().join("admin.sock");
    let version = |answer: &Answer| -> u64 {
        let tag = answer.header("etag").unwrap().trim_matches('"').to_owned();
        tag.split_once('-').unwrap().1.parse().unwrap()
    };
    let of = |answer: &Answer| answer.json()["version"].as_u64().unwrap();
    let change = |level: &str| {
        let body = format!("{{\"level\":\"{level}\"}}");
        let done = ask(&socket, "PUT", "/v1/log-level", "", &body);
        assert_eq!((done.status, version(&done)), (200, of(&done)), "the tag of a change is of its outcome");
    };
    std::thread::scope(|scope| {
        let changers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| ["error", "warn"].iter().cycle().take(150).for_each(|level| change(level)))
            })
            .collect();
        while !changers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            let shown = ask(&socket, "GET", "/v1/config", "", "");
            assert!(version(&shown) <= of(&shown), "{} is newer than {}", version(&shown), of(&shown));
        }
    });
}

#[test]
fn what_depends_on_no_version_refuses_one_and_confirm_takes_it() {
    let rig = Rig::new();
    let tag = rig.ask("GET", "/v1/config", "", "").header("etag").unwrap().to_owned();
    let if_match = format!("if-match: {tag}\r\n");
    for (method, path) in [
        ("POST", "/v1/stop"),
        ("POST", "/v1/upgrade"),
        ("DELETE", "/v1/connections?older=0s"),
        ("DELETE", "/v1/connections/00019aa8-1234-7000-8000-c00000002abc"),
    ] {
        let refused = rig.ask(method, path, &if_match, "");
        assert_eq!(refused.status, 400, "{method} {path}");
        assert!(refused.json()["detail"].as_str().unwrap().contains("If-Match"), "{method} {path}");
    }
    let waits = rig.ask("PUT", "/v1/log-level?confirm=1h", "", r#"{"level":"debug"}"#);
    let late = rig.ask("POST", "/v1/confirm", &if_match, "");
    assert_eq!((late.status, &late.json()["version"]), (409, &json!(2)));
    let now = format!("if-match: {}\r\n", waits.header("etag").unwrap());
    assert_eq!(rig.ask("POST", "/v1/confirm", &now, "").status, 200);
}
