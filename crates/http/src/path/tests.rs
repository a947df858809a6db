use proptest::prelude::*;

use super::*;

fn normal(path: &str) -> String {
    normalize(path).text.into_owned()
}

#[test]
fn a_path_has_one_normal_form() {
    for (path, expected) in [
        ("/", "/"),
        ("*", "*"),
        ("", ""),
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b/"),
        ("/%61dmin", "/admin"),
        ("/privat%65/s.txt", "/private/s.txt"),
        ("//admin", "/admin"),
        ("/a//b///c", "/a/b/c"),
        ("/a//", "/a/"),
        ("//", "/"),
        ("/./admin", "/admin"),
        ("/x/../admin", "/admin"),
        ("/x/%2e%2E/admin", "/admin"),
        ("/x/.%2e/admin", "/admin"),
        ("/%2e/admin/.", "/admin/"),
        ("/admin/..", "/"),
        ("/a/b/..", "/a/"),
        ("/a//../b", "/b"),
        ("/../etc", "/etc"),
        ("/...", "/..."),
        ("/.well-known/x", "/.well-known/x"),
        ("/a/.b/..c", "/a/.b/..c"),
        ("/admin;a=b/x", "/admin;a=b/x"),
        ("/admin%3ba=b", "/admin;a=b"),
        ("/..;/admin", "/..;/admin"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/a%20b", "/a%20b"),
        ("/%40me/a%2bb", "/@me/a+b"),
        ("/{x}|[y]^", "/%7Bx%7D%7C%5By%5D%5E"),
        ("/100%25", "/100%25"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%5cb", "/a%5Cb"),
        ("/a\\b", "/a%5Cb"),
        ("/%", "/%25"),
        ("/%zz", "/%25zz"),
        ("/%ff", "/%FF"),
        ("/%3f%23", "/%3F%23"),
    ] {
        assert_eq!(normal(path), expected, "{path}");
        assert_eq!(normal(expected), expected, "{path}");
    }
    for plain in ["/", "/a/b", "/a/b/", "*", "", "/a.b/c-d_e~f", "/a:b@c+d,e=f!$&'()*"] {
        let normal = normalize(plain);
        assert!(normal.spelling.is_single() && matches!(normal.text, Cow::Borrowed(_)), "{plain}");
    }
    for borrowed in ["/caf%C3%A9", "/.well-known/x", "/a;b=c", "/a%20b"] {
        assert!(matches!(normalize(borrowed).text, Cow::Borrowed(_)), "{borrowed}");
    }
}

#[test]
fn ambiguous_paths_have_a_reason() {
    use Ambiguity::{AboveRoot, Backslash, BadEscape, Control, DoubleEscape, EscapedSlash, NotUtf8};
    for (path, reason) in [
        ("/a%2fb", Some(EscapedSlash)),
        ("/a/%2F", Some(EscapedSlash)),
        ("/a%5Cb", Some(Backslash)),
        ("/a\\b", Some(Backslash)),
        ("/%2561dmin", Some(DoubleEscape)),
        ("/%25%36%31dmin", Some(DoubleEscape)),
        ("/%25252e", Some(DoubleEscape)),
        ("/a%00", Some(Control)),
        ("/a%0d%0ab", Some(Control)),
        ("/a%7f", Some(Control)),
        ("/..", Some(AboveRoot)),
        ("/a/../../b", Some(AboveRoot)),
        ("/%2e%2e/b", Some(AboveRoot)),
        ("/%", Some(BadEscape)),
        ("/%4", Some(BadEscape)),
        ("/%u0061dmin", Some(BadEscape)),
        ("/%zz", Some(BadEscape)),
        ("/%ff", Some(NotUtf8)),
        ("/%c0%ae%c0%ae/x", Some(NotUtf8)),
        ("/%e0%80%af", Some(NotUtf8)),
        ("/%c3a%a9", Some(NotUtf8)),
        ("/%c3/%a9", Some(NotUtf8)),
        // The gravest reason counts, in any order.
        ("/%2541/%2f", Some(EscapedSlash)),
        ("/%2541/%zz", Some(BadEscape)),
        ("/%2f/%5c", Some(Backslash)),
        ("/%2f/../../a", Some(AboveRoot)),
        ("/%2f%5c%ff/../../%00", Some(Control)),
        ("/100%25", None),
        ("/100%25%20off", None),
        ("/caf%c3%a9%20%e2%82%ac", None),
        ("/a/../b", None),
        ("//a", None),
        ("/a;b/c", None),
        ("*", None),
    ] {
        assert_eq!(normalize(path).spelling.ambiguity(), reason, "{path}");
    }
}

/// All readings of a path except the normal form.
fn readings(path: &str) -> Vec<String> {
    let normal = normalize(path);
    let mut all = Vec::new();
    let other = other_reading(path, normal.spelling, usize::MAX, 0, |text| {
        if text != normal.text {
            all.push(text.to_owned());
        }
        false
    });
    assert_eq!(other, Ok(None), "{path}");
    all.sort();
    all.dedup();
    all
}

#[test]
fn servers_may_read_a_path_otherwise() {
    for (path, expected) in [
        ("/a/b", &[][..]),
        ("/caf%c3%a9", &[]),
        ("/%61dmin", &["/%61dmin"]),
        ("//admin", &["/", "//admin"]),
        ("//a/b", &["//a/b", "/b"]),
        ("///x/private", &["///x/private", "/private"]),
        ("////x/private/s", &["////x/private/s", "//x/private/s", "/private/s"]),
        ("///x:1/private", &["///x:1/private", "/private"]),
        ("/;//y/private", &["///y/private", "/;//y/private", "/private", "/y/private"]),
        ("/admin%3Fx", &["/admin"]),
        ("/admin%23x%3f", &["/admin"]),
        ("/x/../admin", &["/x/../admin"]),
        ("/a//../b", &["/a/../b", "/a//../b", "/a/b"]),
        ("/admin;a=b/x", &["/admin/x"]),
        ("/admin%3Ba/x", &["/admin%3Ba/x", "/admin/x"]),
        ("/a%3Bb;c", &["/a", "/a%3Bb", "/a%3Bb;c", "/a;b"]),
        ("/x/..;/admin", &["/admin", "/x/../admin"]),
        ("/;/admin", &["/", "//admin", "/admin"]),
        (
            "//x/%61%3fy/..",
            &[
                "/",
                "/%61",
                "/%61%3Fy/..",
                "//x/",
                "//x/%61",
                "//x/%61%3Fy/..",
                "//x/a",
                "//x/a%3Fy/..",
                "/a",
                "/a%3Fy/..",
                "/x/%61",
                "/x/%61%3Fy/..",
                "/x/a",
                "/x/a%3Fy/..",
            ],
        ),
    ] {
        assert_eq!(readings(path), expected, "{path}");
    }
}

#[test]
fn mixed_dot_segments_are_detected() {
    for (path, mixed) in [
        ("/a/../b", false),
        ("/a/./b/", false),
        ("/a//b;c/%61", false),
        ("/a%20b/../c", false),
        ("/docs///../secret", true),
        ("/docs/a/%2e%2e/../secret", true),
        ("/docs/%2e%2e/secret", true),
        ("/docs/.%2e/secret", true),
        ("/docs/..;/secret", true),
        ("/docs/%2e%2e%3b/secret", true),
        ("/docs/a;b/../secret", true),
        ("/docs/%61/../secret", true),
        ("/docs/a%3f/../secret", true),
        ("/docs//..%3f/x", true),
        ("/docs/.%23x", true),
        ("/.//y", true),
        ("/;//./y", true),
    ] {
        assert_eq!(normalize(path).spelling.has_mixed_dots(), mixed, "{path}");
    }
}

#[test]
fn lookups_count_by_their_cost() {
    let read = |path: &str, cost| {
        let mut looks = 0;
        let other = other_reading(path, normalize(path).spelling, 64, cost, |_| {
            looks += 1;
            false
        });
        (looks, other)
    };
    let odd = "//x/%61;b/%3bc//%3f/";
    let (all, other) = read(odd, 1);
    assert!(all > 20 && other == Ok(None), "{all} {other:?}");
    let (looks, other) = read(odd, 10_000);
    assert!(looks <= 4, "{looks}");
    assert_eq!(other, Err(Ambiguity::TooLong));
    // Ordinary paths do not exceed the bound, however many routes there are.
    assert_eq!(read("/app;jsessionid=A", 8000).1, Ok(None));
}

/// A path of length `length`, filled between two ends.
fn filled(start: &str, filling: &str, end: &str, length: usize) -> String {
    let times = (length - start.len() - end.len()) / filling.len();
    [start, &filling.repeat(times), end].concat()
}

/// Number of characters written for a path, and the result.
fn effort(path: &str, reach: usize) -> (usize, Result<Option<String>, Ambiguity>) {
    let mut written = 0;
    let other = other_reading(path, normalize(path).spelling, reach, 0, |text| {
        written += text.len();
        false
    });
    (written, other)
}

#[test]
fn readings_of_long_paths_are_bounded() {
    let odd = "//x/%61;b/%3bc//./%3f/";
    for (filling, end) in [
        ("%61;b/%3bc//./%3f/", "/x/../%2e/"),
        ("aGVsbG8", "/x/../%2e/"),
        ("a/", "/x/../%2e/"),
        ("/", "/.."),
        ("%c3%a9", "/.."),
        ("../", "x"),
    ] {
        let path = filled(odd, filling, end, 8192);
        let (written, other) = effort(&path, 6);
        // At most three characters are written per character examined; the first reading is written in any
        // case.
        assert!(written <= 3 * 32 * 1024, "{filling}: {written}");
        assert_eq!(other, Err(Ambiguity::TooLong), "{filling}");
        assert_eq!(effort(&filled(odd, filling, end, 80), 6).1, Ok(None), "{filling}");
    }
}

#[test]
fn ordinary_paths_are_not_too_long() {
    for (start, filling, end) in [
        ("/g/", "aGVsbG8", ""),
        ("/g/%20", "aGVsbG8", "%3D%3D"),
        ("/g/", "aGVs%2BbG8%3D", "%7E;v=1"),
        ("/g/", "caf%c3%a9/", "//x"),
        ("/g/", "a;b=c/", "%21%3b%40"),
        ("/g/x//", "%40a/", "x%3fy%23z;a"),
        ("//g/", "%28x%29/", "%3f"),
    ] {
        let (written, other) = effort(&filled(start, filling, end, 60_000), 6);
        assert_eq!(other, Ok(None), "{filling}");
        assert!(written <= 144 * 16, "{filling}: {written}");
    }
    for (start, filling, end) in [("/g/", "aGVsbG8", "/../x"), ("/g/", "some/where/", "../x")] {
        assert_eq!(effort(&filled(start, filling, end, 8192), 6).1, Ok(None), "{filling}");
    }
}

#[test]
fn the_loosest_reading_decodes_everything() {
    for (path, expected) in [
        ("/g/a%2fb", Some("/g/a/b")),
        ("/g/a%252fb%5cc", Some("/g/a/b/c")),
        ("/g/a;x%2fb", None),
        ("/g/caf%e9", Some("/g/caf%E9")),
        ("/g/100%/x", Some("/g/100%25/x")),
        ("/g/..%2fadmin", None),
        ("/g/%252e%252e%252fadmin", None),
        ("/g/..;%2fadmin", None),
        ("/g/%c0%ae%c0%ae/x", None),
        ("/g/%u002e/x", None),
        ("/g/%25u002e/x", None),
        ("/g/%2500", None),
        ("/;%2fx/admin%2f", None),
        ("/%3b%2fx/admin", None),
        ("//x/admin%2fy", None),
        ("/%2fx/admin", None),
        ("/g/a%2fb%3f", None),
        ("/g/%2525252561", None),
    ] {
        let expected = expected.map(str::to_owned);
        assert_eq!(loosest(path), expected, "{path}");
    }
}

/// Reference implementation of the normal form: decode segment by segment, then resolve dots.
fn oracle(path: &str) -> Option<Vec<Vec<u8>>> {
    let mut segments: Vec<Vec<u8>> = Vec::new();
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    for (at, part) in parts.iter().enumerate() {
        let mut bytes = Vec::new();
        let mut rest = part.as_bytes();
        while let [byte, after @ ..] = rest {
            let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            let value = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
            match value {
                Some(digits) if *byte == b'%' => {
                    bytes.push(u8::from_str_radix(digits, 16).unwrap());
                    rest = &after[2..];
                }
                _ => {
                    bytes.push(*byte);
                    rest = after;
                }
            }
        }
        let last = at + 1 == parts.len();
        match &bytes[..] {
            b"" | b"." if last => segments.push(Vec::new()),
            b"" | b"." => {}
            b".." => {
                segments.pop();
                if last {
                    segments.push(Vec::new());
                }
            }
            _ => segments.push(bytes),
        }
    }
    Some(segments)
}

proptest! {
    #[test]
    fn a_partial_reading_suffices(
        path in "/(/|a|b|%61|;a|%3b|%3f|\\.|%2e|\\.\\./|/\\.\\.|%20|%c3%a9){0,16}", reach in 0_usize..8
    ) {
        let starts = |limit| {
            let mut all = Vec::new();
            let other = other_reading(&path, normalize(&path).spelling, limit, 0, |text| {
                let start = text[..text.len().min(reach + 1)].to_owned();
                if !all.contains(&start) {
                    all.push(start);
                }
                false
            });
            assert_eq!(other, Ok(None));
            all
        };
        prop_assert_eq!(starts(reach), starts(usize::MAX));
    }

    #[test]
    fn normalization_is_idempotent_and_agrees_with_the_oracle(
        path in "/([a.%2eEfF/;\\\\05cCbB3 d-]|%2e|%2f|%3b|%25|%61|%c3%a9|\\.\\./|//){0,12}"
    ) {
        let form = normalize(&path);
        let text = &*form.text;
        prop_assert_eq!(&*normalize(text).text, text, "idempotence");
        prop_assert!(text.starts_with('/') && text.is_ascii() && !text.contains("//"), "{}", text);
        for segment in text.split('/') {
            prop_assert!(segment != "." && segment != "..", "{}", text);
        }
        let decoded: Vec<Vec<u8>> = text[1..]
            .split('/')
            .map(|segment| escape::units(segment.as_bytes()).map(|unit| match unit {
                escape::Unit::Raw(byte) | escape::Unit::Escaped(byte) => byte,
                escape::Unit::Percent => unreachable!("a normal form has whole escapes"),
            }).collect())
            .collect();
        prop_assert_eq!(decoded, oracle(&path).unwrap());
        if form.spelling.is_single() {
            prop_assert!(readings(&path).is_empty());
        }
    }
}

#[test]
fn what_is_judged_is_every_path_that_a_server_may_see() {
    let forms = |path: &str| {
        let normal = normalize(path);
        let forms = judged_forms(path, normal.spelling, 4)?;
        assert_eq!(forms[0], normal.text, "{path}: the normal form comes first");
        Ok::<_, Ambiguity>(forms)
    };
    for (path, wanted) in [
        ("/", &["/"][..]),
        ("*", &["*"]),
        ("/a//b", &["/a/b"]),
        ("/%61/%7Eb", &["/a/~b"]),
        ("/app;jsessionid=1/x", &["/app;jsessionid=1/x", "/app/x"]),
        ("/app/x;jsessionid=1.node2", &["/app/x;jsessionid=1.node2", "/app/x"]),
        ("/a;b/c;d", &["/a;b/c;d", "/a/c"]),
        ("/;x/admin", &["/;x/admin", "/admin", "/"]),
        ("/admin%3bx", &["/admin;x", "/admin"]),
        ("/a;b%3Bc", &["/a;b;c", "/a"]),
        ("/a%3Bb;c", &["/a;b;c", "/a;b", "/a"]),
        ("//x/admin", &["/x/admin", "/admin"]),
        ("//x", &["/x", "/"]),
        ("///x/admin", &["/x/admin", "/admin"]),
        ("//x/admin;a", &["/x/admin;a", "/x/admin", "/admin;a", "/admin"]),
        ("/wiki/What%3F", &["/wiki/What%3F", "/wiki/What"]),
    ] {
        assert_eq!(forms(path).unwrap(), wanted, "{path}");
    }
    for path in ["//x/a;b%3Bc;d%3F", &format!("/;{}", "a".repeat(33_000)), &"/;a".repeat(20_000)] {
        assert_eq!(forms(path), Err(Ambiguity::TooLong), "{path:.20}");
    }
}
