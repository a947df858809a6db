//! `satisfy = "any"`: an allowed address, or a right password or token, or the yes of an authentication server; `all`, the
//! default, wants each of them.

use std::fs;

use offramp_testkit::server::{Listen, Server};

use crate::support::http_app::{Seen, app, named, respond};
use crate::support::http_curl::{HTTP, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};

const ANNA: &str = "anna:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";
const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];
const HERE: &str = "allow = \"127.0.0.0/8\"\n";
const ELSEWHERE: &str = "allow = \"192.0.2.0/24\"\n";
const DENIED: &str = "allow = \"127.0.0.0/8\"\ndeny = \"127.0.0.1\"\n";
const BASIC: &str = "basic_auth = \"users\"\n";
const FORWARD: &str = "forward_auth = { server = \"unix:auth.sock\", headers = [\"Remote-Groups\"] }\n";
const ANY: &str = "satisfy = \"any\"\n";
const ALL: &str = "satisfy = \"all\"\n";

/// Routes `/0`, `/1` and so on with these keys.
fn served(routes: &[String]) -> (Vec<Server>, Seen, Instance) {
    let home = Home::new();
    let (application, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let auth = app(&Listen::Unix(home.file("auth.sock")), |request, stream| match request.field("cookie") {
        "session=good" => respond(stream, 200, &["Remote-Groups: staff"], b""),
        _ => respond(stream, 302, &["Location: /login"], b"log in"),
    });
    fs::write(home.file("users"), ANNA).unwrap();
    let route = |(at, keys): (usize, &String)| {
        format!("[[route]]\npath = \"/{at}\"\nserver = \"unix:app.sock\"\n{keys}")
    };
    let routes: String = routes.iter().enumerate().map(route).collect();
    (vec![application, auth], seen, home.run(&format!("{CERTIFICATE}{HTTP}{routes}")))
}

#[test]
fn each_combination_lets_in_whom_it_says() {
    const RIGHT: [&str; 2] = ["--user", "anna:U*U"];
    const WRONG: [&str; 2] = ["--user", "anna:no"];
    const COOKIE: [&str; 2] = ["--header", "Cookie: session=good"];
    // For each route: what a client gets that shows nothing, the right password, a wrong one, and a good session.
    let rows: [(&[&str], [u16; 4]); 13] = [
        (&[HERE, BASIC], [401, 200, 401, 401]),
        (&[HERE, BASIC, ALL], [401, 200, 401, 401]),
        (&[ELSEWHERE, BASIC], [403, 403, 403, 403]),
        (&[HERE, BASIC, ANY], [200, 200, 200, 200]),
        (&[ELSEWHERE, BASIC, ANY], [401, 200, 401, 401]),
        (&[DENIED, BASIC, ANY], [401, 200, 401, 401]),
        (&[DENIED, BASIC], [403, 403, 403, 403]),
        (&[HERE, FORWARD, ANY], [200, 200, 200, 200]),
        (&[ELSEWHERE, FORWARD, ANY], [302, 302, 302, 200]),
        (&[BASIC, FORWARD], [401, 302, 401, 401]),
        (&[BASIC, FORWARD, ANY], [302, 200, 302, 200]),
        (&[ELSEWHERE, BASIC, FORWARD, ANY], [302, 200, 302, 200]),
        (&[HERE, BASIC, FORWARD, ANY], [200, 200, 200, 200]),
    ];
    let keys: Vec<String> = rows.iter().map(|(keys, _)| keys.concat()).collect();
    let (_servers, seen, instance) = served(&keys);
    for version in VERSIONS {
        for (at, (keys, expected)) in rows.iter().enumerate() {
            let shown: [&[&str]; 4] = [&[], &RIGHT, &WRONG, &COOKIE];
            for (shows, status) in shown.into_iter().zip(expected) {
                // Whoever enters without showing anything says who it is all the same.
                let claims = ["--header", "Remote-User: root", "--header", "Remote.Groups: wheel"];
                let arguments = [&[version][..], shows, &claims].concat();
                let answer = get(&instance, &arguments, &format!("https://localhost/{at}"));
                assert_eq!(answer.status(), *status, "{version} {keys:?} {shows:?}");
                let Some(request) = seen.take().pop() else {
                    assert_ne!(*status, 200);
                    continue;
                };
                let (basic, forward) = (keys.contains(&BASIC), keys.contains(&FORWARD));
                let said = (request.field("remote-user"), request.field("remote-groups"));
                let by_address = keys.contains(&HERE) && keys.contains(&ANY);
                if by_address {
                    assert_eq!(said, (if basic { "" } else { "root" }, ""), "{keys:?}");
                } else if shows == RIGHT {
                    assert_eq!(said, ("anna", ""), "{keys:?}");
                } else {
                    assert_eq!(said, (if basic { "" } else { "root" }, "staff"), "{keys:?}");
                }
                assert!(!forward || request.field("remote.groups").is_empty(), "{keys:?}");
                assert!(!basic || request.field("authorization").is_empty(), "{keys:?}");
            }
        }
    }
    let events = instance.stop();
    let named = events.iter().filter(|event| text(event, "user") == "anna");
    assert!(named.clone().all(|event| cause(event) == "completed"), "{events:?}");
    assert!(named.count() >= 10);
}

/// Where all rules hold, servers learn what each of them says.
#[test]
fn all_rules_say_who_the_client_is() {
    let (_servers, seen, instance) = served(&[[BASIC, FORWARD].concat()]);
    for version in VERSIONS {
        let arguments = [version, "--user", "anna:U*U", "--header", "Cookie: session=good"];
        assert_eq!(get(&instance, &arguments, "https://localhost/0").status(), 200, "{version}");
        let request = seen.one();
        assert_eq!(
            (request.field("remote-user"), request.field("remote-groups")),
            ("anna", "staff"),
            "{version}"
        );
    }
    instance.stop();
}
