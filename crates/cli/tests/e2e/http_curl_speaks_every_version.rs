//! curl with HTTP/1.0, 1.1 and 2, with and without TLS: responses, bodies both ways, interim responses.

use std::fs;
use std::io::Write as _;

use offramp_testkit::server::{Listen, Pattern, Server};

use crate::support::http_app::{Seen, app, named, respond};
use crate::support::http_curl::{HTTP, PLAIN, curl, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};

/// An application called `app` on a Unix socket, and Offramp before it with and without TLS.
fn served() -> (Server, Seen, Instance) {
    let home = Home::new();
    let (server, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let text = format!("{CERTIFICATE}{HTTP}{PLAIN}[[route]]\nserver = \"unix:app.sock\"\n");
    (server, seen, home.run(&text))
}

/// The options of curl, and what the event calls the version over TLS and without.
const VERSIONS: [(&str, &str); 3] =
    [("--http1.0", "HTTP/1.0"), ("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")];

#[test]
fn every_version_gets_the_same_response_with_and_without_tls() {
    let (_app, seen, instance) = served();
    for (option, protocol) in VERSIONS {
        for scheme in ["https", "http"] {
            // Without TLS curl would ask for an upgrade to h2c, which no server grants any more.
            let option =
                if (scheme, option) == ("http", "--http2") { "--http2-prior-knowledge" } else { option };
            let url = format!("{scheme}://localhost/{protocol}?{scheme}");
            let answer = get(&instance, &[option], &url);
            assert_eq!((answer.status(), answer.text().as_str()), (200, "app\n"), "{answer:?}");
            assert_eq!((answer.field("content-length"), answer.field("x-app")), ("4", "yes"), "{answer:?}");
            let request = seen.one();
            assert_eq!(
                (request.method.as_str(), request.target.as_str()),
                ("GET", &url["https://localhost".len() - usize::from(scheme == "http")..])
            );
            assert_eq!((request.field("host"), request.field("x-forwarded-proto")), ("localhost", scheme));
            let event = instance.event(&url, |event| {
                text(event, "path") == format!("/{protocol}") && text(event, "query") == scheme
            });
            assert_eq!((text(&event, "protocol"), cause(&event)), (protocol, "completed"), "{event}");
        }
    }
    instance.stop();
}

#[test]
fn head_has_the_length_and_no_body() {
    let home = Home::new();
    let _app = app(&Listen::Unix(home.file("app.sock")), |request, stream| {
        assert_eq!(request.method, "HEAD");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 123456\r\nETag: \"x\"\r\n\r\n")
    });
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{PLAIN}[[route]]\nserver = \"unix:app.sock\"\n"));
    for (option, _) in VERSIONS {
        let answer = get(&instance, &[option, "--head"], "https://localhost/");
        assert_eq!((answer.status(), answer.field("content-length")), (200, "123456"), "{option} {answer:?}");
        assert!(answer.body.is_empty() && answer.field("etag") == "\"x\"", "{answer:?}");
    }
    let events = instance.stop();
    assert!(events.iter().all(|event| text(event, "method") == "HEAD" && event["bytes_to_client"] == 0));
}

#[test]
fn a_large_upload_waits_to_be_asked_for() {
    let home = Home::new();
    let _app = app(&Listen::Unix(home.file("app.sock")), |request, stream| {
        let expected = request.field("expect");
        respond(stream, 200, &[&format!("X-Expect: {expected}")], &request.body)
    });
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    let mut body = vec![0; 3 << 20];
    Pattern::new(7).fill(&mut body);
    fs::write(instance.home.file("up"), &body).unwrap();
    for chunked in [false, true] {
        let mut arguments = vec!["--http1.1", "--data-binary", "@up", "--header", "Expect: 100-continue"];
        if chunked {
            arguments.extend(["--header", "Transfer-Encoding: chunked"]);
        }
        let answer = get(&instance, &arguments, "https://localhost/");
        let statuses: Vec<_> = answer.heads.iter().filter_map(|head| head.split(' ').nth(1)).collect();
        assert!(
            matches!(&statuses[..], [first, last] if first.starts_with("100") && last.starts_with("200")),
            "{:?}",
            answer.heads
        );
        assert_eq!(answer.field("x-expect"), "100-continue");
        assert!(answer.body == body, "{} bytes", answer.body.len());
    }
    let answer = get(&instance, &["--http2", "--data-binary", "@up"], "https://localhost/");
    assert!(answer.body == body, "{} bytes", answer.body.len());
    for event in instance.stop() {
        assert_eq!(
            (event["bytes_from_client"].as_u64(), event["bytes_to_client"].as_u64()),
            (Some(3 << 20), Some(3 << 20)),
            "{event}"
        );
    }
}

#[test]
fn an_upload_that_the_server_does_not_want_is_never_sent() {
    let home = Home::new();
    // Without 100 Continue: it answers before it reads.
    let _app = Server::start(&Listen::Unix(home.file("app.sock")), |mut stream| {
        use std::io::Read as _;
        let mut head = Vec::new();
        let mut chunk = [0; 4096];
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            let Ok(length @ 1..) = stream.read(&mut chunk) else { return };
            head.extend_from_slice(&chunk[..length]);
        }
        let _ = respond(&mut stream, 403, &["Connection: close"], b"no\n");
    })
    .unwrap();
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    fs::write(instance.home.file("up"), vec![b'x'; 5 << 20]).unwrap();
    // curl waits a minute for the 100 before it sends anyway.
    let wait = ["--http1.1", "--data-binary", "@up", "--header", "Expect: 100-continue"];
    let answer = get(&instance, &[&wait[..], &["--expect100-timeout", "60"]].concat(), "https://localhost/");
    assert_eq!((answer.status(), answer.text().as_str()), (403, "no\n"), "{answer:?}");
    let events = instance.stop();
    assert_eq!(events[0]["bytes_from_client"], 0, "{}", events[0]);
}

#[test]
fn early_hints_are_passed_on() {
    let home = Home::new();
    let _app = app(&Listen::Unix(home.file("app.sock")), |_, stream| {
        stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")?;
        respond(stream, 200, &[], b"hinted\n")
    });
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    for (option, first, last) in [
        ("--http1.1", "< HTTP/1.1 103 Early Hints", "< HTTP/1.1 200"),
        ("--http2", "< HTTP/2 103", "< HTTP/2 200"),
    ] {
        let answer = get(&instance, &[option, "--verbose"], "https://localhost/");
        for part in [first, "< link: </a.css>; rel=preload", last] {
            assert!(
                answer.said.to_ascii_lowercase().contains(&part.to_ascii_lowercase()),
                "{part} in {}",
                answer.said
            );
        }
        assert_eq!(answer.text(), "hinted\n");
    }
    // What knows no interim responses gets none (RFC 9110 §15.2).
    let answer = get(&instance, &["--http1.0"], "https://localhost/");
    assert_eq!((answer.heads.len(), answer.text().as_str()), (1, "hinted\n"), "{answer:?}");
    instance.stop();
}

/// RFC 9110 §15.2: a rule that hides a field, or sets one, holds from the first response on. No cookie is set before the last.
#[test]
fn interim_responses_follow_the_rules_of_their_route() {
    let home = Home::new();
    let _app = app(&Listen::Unix(home.file("app.sock")), |_, stream| {
        let hint =
            "Link: </a.css>; rel=preload\r\nServer: leaky/1\r\nSet-Cookie: early=1\r\nX-Set: theirs\r\n";
        write!(stream, "HTTP/1.1 103 Early Hints\r\n{hint}\r\nHTTP/1.1 103 Early Hints\r\n{hint}\r\n")?;
        respond(stream, 200, &["Server: leaky/1", "Set-Cookie: late=1"], b"hinted\n")
    });
    let rules =
        "response_headers = { remove = \"Server\", set = { X-Set = \"SET\" }, add = { X-More = \"1\" } }";
    let route = |path: &str, rules: &str| {
        format!("[[route]]\npath = \"{path}\"\nserver = \"unix:app.sock\"\n{rules}\n")
    };
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}{}{}{}",
        route("/fixed", &rules.replace("SET", "ours")),
        route("/variable", &rules.replace("SET", "{client} {path} {server}")),
        route("/", "")
    ));
    let server = format!("unix:{}", instance.home.file("app.sock").display());
    for option in ["--http1.1", "--http2"] {
        for (path, early, late) in [
            ("/fixed", "ours", "ours"),
            ("/variable/x", "127.0.0.1 /variable/x", &format!("127.0.0.1 /variable/x {server}")),
        ] {
            let answer = get(&instance, &[option], &format!("https://localhost{path}"));
            assert_eq!(answer.heads.len(), 3, "{option} {answer:?}");
            for head in &answer.heads {
                assert!(!head.contains("leaky") && head.contains("\nx-more: 1"), "{option} {head}");
            }
            for head in &answer.heads[..2] {
                assert!(head.contains("\nlink: </a.css>; rel=preload"), "{option} {head}");
                assert!(!head.contains("cookie"), "{option} {head}");
                assert!(head.lines().any(|line| line == format!("x-set: {early}")), "{option} {head}");
            }
            assert_eq!((answer.field("x-set"), answer.field("set-cookie")), (late, "late=1"), "{option}");
        }
        let answer = get(&instance, &[option], "https://localhost/");
        assert!(answer.heads[..2].iter().all(|head| !head.contains("cookie") && head.contains("leaky")));
    }
    instance.stop();
}

#[test]
fn one_connection_carries_many_requests() {
    let (_app, seen, instance) = served();
    for option in ["--http1.1", "--http2"] {
        let answer = curl(&instance, &[option, "--write-out", "%{num_connects}"], "https://localhost/[1-50]");
        assert_eq!(answer.code, 0, "{}", answer.said);
        let told = answer.text();
        // Behind each response curl writes how many connections it took.
        assert_eq!((told.matches("app\n").count(), told.matches("app\n0").count()), (50, 49), "{told}");
    }
    assert_eq!(seen.take().len(), 100);
    let events = instance.stop();
    let mut connections: Vec<_> = events.iter().map(|event| text(event, "connection")).collect();
    connections.dedup();
    assert_eq!((events.len(), connections.len()), (100, 2));
}
