//! Edits against a model, and written heads against another parser.

use proptest::prelude::*;

use super::*;
use crate::h1::{Guard, GuardOutcome, HeadLimits, RequestKind, ResponseReader};

/// Loads a head through the guard.
fn load(text: &[u8]) -> Request {
    let mut guard = Guard::new(HeadLimits::default());
    let inspected = guard.inspect(text);
    let GuardOutcome::Head(head) = inspected.outcome else { panic!("{}", text.escape_ascii()) };
    let mut request = Request::new();
    request.load(&head, &guard, &text[..inspected.pass]).unwrap();
    request
}

fn written(request: &Request) -> String {
    let mut out = Vec::new();
    request.write(KnownSet::default(), &mut out);
    String::from_utf8(out).unwrap()
}

type Lines = Vec<(String, String)>;

fn lines(fields: &Fields) -> Lines {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    fields.iter().map(|(name, value)| (text(name), text(value))).collect()
}

#[test]
fn a_head_is_written_as_received_except_the_case_of_names() {
    let request = load(b"GET /a?b HTTP/1.1\r\nHost: A.test\r\nX-Long-Name_1: Some Value\r\n\r\nmore");
    assert_eq!(written(&request), "GET /a?b HTTP/1.1\r\nhost: A.test\r\nx-long-name_1: Some Value\r\n");
    assert_eq!((request.target(), request.path(), request.query()), ("/a?b", "/a", Some("b")));
    assert_eq!((request.host(), request.authority()), (Some(&b"A.test"[..]), None));
    let sloppy = load(b"\r\nPUT / HTTP/1.1\r\nhost:a\r\nA:  \t1 \r\nB: \r\nc: 2\r\nd:\t\r\ne:\t3\r\n\r\n");
    assert_eq!(written(&sloppy), "PUT / HTTP/1.1\r\nhost: a\r\na: 1\r\nb: \r\nc: 2\r\nd: \r\ne: 3\r\n");
    let old = load(b"HEAD http://A.test:81?x HTTP/1.0\r\nAccept: */*\r\n\r\n");
    assert_eq!((old.authority(), old.target(), old.path()), (Some("A.test:81"), "/?x", "/"));
    assert_eq!(written(&old), "HEAD /?x HTTP/1.1\r\naccept: */*\r\n");
    let whole = load(b"OPTIONS http://a HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!((whole.target(), whole.host()), ("*", Some(&b"a"[..])));
    let path = load(b"GET https://a.test/x?y HTTP/1.1\r\nhost: a.test\r\n\r\n");
    assert_eq!((path.authority(), path.target()), (Some("a.test"), "/x?y"));
}

#[test]
fn a_path_is_normalised_and_forwarded_as_received() {
    let mut request = load(b"GET //%61?b HTTP/1.1\r\nHost: a\r\n\r\n");
    request.normalize();
    assert_eq!((request.path(), request.normal_path()), ("//%61", "/a"));
    assert!(!request.spelling().is_single());
    assert_eq!(written(&request), "GET //%61?b HTTP/1.1\r\nhost: a\r\n");
    // The old normal form is discarded.
    request.set_target(b"/c?d");
    assert_eq!(request.normal_path(), "/c");
    assert!(request.spelling().is_single());
    request.normalize();
    assert_eq!((request.normal_path(), request.asked_path()), ("/c", "/c"));
    request.rewrite_target(b"/e/../f?g");
    assert_eq!((request.target(), request.normal_path(), request.asked_path()), ("/e/../f?g", "/f", "/c"));
    request.rewrite_target(b"/h");
    assert_eq!((request.normal_path(), request.asked_path()), ("/h", "/c"));
}

#[test]
fn a_head_is_reused() {
    let mut request = load(b"POST /a HTTP/1.1\r\nhost: a\r\nupgrade: x\r\n\r\n");
    request.fields.append(b"x-more", b"1");
    let text = b"GET / HTTP/1.1\r\nhost: b\r\n\r\n";
    let mut guard = Guard::new(HeadLimits::default());
    let GuardOutcome::Head(head) = guard.inspect(text).outcome else { panic!() };
    request.load(&head, &guard, text).unwrap();
    assert_eq!(written(&request), "GET / HTTP/1.1\r\nhost: b\r\n");
    assert!(!request.fields.contains(Known::Upgrade) && request.fields.len() == 1);
    guard.rest();
    assert!(guard.fields().is_empty());
}

#[test]
fn long_names_are_refused() {
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\n{}: 1\r\n\r\n", "x".repeat(65_536));
    let mut guard = Guard::new(HeadLimits { head: 1 << 20, ..HeadLimits::default() });
    assert_eq!(guard.inspect(long.as_bytes()).outcome, GuardOutcome::Refused(crate::Http1Fault::Name));
}

#[test]
fn the_host_comes_first_where_there_was_none() {
    let mut request = load(b"GET / HTTP/1.0\r\na: 1\r\n\r\n");
    request.fields.set_host(b"x");
    assert_eq!(written(&request), "GET / HTTP/1.1\r\nhost: x\r\na: 1\r\n");
    request.fields.set_host(b"y");
    assert_eq!(written(&request), "GET / HTTP/1.1\r\nhost: y\r\na: 1\r\n");
}

#[test]
fn requests_of_the_http_crate_are_converted() {
    let other = http::Request::get("https://a.test:1/x?y").header("a", "1").body(()).unwrap();
    let again = Request::from(&other);
    assert_eq!((again.authority(), again.target()), (Some("a.test:1"), "/x?y"));
    assert_eq!(again.fields.get(Known::Host), Some(&b"a.test:1"[..]));
}

/// An edit of the fields.
#[derive(Debug, Clone)]
enum Edit {
    Append(String, String),
    Set(String, String),
    SetHost(String),
    Remove(String),
    Retain(u8),
    Extend(String),
    AppendAll(Lines),
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => "[a-z]{1,3}",
        2 => prop::sample::select(&Known::ALL[..]).prop_map(|known| known.name().to_owned()),
        1 => "x-[a-z_-]{1,20}",
    ]
}

fn value() -> impl Strategy<Value = String> {
    "([!-~]([ -~]{0,30}[!-~])?)?"
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (name(), value()).prop_map(|(name, value)| Edit::Append(name, value)),
        (name(), value()).prop_map(|(name, value)| Edit::Set(name, value)),
        value().prop_map(Edit::SetHost),
        name().prop_map(Edit::Remove),
        any::<u8>().prop_map(Edit::Retain),
        "[!-~]{1,10}".prop_map(Edit::Extend),
        prop::collection::vec((name(), value()), 0..4).prop_map(Edit::AppendAll),
    ]
}

fn apply(edit: &Edit, fields: &mut Fields) {
    match edit {
        Edit::Append(name, value) => fields.append(name.as_bytes(), value.as_bytes()),
        Edit::Set(name, value) => fields.set(name.as_bytes(), value.as_bytes()),
        Edit::SetHost(value) => fields.set_host(value.as_bytes()),
        Edit::Remove(name) => match Known::of(name.as_bytes()) {
            Known::Other => fields.remove_named(name.as_bytes()),
            known => fields.remove(known),
        },
        Edit::Retain(bits) => {
            let mut at = 0;
            fields.retain(|_, _| {
                at += 1;
                bits >> (at % 8) & 1 == 0
            });
        }
        Edit::Extend(value) => fields.extend_list(Known::Via, value.as_bytes()),
        Edit::AppendAll(lines) => {
            fields.append_all(&lines.iter().map(|(name, value)| (name, value)).collect());
        }
    }
}

/// Reference implementation of an edit.
fn model(edit: &Edit, all: &mut Lines) {
    let set = |all: &mut Lines, name: &str, value: &str, front: bool| {
        let line = (name.to_owned(), value.to_owned());
        let place = all.iter().position(|(one, _)| one == name);
        all.retain(|(one, _)| one != name);
        match place {
            Some(place) => all.insert(place, line),
            None if front => all.insert(0, line),
            None => all.push(line),
        }
    };
    match edit {
        Edit::Append(name, value) => all.push((name.clone(), value.clone())),
        Edit::Set(name, value) => set(all, name, value, false),
        Edit::SetHost(value) => set(all, "host", value, true),
        Edit::Remove(name) => all.retain(|(one, _)| one != name),
        Edit::Retain(bits) => {
            let mut at = 0;
            all.retain(|_| {
                at += 1;
                bits >> (at % 8) & 1 == 0
            });
        }
        Edit::Extend(value) => {
            let said = all.iter().filter(|(name, value)| name == "via" && !value.is_empty());
            let mut parts: Vec<_> = said.map(|(_, value)| value.clone()).collect();
            parts.push(value.clone());
            set(all, "via", &parts.join(", "), false);
        }
        Edit::AppendAll(lines) => all.extend(lines.iter().cloned()),
    }
}

proptest! {
    /// After any edits, the fields equal the model, lookups agree, and httparse reads them from the written
    /// head.
    #[test]
    fn edits_agree_with_the_model(
        came in prop::collection::vec((name(), value()), 0..12),
        spaces in prop::collection::vec((0_usize..4, 0_usize..3), 12),
        upper in any::<bool>(),
        edits in prop::collection::vec(edit(), 0..8),
    ) {
        // Fields with special handling: framing and host.
        const RULED: [&str; 3] = ["host", "content-length", "transfer-encoding"];
        let came: Lines = came.into_iter().filter(|(name, _)| !RULED.contains(&name.as_str())).collect();
        let mut text = "GET /x HTTP/1.1\r\nHost: a\r\n".to_owned();
        for ((name, value), (before, behind)) in came.iter().zip(&spaces) {
            let name = if upper { name.to_uppercase() } else { name.clone() };
            // The first of three is a TAB alone.
            let before = if *before == 3 { "\t" } else { &"  "[..*before] };
            text += &format!("{name}:{before}{value}{}\r\n", "\t".repeat(*behind));
        }
        text += "\r\n";
        let mut guard = Guard::new(HeadLimits::default());
        // The guard may reject an option of Connection.
        let GuardOutcome::Head(head) = guard.inspect(text.as_bytes()).outcome else { return Ok(()) };
        let mut request = Request::new();
        request.load(&head, &guard, text.as_bytes()).unwrap();
        let mut expected = vec![("host".to_owned(), "a".to_owned())];
        expected.extend(came);
        prop_assert_eq!(lines(&request.fields), expected.clone());
        for edit in &edits {
            apply(edit, &mut request.fields);
            model(edit, &mut expected);
            prop_assert_eq!(lines(&request.fields), expected.clone());
        }
        for known in Known::ALL {
            let all: Vec<_> = request.fields.all(known).map(<[u8]>::to_vec).collect();
            let same = expected.iter().filter(|(name, _)| name == known.name());
            prop_assert_eq!(all, same.map(|(_, value)| value.clone().into_bytes()).collect::<Vec<_>>());
            prop_assert!(!request.fields.contains(known) || request.fields.may_have(KnownSet::of(&[known])));
        }
        let head = written(&request) + "\r\n";
        let mut parsed = [httparse::EMPTY_HEADER; 64];
        let mut oracle = httparse::Request::new(&mut parsed);
        prop_assert!(oracle.parse(head.as_bytes()).unwrap().is_complete());
        prop_assert_eq!((oracle.method, oracle.path), (Some("GET"), Some("/x")));
        let read = |field: &httparse::Header<'_>| {
            (field.name.to_owned(), String::from_utf8(field.value.to_vec()).unwrap())
        };
        prop_assert_eq!(oracle.headers.iter().map(read).collect::<Vec<_>>(), expected.clone());
        let mut less = Vec::new();
        request.fields.write(KnownSet::of(&[Known::Host, Known::Via]), &mut less);
        let kept = expected.iter().filter(|(name, _)| name != "host" && name != "via");
        let kept: String = kept.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        prop_assert_eq!(String::from_utf8(less).unwrap(), kept);
    }

    #[test]
    fn letters_become_lower_case(text in prop::collection::vec(any::<u8>(), 0..40)) {
        let (mut ours, mut theirs) = (text.clone(), text);
        lower(&mut ours);
        theirs.make_ascii_lowercase();
        prop_assert_eq!(ours, theirs);
    }
}

#[test]
fn trailers_are_loaded() {
    let fields = Fields::of_section(b"X-Sum: 1\r\netag:2\r\nVia: \t a \r\nno field\r\n");
    let wanted =
        [("x-sum", "1"), ("etag", "2"), ("via", "a")].map(|(name, value)| (name.into(), value.into()));
    assert_eq!(lines(&fields), wanted);
    assert_eq!(fields.get(Known::Via), Some(&b"a"[..]));
    let long = format!("{}: 1\r\nb: 2\r\n", "x".repeat(65_536));
    assert_eq!(Fields::of_section(long.as_bytes()).len(), 1);
    assert!(Fields::of_section(b"").is_empty());
}

/// Loads the head of a server's response.
fn response(text: &[u8]) -> Response {
    let mut reader = ResponseReader::default();
    let head = reader.read(text, &HeadLimits::default(), RequestKind::Other).unwrap().unwrap();
    Response::load(&head, &reader, &text[..head.length]).unwrap()
}

#[test]
fn responses_of_any_form_are_loaded() {
    let plain = response(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello");
    assert_eq!((plain.status.as_u16(), plain.reason(), plain.fields.len()), (200, None, 2));
    assert_eq!(lines(&plain.fields)[1], ("x-a".to_owned(), "b".to_owned()));
    let sloppy = response(b"\nHTTP/1.0 299 Odd\nA:1\nContent-Length: 05\ncontent-length: 5\nB: 2\n\nhello");
    assert_eq!((sloppy.version, sloppy.reason()), (http::Version::HTTP_10, Some(&b"Odd"[..])));
    let mut out = Vec::new();
    sloppy.fields.write(KnownSet::default(), &mut out);
    assert_eq!(out, b"a: 1\r\ncontent-length: 5\r\nb: 2\r\n");
    let mut changed = sloppy.map(|()| "body");
    changed.set_status(http::StatusCode::OK);
    assert_eq!((changed.status().as_u16(), changed.reason()), (200, None));
    assert_eq!(changed.into_body(), "body");
}

#[test]
fn responses_of_the_http_crate_are_converted() {
    let other = http::Response::builder().status(404).header("x-a", "1").header("x-a", "2").body(7).unwrap();
    let made = Response::from(other);
    assert_eq!((made.status.as_u16(), made.body), (404, 7));
    assert_eq!(made.fields.named(b"x-a").collect::<Vec<_>>(), [b"1", b"2"]);
}
