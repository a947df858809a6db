//! Valid requests pass, and are described correctly.

use offramp_http::h1::{Guard, GuardOutcome, HeadLimits, Http1Version, Phase, RequestFraming, TargetForm};

use super::{End, feed, framing, whole};

const BROWSER: &[u8] = b"GET /search?q=caf%C3%A9&lang=en HTTP/1.1\r\n\
    Host: www.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=0123456789abcdef; theme=dark\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\r\n";

#[test]
fn the_head_of_a_browser() {
    let story = whole(BROWSER);
    assert_eq!((story.end, story.passed), (None, BROWSER.len()));
    let head = &story.requests[0].head;
    assert_eq!(&BROWSER[head.method.clone()], b"GET");
    assert_eq!(&BROWSER[head.target.clone()], b"/search?q=caf%C3%A9&lang=en");
    assert_eq!(&BROWSER[head.host.clone().unwrap()], b"www.example.org");
    assert_eq!(
        (head.form, head.version, head.framing),
        (TargetForm::Origin, Http1Version::Http11, RequestFraming::None)
    );
    assert!(head.keep_alive && !head.switches && !head.expects_continue);
    assert_eq!(head.fields, 10);
}

#[test]
fn unusual_valid_requests() {
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\nX:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:a\r\nX:  \t \r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\t a \t\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: tab\tinside\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: obs\u{fc}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n!#$%&'*+-.^_`|~: x:y\r\n\r\n",
        "GET /a|b{c}'d'^e[g]?h|i\\{j}`k`^' HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET http://A.example/x HTTP/1.1\r\nHost: a.example:80\r\n\r\n",
        "GET HTTPS://a.example?x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example HTTP/1.0\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "M-SEARCH / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encodings: gzip\r\nContent_Type: x\r\n\r\n",
    ] {
        let story = whole(request.as_bytes());
        assert_eq!((story.end, story.requests.len()), (None, 1), "{request}");
        assert_eq!(story.passed, request.len(), "{request}");
    }
}

#[test]
fn lengths_and_codings() {
    let post = |fields: &str, body: &str| {
        framing(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}").as_bytes())
    };
    assert_eq!(post("Content-Length: 3", "abc"), Some(RequestFraming::Length(3)));
    assert_eq!(post("CONTENT-LENGTH:0", ""), Some(RequestFraming::Length(0)));
    assert_eq!(
        post("content-length: 9223372036854775807", ""),
        Some(RequestFraming::Length(i64::MAX as u64))
    );
    assert_eq!(post("Transfer-Encoding: chunked", "0\r\n\r\n"), Some(RequestFraming::Chunked));
    assert_eq!(post("transfer-encoding:\tChunKED ", "0\r\n\r\n"), Some(RequestFraming::Chunked));
    let body = "5\r\nhello\r\n00A;a;b=c;d=\"e \\\"f\"\r\n0123456789\r\n000;last\r\nX-Sum: 1\r\nY: 2\r\n\r\n";
    assert_eq!(post("Transfer-Encoding: chunked", body), Some(RequestFraming::Chunked));
}

#[test]
fn persistence() {
    for (version, fields, keep_alive) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: x, CLOSE ,y\r\nConnection: keep-alive\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let request = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        let story = whole(format!("{request}{request}").as_bytes());
        assert_eq!(story.requests[0].head.keep_alive, keep_alive, "{request}");
        assert_eq!(story.requests.len(), if keep_alive { 2 } else { 1 });
        assert_eq!(story.end, (!keep_alive).then_some(End::Over));
    }
}

#[test]
fn every_request_of_a_pipeline_is_reported() {
    let stream = b"POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\nhello\
        GET /2 HTTP/1.1\r\nHost: a\r\n\r\n\
        POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: x\r\n\r\n\
        \r\nGET /4 HTTP/1.1\r\nHost: a\r\n\r\n";
    let story = whole(stream);
    assert_eq!(story.end, None);
    let starts = [&b"POST /1"[..], b"GET /2", b"POST /3", b"\r\nGET /4"];
    assert_eq!(story.requests.len(), starts.len());
    for (request, start) in story.requests.iter().zip(starts) {
        assert!(stream[request.start..].starts_with(start));
        assert!(request.end.is_some());
    }
    assert!(story.requests[0].head.expects_continue);
    assert_eq!(story.passed, stream.len());
}

#[test]
fn http2_is_detected_at_the_start_only() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let story = whole(preface);
    assert_eq!((story.end, story.passed), (Some(End::Http2), 0));
    let behind = [&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], preface].concat();
    assert_eq!(super::refusal(&behind), Some(offramp_http::Http1Fault::Version));
}

#[test]
fn nothing_passes_before_the_switch_is_decided() {
    let upgrade =
        b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let behind = b"\x82\x00GET";
    for turned_down in [false, true] {
        let mut guard = Guard::new(HeadLimits::default());
        let inspected = guard.inspect(upgrade);
        assert_eq!(inspected.pass, upgrade.len());
        assert!(matches!(inspected.outcome, GuardOutcome::Head(head) if head.switches));
        assert_eq!(guard.phase(), Phase::Deciding);
        let waits = guard.inspect(behind);
        assert_eq!((waits.pass, waits.outcome), (0, GuardOutcome::Wait));
        if turned_down {
            guard.stayed();
            assert_eq!(guard.phase(), Phase::Idle);
            let next = guard.inspect(upgrade);
            assert_eq!(next.pass, upgrade.len());
        } else {
            guard.switched();
            // Too late: no effect.
            guard.stayed();
            assert_eq!(guard.phase(), Phase::Switched);
            assert_eq!(guard.inspect(behind).pass, behind.len());
        }
    }
}

#[test]
fn the_response_may_precede_the_end_of_the_content() {
    let head =
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\n";
    for (turned_down, phase) in [(true, Phase::Idle), (false, Phase::Switched)] {
        let mut guard = Guard::new(HeadLimits::default());
        assert_eq!(guard.inspect(head).pass, head.len());
        if turned_down {
            guard.stayed();
        } else {
            guard.switched();
        }
        assert_eq!(guard.phase(), Phase::Body);
        let content = guard.inspect(b"ab");
        assert_eq!((content.pass, content.outcome), (2, GuardOutcome::End));
        assert_eq!(guard.phase(), phase);
    }
}

#[test]
fn upgrade_needs_its_option_and_its_version() {
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n",
        "GET / HTTP/1.0\r\nConnection: upgrade, keep-alive\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let story = whole(request.as_bytes());
        assert!(!story.requests[0].head.switches, "{request}");
    }
}

#[test]
fn connect_passes_where_it_is_asked_for() {
    let limits = HeadLimits { connect: true, ..HeadLimits::default() };
    let story = feed(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", limits, []);
    let head = &story.requests[0].head;
    assert!(head.form == TargetForm::Authority && head.switches);
}

#[test]
fn phases_follow_the_bytes() {
    let mut guard = Guard::new(HeadLimits::default());
    assert_eq!(guard.phase(), Phase::Idle);
    // An empty line does not begin a head: old clients send one behind a form.
    for (bytes, phase) in [
        (&b"\r\n"[..], Phase::Idle),
        (b"\r\nG", Phase::Head),
        (b"\r\nGET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", Phase::Body),
        (b"x", Phase::Idle),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", Phase::Over),
    ] {
        let _ = guard.inspect(bytes);
        assert_eq!(guard.phase(), phase, "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn limits_are_exact() {
    let request = b"\r\nGET /abcdef HTTP/1.1\r\nHost: a\r\nB: c\r\n\r\n";
    let exact = HeadLimits { head: request.len() as u32 - 2, target: 7, fields: 2, connect: false };
    assert_eq!(feed(request, exact, []).end, None);
    for tighter in [
        HeadLimits { head: exact.head - 1, ..exact },
        HeadLimits { target: 6, ..exact },
        HeadLimits { fields: 1, ..exact },
    ] {
        assert!(matches!(feed(request, tighter, []).end, Some(End::Refused(_))), "{tighter:?}");
    }
}
