use std::num::NonZeroU32;
use std::sync::Arc;

use offramp_config::model::PlainRules;
use offramp_http::files::path::decode;
use proptest::prelude::*;

use super::*;
use crate::route::PathMatch;
use crate::snapshot::http::{
    Access, AuthClass, ClosedPaths, Detours, Files, ForwardAuth, HeaderPolicy, Proxy, Respond, Rewrite,
};
use crate::split::RouteBackends;

fn route(name: &str, action: Action) -> HttpRoute {
    HttpRoute {
        name: name.into(),
        action,
        client_auth: AuthClass::default(),
        access: Access::default(),
        xfcc: false,
        headers: HeaderPolicy::default(),
        upgrade: ["websocket".into()].into(),
        plain: PlainRules::default(),
        connect_timeout: None,
        detours: Detours::default(),
        error_pages: None,
        compress: None,
        mirror: None,
        bandwidth: None,
        log_one_in: NonZeroU32::MIN,
    }
}

fn proxied(paths: PathHandling) -> Action {
    Action::Proxy(Proxy { to: RouteBackends::Backend(0), send_proxy: None, rewrite: Rewrite::Keep, paths })
}

fn files(strip: usize) -> Action {
    Action::Files(Arc::new(Files {
        root: std::path::Path::new("/srv").into(),
        closed: ClosedPaths::default(),
        strip,
        index: Vec::new(),
        tries: vec!["{path}".into()],
        fallback: None,
        listing: false,
        precompressed: false,
        hidden: true,
        cache_control: Vec::new(),
    }))
}

/// A host with rules for paths: the path, what is done, and whether it is guarded; all guards have the same rules.
fn paths(rules: Vec<(&str, Action, bool)>) -> Paths<HttpRoute> {
    let rule = |(path, action, guard): (&str, Action, bool)| {
        (PathMatch { hosts: Vec::new(), path: path.to_owned(), entry: guard.into() }, route(path, action))
    };
    let mut rules: Vec<_> = rules.into_iter().map(rule).collect();
    // The longest goes first.
    rules.sort_by_key(|(matches, _)| std::cmp::Reverse(matches.path.len()));
    Paths::new(rules)
}

/// The route that a request for `path` takes, or why it is refused.
fn select(paths: &Paths<HttpRoute>, path: &str) -> Result<String, String> {
    let mut request = Request::new();
    request.set_target(path.as_bytes());
    request.normalize();
    let route = paths.find(None, request.normal_path()).ok_or("no route")?;
    match check(paths, None, route, &request) {
        Ok(()) => Ok(route.name.to_string()),
        Err(refusal) => Err(refusal.close.detail.unwrap_or_default().into()),
    }
}

const AS_IT_CAME: PathHandling = PathHandling { normalize: false, encoded_slashes: false };

fn app(paths: PathHandling) -> Paths<HttpRoute> {
    self::paths(vec![("/", proxied(paths), false), ("/admin", proxied(paths), true)])
}

#[test]
fn a_guarded_path_has_no_other_spelling() {
    let app = app(AS_IT_CAME);
    for path in ["/", "/admi", "/admin2", "/a%20b", "/caf%c3%a9", "/a;b=c", "/x/../y", "//x", "/%7Ex", "*"] {
        assert_eq!(select(&app, path).as_deref(), Ok("/"), "{path}");
    }
    for path in ["/admin", "/admin/", "/admin/x", "/admin/%61", "/admin//x", "/admin/x;y/z", "/admin/a/../b"]
    {
        assert_eq!(select(&app, path).as_deref(), Ok("/admin"), "{path}");
    }
    for path in [
        "/%61dmin",
        "/adm%69n/x",
        "//admin",
        "///admin/x",
        "/./admin",
        "/%2e/admin",
        "/x/../admin",
        "/x/%2E%2e/admin",
        "/x//../admin",
        "/admin/../x",
        "/admin/..",
        "/admin;a=b",
        "/admin;a=b/x",
        "/admin%3ba=b",
        "/;/admin",
        "/x/..;/admin",
        "/..;a/admin",
        "/.;/admin",
        "/%61dmin;x",
        "/x/../admin/%2e%2e",
        "//x/admin",
        "//x/admin/y",
        "///x/admin/y",
        "////x/admin/y",
        "///x:1/admin",
        "/;//y/admin",
        "/;/x/admin",
        "/x/..//y/admin",
        "/.//y/admin",
        "/admin%3fx",
        "/admin%23/x",
    ] {
        let refused = select(&app, path).unwrap_err();
        let helps = !path.contains(';') && !path.contains("%3b");
        assert_eq!(refused.contains("`normalize_path = true` of route `/"), helps, "{path}: {refused}");
    }
    for (path, why) in [
        ("/admin%2fx", "%2F"),
        ("/x%2fy", "%2F"),
        ("/%2fadmin", "%2F"),
        ("/x/..%2fadmin", "%2F"),
        ("/admin%5cx", "backslash"),
        ("/%2561dmin", "%25 before"),
        ("/../admin", "above the root"),
        ("/admin%00", "control"),
        ("/%u0061dmin", "hexadecimal"),
        ("/%c1%a1dmin", "UTF-8"),
    ] {
        let refused = select(&app, path).unwrap_err();
        assert!(refused.contains(why), "{path}: {refused}");
    }
}

#[test]
fn long_paths_are_read_as_far_as_routes_reach() {
    let app = app(AS_IT_CAME);
    let long = |part: &str| part.repeat(8000 / part.len());
    for path in [format!("/x/%20{}", long("aGVsbG8")), format!("/x%7e//;a{}", long("/%7eb;c"))] {
        assert_eq!(select(&app, &path).as_deref(), Ok("/"));
    }
    let refused = select(&app, &format!("/x{}/../x", "/b".repeat(20_000))).unwrap_err();
    assert!(refused.contains("readings") && refused.contains("normalize_path"), "{refused}");
    let refused = select(&app, &format!("/%61dmin{}", long("/x"))).unwrap_err();
    assert!(
        refused.contains("otherwise to `/`;") && refused.contains("reading is /%61dmin/x/x/x"),
        "{refused}"
    );
}

#[test]
fn nothing_is_refused_where_the_path_decides_nothing() {
    let open = paths(vec![("/", proxied(AS_IT_CAME), false), ("/admin", proxied(AS_IT_CAME), false)]);
    let single = paths(vec![("/", proxied(AS_IT_CAME), true)]);
    for path in ["/x%2fy", "/../x", "/%zz", "/%ff", "/admin/..%2fx", "//x", "/x/../y", "/;/x"] {
        assert!(select(&open, path).is_ok(), "{path}");
        assert_eq!(select(&single, path).as_deref(), Ok("/"), "{path}");
    }
    // The normal form decides all the same.
    for path in ["/%61dmin", "//admin", "/x/../admin"] {
        assert_eq!(select(&open, path).as_deref(), Ok("/admin"), "{path}");
    }
}

#[test]
fn who_answers_himself_reads_the_normal_form() {
    let body = Respond { status: StatusCode::OK, content_type: None, body: "".into() };
    let mixed = paths(vec![
        ("/", proxied(AS_IT_CAME), false),
        ("/private", files(0), true),
        ("/gone", Action::Respond(body), false),
    ]);
    for path in ["/%70rivate/x", "//private", "/x/../private", "/private;x/.."] {
        let expected = if path.contains(';') { Err(()) } else { Ok("/private") };
        assert_eq!(select(&mixed, path).as_deref().map_err(|_| ()), expected, "{path}");
    }
    assert_eq!(select(&mixed, "/%67one").as_deref(), Ok("/gone"));
    // Both are open.
    assert_eq!(select(&mixed, "/gone;x").as_deref(), Ok("/"));
}

#[test]
fn dot_segments_are_read_in_one_order() {
    let deep = paths(vec![
        ("/", proxied(AS_IT_CAME), false),
        ("/docs/secret", proxied(AS_IT_CAME), true),
        ("/q/docs/secret", proxied(AS_IT_CAME), true),
    ]);
    for path in [
        "/docs///../secret/s.txt",
        "/docs///%2e%2e/secret/s.txt",
        "/q/docs/a/%2e%2e/%2e%2e/../secret/s.txt",
        "/docs/a/b/..;/..;/../secret",
        "/q//docs/%2e/x",
        "/x/../y;z",
    ] {
        let refused = select(&deep, path).unwrap_err();
        assert!(refused.contains("`.` or `..` beside"), "{path}: {refused}");
    }
    for path in ["/docs/a/../b", "/docs/a/../../x", "/a/./b"] {
        assert_eq!(select(&deep, path).as_deref(), Ok("/"), "{path}");
    }
    assert!(select(&deep, "/docs/a/../secret").unwrap_err().contains("read otherwise"));
}

#[test]
fn open_routes_are_not_kept_apart() {
    let open = paths(vec![
        ("/", proxied(AS_IT_CAME), false),
        ("/app", proxied(AS_IT_CAME), false),
        ("/private", proxied(AS_IT_CAME), true),
        ("/private/in", proxied(AS_IT_CAME), true),
    ]);
    for path in ["//app/x", "/%61pp", "/app;jsessionid=A", "/x/../app", "/private//in", "/private/in;a"] {
        assert!(select(&open, path).is_ok(), "{path}");
    }
    for path in ["//private", "/%70rivate", "/private;a", "///x/private"] {
        assert!(select(&open, path).is_err(), "{path}");
    }
}

#[test]
fn paths_that_rules_make_are_checked() {
    for handling in [AS_IT_CAME, PathHandling { encoded_slashes: true, ..AS_IT_CAME }] {
        let app = paths(vec![
            ("/", proxied(handling), false),
            ("/api/admin", proxied(handling), true),
            ("/private", proxied(handling), true),
        ]);
        let route = app.find(None, "/go").unwrap();
        let is_ok = |sent: &str| check_made(&app, None, route, MadePath { cut: "", sent }).is_ok();
        // Where the normal form leads is the will of who wrote the rule.
        for sent in ["/api/v1/x", "/api/admin", "/api/x;v=1", "/x//y"] {
            assert!(is_ok(sent), "{sent}");
        }
        for sent in [
            "/api/v1/..;/admin",
            "/api/v1/..%3b/admin",
            "/api/v1/%2e%2e%3b/admin/s",
            "/api/v1/../admin",
            "/api/admin;a",
            "/%2fh/private",
            "//h/private",
            "/%70rivate",
        ] {
            assert!(!is_ok(sent), "{sent}");
        }
    }
}

#[test]
fn what_is_left_of_a_path_is_checked_below_what_was_cut() {
    let app = paths(vec![("/", proxied(AS_IT_CAME), false), ("/in/private", proxied(AS_IT_CAME), true)]);
    let route = app.find(None, "/in/x").unwrap();
    let is_ok = |sent: &str| check_made(&app, None, route, MadePath { cut: "/in", sent }).is_ok();
    for sent in ["/x;a", "/a%20b//c", "/private", "/private/%41", "/private/x;y"] {
        assert!(is_ok(sent), "{sent}");
    }
    for sent in ["/;/x/private", "/;//x/private", "/%70rivate", "//x/private", "/private;a"] {
        assert!(!is_ok(sent), "{sent}");
    }
}

#[test]
fn an_authentication_server_judges_what_is_read() {
    let judged = |handling| {
        let mut asked = route("/", proxied(handling));
        asked.access.forward = Some(ForwardAuth {
            backend: 0,
            target: "/".into(),
            headers: Vec::new(),
            timeout: std::time::Duration::from_secs(1),
        });
        Paths::new(vec![(PathMatch { hosts: Vec::new(), path: "/".to_owned(), entry: 1 }, asked)])
    };
    let kept = judged(AS_IT_CAME);
    for path in [
        "/public/..;/admin",
        "/public/..%2fadmin",
        "/public/..%5cadmin",
        "/public/%252e%252e/admin",
        "/public/../admin",
        "/public/%2e%2e/admin",
        "//x/a;b%3Bc;d%3F",
    ] {
        assert!(select(&kept, path).is_err(), "{path}");
    }
    for path in
        ["/a%20b", "/%7Ex", "/a//b", "/caf%c3%a9", "*", "/app;jsessionid=1", "/admin%3bx", "//x/admin"]
    {
        assert!(select(&kept, path).is_ok(), "{path}");
    }
    let passed = judged(PathHandling { encoded_slashes: true, ..AS_IT_CAME });
    assert!(select(&passed, "/a%2fb").is_ok() && select(&passed, "/a/..;/b%2fc").is_err());
    let normal = judged(PathHandling { normalize: true, ..AS_IT_CAME });
    assert!(select(&normal, "//x/../admin").is_ok() && select(&normal, "/x/..;/admin").is_err());
}

#[test]
fn keys_let_pass_what_leads_nowhere_else() {
    let pass = app(PathHandling { encoded_slashes: true, ..AS_IT_CAME });
    for path in ["/@a%2fb", "/x%2fy/z", "/x%5cy", "/x%252fy", "/100%/x", "/caf%e9"] {
        assert_eq!(select(&pass, path).as_deref(), Ok("/"), "{path}");
    }
    assert_eq!(select(&pass, "/admin/a%2fb").as_deref(), Ok("/admin"));
    for path in [
        "/admin%2fx",
        "/%2fadmin",
        "/x%2f..%2fadmin",
        "/x/..%2fadmin",
        "/x/%252e%252e/admin",
        "/%2561dmin",
        "/%252561dmin",
        "/%5cadmin",
        "/;%2fadmin",
        "/;%2fx/%61dmin%2f",
        "/%u0061dmin",
        "/%c1%a1dmin",
        "/x%00%2f",
        "/x%2f%00",
        "//x/admin%2fy",
        "/x%2f/../..",
        "/../x%2fy",
        "//admin",
    ] {
        assert!(select(&pass, path).is_err(), "{path}");
    }
    let normal = app(PathHandling { normalize: true, ..AS_IT_CAME });
    for path in ["/%61dmin", "//admin", "/x/../admin", "/./admin"] {
        assert_eq!(select(&normal, path).as_deref(), Ok("/admin"), "{path}");
    }
    assert_eq!(select(&normal, "/admin/../x").as_deref(), Ok("/"));
    for path in ["/admin;x", "/;/admin", "/x/..;/admin", "/a%2fb", "/../x"] {
        assert!(select(&normal, path).is_err(), "{path}");
    }
}

/// Decodes escapes once, and leaves alone what is none.
fn decoded(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < path.len() {
        let digits = path.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match value.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) if path[at] == b'%' => {
                out.push(value);
                at += 3;
            }
            _ => {
                out.push(path[at]);
                at += 1;
            }
        }
    }
    out
}

/// Walks the segments; those that are empty count for `..`, or do not.
fn walked(path: &[u8], merge: bool) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/').skip(1) {
        match segment {
            b"." => {}
            b".." => drop(segments.pop()),
            b"" if merge => {}
            segment => segments.push(segment),
        }
    }
    segments.iter().flat_map(|segment| [b"/", *segment].concat()).collect()
}

fn merged(path: &[u8]) -> Vec<u8> {
    let segments = path.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty());
    segments.flat_map(|segment| [b"/", segment].concat()).collect()
}

fn bare(path: &[u8]) -> Vec<u8> {
    let segment = |segment: &[u8]| segment.split(|byte| *byte == b';').next().unwrap_or_default().to_vec();
    path.split(|byte| *byte == b'/').map(segment).collect::<Vec<_>>().join(&b'/')
}

fn hostless(path: &[u8]) -> &[u8] {
    match path {
        [b'/', b'/', rest @ ..] => match rest.iter().position(|byte| *byte == b'/') {
            Some(at) => &rest[at..],
            None => b"/",
        },
        _ => path,
    }
}

fn ended(path: &[u8]) -> Vec<u8> {
    path.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default().to_vec()
}

fn slashes(path: &[u8]) -> Vec<u8> {
    path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect()
}

/// The path of a URL of WHATWG with the path as its reference: without a host, which further slashes may precede.
fn of_url(path: &[u8]) -> Vec<u8> {
    let path = slashes(path);
    let behind = match &path[..] {
        [b'/', b'/', ..] => {
            let host: &[u8] = &path[path.iter().position(|byte| *byte != b'/').unwrap_or(path.len())..];
            &host[host.iter().position(|byte| *byte == b'/').unwrap_or(host.len())..]
        }
        path => path,
    };
    let mut out: Vec<&[u8]> = Vec::new();
    for segment in behind.split(|byte| *byte == b'/').skip(1) {
        let lower = segment.to_ascii_lowercase();
        match &lower[..] {
            b"." | b"%2e" => {}
            b".." | b".%2e" | b"%2e." | b"%2e%2e" => drop(out.pop()),
            _ => out.push(segment),
        }
    }
    out.iter().flat_map(|segment| [b"/", *segment].concat()).collect()
}

type ReadPath = fn(&[u8]) -> Vec<u8>;

/// What servers of different makes take a path for.
const SERVERS: [(&str, ReadPath); 22] = [
    ("as it came", <[u8]>::to_vec),
    ("decoded", decoded),
    ("merged", merged),
    ("merged, decoded", |path| merged(&decoded(path))),
    ("walked", |path| walked(path, true)),
    ("walked by RFC 3986", |path| walked(path, false)),
    ("decoded, walked", |path| walked(&decoded(path), true)),
    ("decoded, walked by RFC 3986", |path| walked(&decoded(path), false)),
    ("walked, decoded", |path| decoded(&walked(path, true))),
    ("without parameters, decoded, walked", |path| walked(&decoded(&bare(path)), true)),
    ("decoded, without parameters, walked", |path| walked(&bare(&decoded(path)), true)),
    ("without parameters", bare),
    ("a reference with a host, walked", |path| walked(hostless(path), true)),
    ("a reference with a host, decoded", |path| decoded(hostless(path))),
    ("decoded, up to a query, walked", |path| walked(&ended(&decoded(path)), true)),
    ("URL of WHATWG", of_url),
    ("URL of WHATWG, decoded", |path| decoded(&of_url(path))),
    ("URL of WHATWG, decoded, joined to a root", |path| walked(&decoded(&of_url(path)), true)),
    ("java.net.URI, normalised, decoded, file", |path| walked(&decoded(&walked(path, true)), true)),
    ("walked by nginx, then without parameters, walked", |path| {
        walked(&bare(&walked(&decoded(path), true)), true)
    }),
    ("decoded twice, walked", |path| walked(&decoded(&decoded(path)), true)),
    ("decoded, backslashes as slashes, walked", |path| walked(&slashes(&decoded(path)), true)),
];

fn is_admin(path: &[u8]) -> bool {
    is_below("/admin", path)
}

fn is_below(guard: &str, path: &[u8]) -> bool {
    path.strip_prefix(guard.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Paths of pieces that matter.
fn tricky() -> impl Strategy<Value = String> {
    let pieces = vec![
        "/",
        "/",
        "/admin",
        "admin",
        "/%61dmin",
        "/x",
        "/..",
        "/.",
        "/%2e%2e",
        "//",
        "///",
        ";",
        ";a=b",
        "%3b",
        "%2f",
        "%5c",
        "%252f",
        "%2561dmin",
        "%3f",
        "%23",
        "%25",
        "%",
        "a",
        "/..;",
        "%c3%a9",
        "%20",
        ".",
        "..",
    ];
    let pieces = proptest::collection::vec(proptest::sample::select(pieces), 0..7);
    pieces.prop_map(|pieces| format!("/{}", pieces.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Whatever server gets a request: it takes the path for one below a guarded prefix if and only if the request came by
    /// the guarded route.
    #[test]
    fn a_server_sees_no_guarded_path_that_came_by_another_route(
        path in tricky(), normalize: bool, encoded_slashes: bool, is_deep: bool
    ) {
        let handling = PathHandling { normalize, encoded_slashes };
        let guard = if is_deep { "/x/admin" } else { "/admin" };
        let paths = paths(vec![("/", proxied(handling), false), (guard, proxied(handling), true)]);
        if let Ok(route) = select(&paths, &path) {
            let normal = path::normalize(&path).text;
            let sent = if normalize { &*normal } else { &path };
            for (server, read) in SERVERS {
                let seen = read(sent.as_bytes());
                prop_assert_eq!(is_below(guard, &seen), route == guard, "{}: {}", server, seen.escape_ascii());
            }
        }
    }

    /// Whatever file a path names: if it lies below what a guarded route serves, that route was found.
    #[test]
    fn no_file_below_a_guarded_prefix_is_found_by_another_route(path in tricky()) {
        let (open, guarded) = (files(0), files("/admin".len()));
        let paths = paths(vec![("/", open, false), ("/admin", guarded, true)]);
        let normal = path::normalize(&path).text;
        if let Ok(route) = select(&paths, &path) {
            let strip = if route == "/admin" { "/admin".len() } else { 0 };
            let below = normal.get(strip..).filter(|below| !below.is_empty()).unwrap_or("/");
            if let Ok(file) = decode(below, true) {
                prop_assert!(strip > 0 || !is_admin(format!("/{file}").as_bytes()), "{}", file);
                // What a raw look at a file system would open.
                let opened = walked(format!("/{file}").as_bytes(), true);
                prop_assert!(strip > 0 || !is_admin(&opened), "{}", file);
            }
        }
    }
}
