use super::super::{FormatError, InputFormat, NAMES};
use super::parser;
use crate::entry::{LogEntry, ProxyPart, RequestPart, ResponsePart};
use crate::parse_error::Rejection;

const TIME: i64 = 1_795_309_323_000_000;

fn expected() -> LogEntry<'static> {
    LogEntry {
        time_us: TIME,
        host: None,
        client: "192.0.2.1".parse().ok(),
        request: RequestPart {
            method: Some(b"GET"),
            path: b"/a/b",
            query: Some(b"q=1"),
            protocol: Some(b"HTTP/1.1"),
        },
        response: ResponsePart { status: 200, bytes: 512, received: None, duration_us: None },
        referer: Some(b"https://ref.test/"),
        agent: Some(b"curl/8"),
        ..LogEntry::default()
    }
}

#[test]
fn vhost_combined_and_common_say_the_same() {
    let line = br#"192.0.2.1 - - [22/Nov/2026:01:02:03 +0000] "GET /a/b?q=1 HTTP/1.1" 200 512 "https://ref.test/" "curl/8" "A.test:443""#;
    let vhost = InputFormat::named("vhost").unwrap();
    let entry = LogEntry { host: Some(b"a.test"), ..expected() };
    assert_eq!(parser(&vhost).parse(line), Ok(Some(entry)));

    let combined = InputFormat::named("combined").unwrap();
    let end = line.len() - br#" "A.test:443""#.len();
    assert_eq!(parser(&combined).parse(&line[..end]), Ok(Some(expected())));
    let error = parser(&combined).parse(line).unwrap_err();
    assert!(error.to_string().contains("the end of the line"), "{error}");

    let common = InputFormat::named("common").unwrap();
    let end = line.windows(4).position(|window| window == b" \"ht").unwrap();
    let entry = LogEntry { referer: None, agent: None, ..expected() };
    assert_eq!(parser(&common).parse(&line[..end]), Ok(Some(entry)));
}

#[test]
fn a_user_may_have_spaces_and_a_client_a_zone() {
    let mut combined = parser(&InputFormat::named("combined").unwrap());
    let line = br#"[fe80::1%eth0] id a user of spaces [22/Nov/2026:01:02:03 +0000] "-" 400 0 "-" "-""#;
    let entry = combined.parse(line).unwrap().unwrap();
    assert_eq!((entry.user, entry.client), (Some(&b"a user of spaces"[..]), "fe80::1".parse().ok()));
    assert_eq!((entry.request, entry.response.status), (RequestPart::default(), 400));
    let line = br#"unix: - - [22/Nov/2026:01:02:03 +0000] "GET / HTTP/2.0" 200 - "-" "-""#;
    let entry = combined.parse(line).unwrap().unwrap();
    assert_eq!((entry.client, entry.response.bytes, entry.request.query), (None, 0, None));
}

#[test]
fn escapes_are_undone_after_the_parts_are_known() {
    let mut vhost = parser(&InputFormat::named("vhost").unwrap());
    let line = br#"192.0.2.1 - b\x22b [22/Nov/2026:01:02:03 +0000] "GET /\xC3\xA9\x22?x=\x5C HTTP/1.1" 200 5 "r\x22" "a \x22quoted\x22 agent\x5C" "A.Test""#;
    let entry = vhost.parse(line).unwrap().unwrap();
    assert_eq!(entry.request.path, "/é\"".as_bytes());
    assert_eq!(entry.request.query, Some(&b"x=\\"[..]));
    assert_eq!(entry.agent, Some(&b"a \"quoted\" agent\\"[..]));
    assert_eq!((entry.user, entry.referer), (Some(&b"b\"b"[..]), Some(&b"r\""[..])));
    assert_eq!(entry.host, Some(&b"a.test"[..]));
    // Apache's way, with an escaped quote before the real one.
    let line =
        br#"192.0.2.1 - - [22/Nov/2026:01:02:03 +0000] "GET / HTTP/1.1" 200 5 "-" "say \"hi\" \\" "a.test""#;
    assert_eq!(vhost.parse(line).unwrap().unwrap().agent, Some(&br#"say "hi" \"#[..]));
    let line = br#"192.0.2.1 - - [22/Nov/2026:01:02:03 +0000] "\x16\x03\x01" 400 150 "-" "-" "-""#;
    assert_eq!(
        vhost.parse(line).unwrap().unwrap().request,
        RequestPart { path: b"\x16\x03\x01", ..Default::default() }
    );
}

#[test]
fn every_fault_has_its_place() {
    let mut combined = parser(&InputFormat::named("combined").unwrap());
    for (line, at, word) in [
        (
            &br#"300.0.2.1 - - [22/Nov/2026:01:02:03 +0000] "GET / HTTP/1.1" 200 5 "-" "-""#[..],
            0,
            "IP address",
        ),
        (br#"192.0.2.1 - - [30/Feb/2026:01:02:03 +0000] "GET / HTTP/1.1" 200 5 "-" "-""#, 15, "day"),
        (br#"192.0.2.1 - - [22/Nov/2026:25:02:03 +0000] "GET / HTTP/1.1" 200 5 "-" "-""#, 27, "hour"),
        (br#"192.0.2.1 - - [22/Nov/2026:01:02:03 +0000] "GET / HTTP/1.1" abc 5 "-" "-""#, 60, "status"),
        (br#"192.0.2.1 - - [22/Nov/2026:01:02:03 +0000] "GET / HTTP/1.1" 200 5x "-" "-""#, 65, "bytes"),
        (
            br#"192.0.2.1 - - [22/Nov/2026:01:02:03 +0000] "GET / HTTP/1.1" 200 5 "-" "-"#,
            71,
            "http_user_agent",
        ),
        (
            br#"192.0.2.1 - - [22/Nov/2026:01:02:03 +0000] "GET / HTTP/1.1" 200 5 "-" "-" x"#,
            73,
            "end of the line",
        ),
        (b"\x00\xff\xfe garbage \x1b[2J", 0, "IP address"),
        (b"", 0, "$remote_addr"),
    ] {
        let error = combined.parse(line).unwrap_err();
        assert_eq!(error.at, at, "{} {error}", line.escape_ascii());
        assert!(error.expected.contains(word), "{} {error}", line.escape_ascii());
    }
}

#[test]
fn nginx_formats_of_any_shape() {
    let directive = r#"log_format timed escape=json
        '$remote_addr [$time_iso8601] $scheme://$host$request_uri '
        '"$request_method $server_protocol" $status $bytes_sent $request_length '
        'rt=$request_time urt="$upstream_response_time" $ssl_protocol/$ssl_cipher $request_id "$http_x_forwarded_for"';"#;
    let line = br#"10.0.0.1 [2026-11-22T02:02:03+01:00] https://a.test/x?y=1 "POST HTTP/2.0" 201 700 120 rt=0.250 urt="0.1, 0.2" TLSv1.3/TLS_AES_128_GCM_SHA256 abc "203.0.113.5, 10.0.0.7""#;
    let entry = InputFormat::nginx(directive).unwrap().parser(0);
    let mut entry = entry;
    let entry = entry.parse(line).unwrap().unwrap();
    assert_eq!((entry.time_us, entry.client), (TIME, "203.0.113.5".parse().ok()));
    assert_eq!(
        (entry.host, entry.request.path, entry.request.query),
        (Some(&b"a.test"[..]), &b"/x"[..], Some(&b"y=1"[..]))
    );
    assert_eq!((entry.request.method, entry.request.protocol), (Some(&b"POST"[..]), Some(&b"HTTP/2.0"[..])));
    let response = ResponsePart { status: 201, bytes: 700, received: Some(120), duration_us: Some(250_000) };
    assert_eq!(entry.response, response);
    assert_eq!((entry.proxy.tls, entry.proxy.id), (Some(&b"TLSv1.3"[..]), Some(&b"abc"[..])));
}

#[test]
fn upstream_times_count_where_no_other_does() {
    let format =
        InputFormat::nginx("$msec $upstream_response_time $uri$is_args$args ${http_host} $server_name")
            .unwrap();
    let mut parser = parser(&format);
    let entry = parser.parse(b"1795309323.000 0.100, 0.200 : 0.050 /p?a=b - name.test").unwrap().unwrap();
    assert_eq!((entry.time_us, entry.response.duration_us), (TIME, Some(350_000)));
    assert_eq!((entry.request.path, entry.request.query), (&b"/p"[..], Some(&b"a=b"[..])));
    assert_eq!(entry.host, Some(&b"name.test"[..]));
    let entry = parser.parse(b"1795309323.000 - /p h.test:8080 name.test").unwrap().unwrap();
    assert_eq!((entry.host, entry.response.duration_us), (Some(&b"h.test"[..]), None));
}

#[test]
fn an_nginx_format_may_be_json_and_escape_none() {
    let format = r#"{"t":"$time_iso8601","ua":"$http_user_agent","s":$status}"#;
    let mut parsed = parser(&InputFormat::nginx(format).unwrap());
    let entry = parsed.parse(br#"{"t":"2026-11-22T01:02:03Z","ua":"a \"b\" \u00e9","s":404}"#);
    assert_eq!(entry.unwrap().unwrap().agent, Some("a \"b\" é".as_bytes()));
    let none = InputFormat::nginx(r#"log_format x escape=none '$msec "$http_user_agent"';"#).unwrap();
    assert_eq!(parser(&none).parse(br#"1 "a"b\x22\""#).unwrap().unwrap().agent, Some(&br#"a"b\x22\"#[..]));
}

/// Names and text between variables are the operator's, and may come from a file that was not looked at.
#[test]
fn control_characters_of_a_format_are_told_in_escapes() {
    for format in
        ["$msec ${a\x1b[31m}\x07b", "$msec ${a\u{9b}}\x07 $uri", "$msec \x1b[2J$status", "$msec $status\x07"]
    {
        let format = InputFormat::nginx(format).unwrap();
        let error = parser(&format).parse(b"1795309323.000 ?").unwrap_err();
        let text = Rejection::new(1, b"1795309323.000 ?", error).to_string();
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }
}

#[test]
fn formats_that_cannot_work_are_refused() {
    let adjacent = FormatError::Adjacent("$host".to_owned(), "$status".to_owned());
    for (format, error) in [
        ("$time_local $host$status", adjacent),
        ("$remote_addr $status", FormatError::NoTime),
        ("$time_local $ $status", FormatError::Variable),
        ("$time_local ${status", FormatError::Variable),
        ("log_format", FormatError::Directive),
        ("log_format x '$time_local", FormatError::Directive),
        ("log_format x escape=odd '$time_local'", FormatError::Directive),
    ] {
        assert_eq!(InputFormat::nginx(format).map(|_| ()), Err(error), "{format}");
    }
    assert!(matches!("apache".parse::<InputFormat>(), Err(FormatError::Name(_))));
    assert!(matches!("(?P<colour>x)".parse::<InputFormat>(), Err(FormatError::Group(_))));
    assert!(matches!("(?P<time>x".parse::<InputFormat>(), Err(FormatError::Pattern(_))));
    assert!(matches!("(?P<host>x)".parse::<InputFormat>(), Err(FormatError::NoTime)));
    assert!(NAMES.iter().all(|name| InputFormat::named(name).is_ok()));
}

#[test]
fn haproxy_with_and_without_syslog() {
    let bare = br#"10.0.1.2:33317 [22/Nov/2026:01:02:03.655] http-in~ static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {curl/8|1wt.eu:443} {} "GET /index.html?x HTTP/1.1""#;
    let mut parser = InputFormat::named("haproxy").unwrap().parser(0);
    for prefix in
        ["", "Feb  6 12:14:14 localhost haproxy[14389]: ", "<134>1 2026-11-22T01:02:03Z lb haproxy 1 - - "]
    {
        let line = [prefix.as_bytes(), bare].concat();
        let entry = parser.parse(&line).unwrap().unwrap();
        assert_eq!((entry.time_us, entry.client), (TIME + 655_000, "10.0.1.2".parse().ok()));
        assert_eq!((entry.host, entry.request.path), (Some(&b"1wt.eu"[..]), &b"/index.html"[..]));
        assert_eq!((entry.response.status, entry.response.bytes), (200, 2750));
        assert_eq!(entry.response.duration_us, Some(109_000));
        assert_eq!((entry.proxy.route, entry.proxy.server), (Some(&b"static"[..]), Some(&b"srv1"[..])));
        assert_eq!(entry.proxy.cause, None);
    }
}

#[test]
fn haproxy_when_it_went_wrong() {
    let mut parser = InputFormat::named("haproxy").unwrap().parser(3_600);
    let line = br#"::1:4711 [22/Nov/2026:02:02:03.000] in in/<NOSRV> -1/-1/-1/-1/+5 -1 +212 - - CR-- 1/1/0/0/3 0/0 "<BADREQ#22>""#;
    let entry = parser.parse(line).unwrap().unwrap();
    assert_eq!((entry.time_us, entry.client), (TIME, "::1".parse().ok()));
    assert_eq!(
        (entry.response.status, entry.response.bytes, entry.response.duration_us),
        (0, 212, Some(5_000))
    );
    assert_eq!((entry.proxy.server, entry.proxy.cause), (None, Some(&b"CR--"[..])));
    assert_eq!(entry.request, RequestPart { path: b"<BADREQ\">", ..Default::default() });
    // HTTP/2 is logged in absolute form; syslog cut the line.
    let line = br#"unix:1 [22/Nov/2026:02:02:03.000] in b/s 0/0/0/1/-1 200 212 - - sH-- 1/1/0/0/0 0/0 "GET https://h2.test/long"#;
    let entry = parser.parse(line).unwrap().unwrap();
    assert_eq!((entry.host, entry.request.path), (Some(&b"h2.test"[..]), &b"/long"[..]));
    assert_eq!((entry.client, entry.response.duration_us), (None, None));
    for (line, at) in [
        (&b"10.0.0.1:1 nothing"[..], 18),
        (b"10.0.0.1:1 [31/Feb/2026:02:02:03.000] in b/s 0/0/0/1/2 200 212 - - ---- 1 0 \"GET /\"", 12),
        (b"10.0.0.1:1 [22/Nov/2026:02:02:03.000] in b/s 0/0/0/1 200 212 - - ---- 1 0 \"GET /\"", 45),
        (b"10.0.0.1:1 [22/Nov/2026:02:02:03.000] in b/s 0/0/0/1/2 200 212 - - ---- 1 0 GET /", 76),
    ] {
        assert_eq!(parser.parse(line).unwrap_err().at, at, "{}", line.escape_ascii());
    }
}

#[test]
fn caddy_as_it_writes() {
    let line = br#"{"level":"info","ts":1795309323.25,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"10.0.0.9","remote_port":"5000","client_ip":"192.0.2.1","proto":"HTTP/2.0","method":"GET","host":"Example.com:8443","uri":"/a?b=\u0026c","headers":{"User-Agent":["curl/8 \"x\""],"Accept":["*/*","x"],"Referer":["https://r.test/"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"example.com"}},"bytes_read":7,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"],"Content-Type":["text/html"]}}"#;
    let mut parser = InputFormat::named("caddy").unwrap().parser(0);
    let entry = parser.parse(line).unwrap().unwrap();
    let expected = LogEntry {
        time_us: TIME + 250_000,
        host: Some(b"example.com"),
        client: "192.0.2.1".parse().ok(),
        request: RequestPart {
            method: Some(b"GET"),
            path: b"/a",
            query: Some(b"b=&c"),
            protocol: Some(b"HTTP/2.0"),
        },
        response: ResponsePart { status: 200, bytes: 10_900, received: Some(7), duration_us: Some(929) },
        referer: Some(b"https://r.test/"),
        agent: Some(b"curl/8 \"x\""),
        proxy: ProxyPart { tls: Some(b"TLSv1.3"), ..Default::default() },
        ..LogEntry::default()
    };
    assert_eq!(entry, expected);
    let other = br#"{"level":"error","ts":1795309323.2,"logger":"http.log.error","msg":"x","request":{"uri":"/"},"status":502}"#;
    assert_eq!(parser.parse(other), Ok(None));
}

#[test]
fn json_of_our_own_and_of_others() {
    let mut parser = InputFormat::named("json").unwrap().parser(0);
    let line = br#"{"time":"2026-11-22T01:02:03.000000Z","event":"request","id":"01","client":"::ffff:192.0.2.1","client_port":5,"tls_version":"TLSv1.3","route":"r","server":"s","method":"GET","host":"a.test","path":"/x","query":"y","status":200,"bytes_from_client":1,"bytes_to_client":2,"total_us":33,"cause":"done","fault":"nobody"}"#;
    let entry = parser.parse(line).unwrap().unwrap();
    assert_eq!((entry.time_us, entry.client), (TIME, "192.0.2.1".parse().ok()));
    assert_eq!((entry.request.path, entry.request.query), (&b"/x"[..], Some(&b"y"[..])));
    let response = ResponsePart { status: 200, bytes: 2, received: Some(1), duration_us: Some(33) };
    assert_eq!((entry.response, entry.proxy.cause), (response, None));
    for other in [
        &br#"{"time":"2026-11-22T01:02:03Z","event":"connection","client":"192.0.2.1","cause":"handshake_failed"}"#[..],
        br#"{"time":"2026-11-22T01:02:03Z","level":"info","message":"started"}"#,
    ] {
        assert_eq!(parser.parse(other), Ok(None));
    }
    let traefik = br#"{"ClientHost":"192.0.2.1","DownstreamContentSize":5,"DownstreamStatus":404,"Duration":1234567,"RequestHost":"t.test","RequestMethod":"GET","RequestPath":"/t","StartUTC":"2026-11-22T01:02:03.5Z","time":"2026-11-22T01:02:03Z","nested":{"deep":[1,[2,{"status":"x"}],{}],"e":{}},"f":-1.5e3,"n":null,"b":true}"#;
    let entry = parser.parse(traefik).unwrap().unwrap();
    assert_eq!((entry.response.status, entry.response.duration_us), (404, Some(1_234)));
}

#[test]
fn json_that_is_none() {
    let mut parser = InputFormat::named("json").unwrap().parser(0);
    let deep = [b"{\"a\":".repeat(40), b"1".to_vec(), b"}".repeat(40)].concat();
    for (line, at) in [
        (&b""[..], 0),
        (b"x", 0),
        (b"{", 1),
        (br#"{"a""#, 4),
        (br#"{"a":}"#, 5),
        (br#"{"a":1"#, 6),
        (br#"{"a":1}x"#, 7),
        (br#"{"a":"b\"#, 8),
        (br#"{"a":[1,]}"#, 8),
        (br#"{"a":nul}"#, 5),
        (br#"{"ts":"never"}"#, 7),
        (br#"{"status":200,"path":"/"}"#, 25),
        (&deep, 33 * 5 - 4),
    ] {
        assert_eq!(parser.parse(line).unwrap_err().at, at, "{}", line.escape_ascii());
    }
}

#[test]
fn regular_expressions_with_named_groups() {
    let pattern = r#"^(?P<client>\S+) \S+ \S+ \[(?P<time>[^\]]+)\] "(?P<request>[^"]*)" (?P<status>\d+) (?P<bytes>\S+)(?: "(?P<referer>[^"]*)" "(?P<agent>[^"]*)")?$"#;
    let format: InputFormat = pattern.parse().unwrap();
    let line = br#"192.0.2.1 - - [22/Nov/2026:01:02:03 +0000] "GET /a/b?q=1 HTTP/1.1" 200 512 "https://ref.test/" "curl/8""#;
    let mut parser = parser(&format);
    assert_eq!(parser.parse(line), Ok(Some(expected())));
    let short = &line[..line.len() - br#" "https://ref.test/" "curl/8""#.len()];
    assert_eq!(parser.parse(short), Ok(Some(LogEntry { referer: None, agent: None, ..expected() })));
    assert_eq!(parser.parse(b"\xff\xfe").unwrap_err().at, 0);
}

#[test]
fn the_text_of_traefik_is_named() {
    let line = br#"192.0.2.1 - - [22/Nov/2026:01:02:03 +0000] "GET /t HTTP/1.1" 200 5 "-" "curl/8" 1 "web@docker" "http://10.0.0.2:80" 12ms"#;
    for format in ["combined", "common", "vhost", "main", "vhost_combined", "traefik", "json", "haproxy"] {
        let refused = InputFormat::named(format).unwrap().parser(0).parse(line).unwrap_err().to_string();
        assert!(
            refused.contains("format: json") && refused.contains("--format traefik"),
            "{format}: {refused}"
        );
    }
    let other = br#"192.0.2.1 - - [22/Nov/2026:01:02:03 +0000] "GET /t HTTP/1.1" 200 5 "-" "curl/8" 12ms"#;
    let refused = InputFormat::named("combined").unwrap().parser(0).parse(other).unwrap_err().to_string();
    assert!(!refused.contains("Traefik"), "{refused}");
}
