use super::*;

fn map(text: &str) -> RedirectMap {
    RedirectMap::read(text.to_owned(), "/").unwrap_or_else(|faults| panic!("{faults:?}"))
}

fn faults(text: &str) -> Vec<String> {
    RedirectMap::read(text.to_owned(), "/").unwrap_err().listed.iter().map(ToString::to_string).collect()
}

#[test]
fn paths_lead_where_the_map_says() {
    let map = map(
        "\u{feff}# old, new\n\n/a,/b\r\n  /c , https://other.test/x?y#z , 301\n\"/d,e\",\"/f,g\",302\n/%C3%A4,/ae",
    );
    let find = |path| map.find(path).map(|(status, to)| (status.as_u16(), to));
    assert_eq!(find("/a"), Some((308, "/b")));
    assert_eq!(find("/c"), Some((301, "https://other.test/x?y#z")));
    assert_eq!(find("/d,e"), Some((302, "/f,g")));
    assert_eq!(find("/%C3%A4"), Some((308, "/ae")));
    for other in ["/", "/b", "/a/", "/A", "", "*", "/d", "/c "] {
        assert_eq!(find(other), None, "{other}");
    }
    assert_eq!((map.len(), map.is_empty()), (4, false));
    assert!(self::map("# nothing\n").is_empty());
    assert_eq!(self::map("").find("/"), None);
}

#[test]
fn paths_have_their_normal_form() {
    let map = map("/caf%c3%a9,/b\n/%7Euser//x,/c\n/a/../d,/e\n/f%2fg,/h\n");
    let find = |path| map.find(path).map(|(_, to)| to);
    for (path, to) in [("/caf%C3%A9", "/b"), ("/~user/x", "/c"), ("/d", "/e"), ("/f%2Fg", "/h")] {
        assert_eq!(find(path), Some(to), "{path}");
    }
    assert_eq!(faults("/a,/b\n//%61,/c\n"), ["2:1: `/a` is also in line 1"]);
    assert!(faults("/a,/%61\n")[0].contains("back to itself"));
    let below = |text: &str| RedirectMap::read(text.to_owned(), "/app").is_ok();
    assert!(below("/%61pp/x,/y") && !below("/app/../x,/y"));
}

#[test]
fn the_query_stays_unless_the_target_has_one() {
    for (to, query, expected) in [
        ("/b", None, "/b"),
        ("/b", Some("x=y"), "/b?x=y"),
        ("/b", Some(""), "/b?"),
        ("/b#c", Some("x"), "/b?x#c"),
        ("/b?c", Some("x"), "/b?c"),
        ("/b?", Some("x"), "/b?"),
        ("/b#c?d", Some("x"), "/b?x#c?d"),
        ("https://a.test", Some("x"), "https://a.test?x"),
    ] {
        assert_eq!(location(to, query), expected);
    }
}

#[test]
fn every_mistake_has_its_line_and_column() {
    assert_eq!(
        faults(
            "a,/b\n/ä,/b\n/a\n/a,b\n/a,/b,308,x\n/a,/b,200\n/a?b,/c\n/x,//evil.test\n/y,https:///a\n\"/z,/b\n\"/z\" x,/b\n  /w,/é\n/v,/{host}\n"
        ),
        [
            "1:1: `a` is not a path; paths begin with `/`",
            "2:1: no client can ask for `/ä`; write other characters as %XX",
            "3:3: where this leads is missing; write PATH,TARGET",
            "4:4: `b` is not where a redirect can lead; write a path or a whole URL",
            "5:11: a line has at most 3 fields; put a field with a comma in double quotes",
            "6:7: `200` is not the status of a redirect; write 301, 302, 303, 307 or 308",
            "7:1: write the path alone, without query and fragment",
            "8:4: `//` begins a host; write `https://` before it, or one slash",
            "9:4: the host is missing",
            "10:1: a `\"` without its end",
            "11:6: only a comma can follow a `\"`",
            "12:6: `/é` has characters that no URL has; write them as %XX",
            "13:4: `/{host}` has characters that no URL has; write them as %XX",
        ]
    );
}

#[test]
fn paths_are_in_the_map_once_and_below_the_route() {
    assert_eq!(
        faults("/a,/b\n\n/a,/c\n/a,/d\n"),
        ["3:1: `/a` is also in line 1", "4:1: `/a` is also in line 1"]
    );
    let read = |text: &str| RedirectMap::read(text.to_owned(), "/app").map(|map| map.len());
    assert_eq!(read("/app,/\n/app/x,/y\n"), Ok(2));
    let outside = read("/apple,/\n/x,/y\n").unwrap_err().listed;
    assert_eq!(outside.len(), 2);
    assert_eq!(outside[0].text, "`/apple` is not below `/app`, the path of the route");
}

#[test]
fn nothing_leads_in_a_circle() {
    assert_eq!(faults("/a,/a\n"), ["1:4: `/a` leads to `/a`, and from there back to itself"]);
    let said = faults("/start,/b\n/b,/c?x=y\n/c,/d#e\n/d,/b\n/e,/b\n/x,/y\n/y,/x\n");
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[0], "2:4: `/b` leads to `/c?x=y`, and from there back to itself");
    assert!(said[1].starts_with("6:4: `/x`"), "{said:?}");
    // A chain ends, and what another host does is not known.
    assert_eq!(map("/a,/b\n/b,/c\n/c,https://a.test/a\n").len(), 3);
}

#[test]
fn mistakes_without_end_are_counted() {
    let found = RedirectMap::read("x\n".repeat(1000), "/").unwrap_err();
    assert_eq!((found.listed.len(), found.more), (100, 900));
    let long = format!("/{},/b\n/a,/{}\n", "x".repeat(8192), "x".repeat(8192));
    assert_eq!(RedirectMap::read(long, "/").unwrap_err().listed.len(), 2);
    assert_eq!(RedirectMap::read(" ".repeat(TEXT_MAX + 1), "/").unwrap_err().listed.len(), 1);
}

#[test]
fn a_hundred_thousand_redirects_hold_less_than_20_mib() {
    // The longest lines that fit into a file of 100,000: the bound holds for any such file.
    let line = |at: usize| {
        let (from, to) =
            (format!("/old/{at:06}/{}", "a".repeat(60)), format!("/new/{at:06}/{}", "b".repeat(78)));
        format!("{from},{to}\n")
    };
    let text: String = (0..100_000).map(line).collect();
    assert!(text.len() > 16_000_000 && text.len() <= TEXT_MAX, "{}", text.len());
    let map = map(&text);
    println!("{} redirects hold {} bytes", map.len(), map.bytes());
    assert!(map.len() == 100_000 && map.bytes() <= 20 << 20, "{}", map.bytes());
    for at in (0..100_000).step_by(997) {
        let line = line(at);
        let (from, to) = line.trim_end().split_once(',').unwrap();
        assert_eq!(map.find(from), Some((StatusCode::PERMANENT_REDIRECT, to)));
        assert_eq!(map.find(&from[1..]), None);
        assert_eq!(map.find(to), None);
    }
}
