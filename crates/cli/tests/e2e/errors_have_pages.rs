//! Pages of errors: whose they are, in which form, in place of what; and what is wrong with their files.

use std::fs;
use std::io;

use offramp_testkit::server::{Listen, Refusing, Server, Stream};

use crate::reload_loses_no_request::reload;
use crate::support::http_app::{Request, app, respond};
use crate::support::http_curl::{HTTP, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, cause};
use crate::support::offramp::{output, stderr};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];
const BROWSER: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8";

/// An application that answers with the status that its path ends with, and says too much.
fn statuses(request: &Request, stream: &mut Stream) -> io::Result<()> {
    let status = request.target.rsplit('/').next().and_then(|text| text.parse().ok()).unwrap_or(200);
    let fields = ["Content-Type: text/x-trace", "ETag: \"trace\"", "WWW-Authenticate: Basic", "X-App: yes"];
    let body = if request.method == "HEAD" { "" } else { "a trace of the stack" };
    respond(stream, status, &fields, body.as_bytes())
}

fn serve() -> (Instance, Server, Refusing) {
    let home = Home::new();
    let app = app(&Listen::Unix(home.file("app.sock")), statuses);
    let refusing = Refusing::new(&Listen::Ipv4).unwrap();
    fs::create_dir(home.file("www")).unwrap();
    fs::write(home.file("404.html"), "<style>b{color:red}</style><b>{status} {reason}</b> {id}").unwrap();
    fs::write(home.file("404.json"), r#"{"code":{status},"id":"{id}"}"#).unwrap();
    fs::write(home.file("5xx.txt"), "we are sorry\n").unwrap();
    let pages = "error_pages = { 404 = [\"404.html\", \"404.json\"], 5xx = \"5xx.txt\" }\n";
    let text = format!(
        "{CERTIFICATE}{HTTP}[[route]]\npath = \"/own\"\nserver = \"unix:app.sock\"\n{pages}intercept_errors = true\n\
         [[route]]\npath = \"/theirs\"\nserver = \"unix:app.sock\"\n{pages}\
         [[route]]\npath = \"/down\"\nserver = \"{0}\"\n{pages}\
         [[route]]\npath = \"/plain\"\nserver = \"{0}\"\n\
         [[route]]\npath = \"/www\"\nroot = \"{1}\"\n{pages}",
        refusing.address(),
        home.file("www").display()
    );
    (home.run(&text), app, refusing)
}

#[test]
fn errors_have_the_pages_of_their_routes() {
    let (instance, _app, _refusing) = serve();
    for version in VERSIONS {
        let ask = |accept: &str, path: &str| {
            get(&instance, &[version, "--header", accept], &format!("https://localhost{path}"))
        };
        let page = ask(BROWSER, "/www/none");
        let id = page.field("x-request-id");
        assert_eq!((page.status(), page.field("content-type")), (404, "text/html; charset=utf-8"));
        assert_eq!(page.text(), format!("<style>b{{color:red}}</style><b>404 Not Found</b> {id}"));
        assert_eq!(page.field("cache-control"), "no-store");
        let json = ask("Accept: application/json", "/www/none");
        let id = json.field("x-request-id");
        assert_eq!(
            (json.field("content-type"), json.text()),
            ("application/json", format!("{{\"code\":404,\"id\":\"{id}\"}}"))
        );

        let down = ask(BROWSER, "/down/");
        assert_eq!((down.status(), down.text().as_str()), (502, "we are sorry\n"));
        assert_eq!(down.field("content-type"), "text/plain; charset=utf-8");
        // Who wants JSON, and there is no page of JSON.
        let json = ask("Accept: application/json", "/down/");
        assert!(json.status() == 502 && json.text().contains("\"status\":502"), "{json:?}");
        let plain = ask("Accept: */*", "/plain/");
        assert!(plain.status() == 502 && plain.text().starts_with("502 Bad Gateway\n"), "{plain:?}");
        // No page is for 405.
        let post = get(&instance, &[version, "--data", "a=b"], "https://localhost/www/none");
        assert_eq!((post.status(), post.field("allow")), (405, "GET, HEAD"));
        assert!(post.text().starts_with("405 "), "{post:?}");
    }
    instance.stop();
}

#[test]
fn errors_of_servers_give_way_where_that_is_wanted() {
    let (instance, _app, _refusing) = serve();
    for version in VERSIONS {
        let ask = |more: &[&str], path: &str| {
            get(
                &instance,
                &[&[version, "--header", BROWSER], more].concat(),
                &format!("https://localhost{path}"),
            )
        };
        for path in ["/own/404", "/own/503", "/own/500"] {
            let status = path[5..].parse::<u16>().unwrap();
            let page = ask(&[], path);
            assert_eq!(page.status(), status);
            assert!(!page.text().contains("trace"), "{page:?}");
            let expected = if status == 404 { "404 Not Found" } else { "we are sorry" };
            assert!(page.text().contains(expected), "{page:?}");
            assert_eq!(page.field("content-length"), page.body.len().to_string());
            // What says something of the body goes with it, and nothing else.
            assert_eq!((page.field("etag"), page.field("x-app")), ("", "yes"), "{page:?}");
            assert_eq!(page.field("www-authenticate"), "Basic", "{page:?}");
            assert_eq!(page.values("content-type").len(), 1, "{page:?}");
            let head = ask(&["--head"], path);
            assert_eq!((head.status(), head.body.len()), (status, 0));
            let length: u64 = head.field("content-length").parse().unwrap();
            // The page of 404 has the id in it.
            assert!(if status == 404 { length > 50 } else { length == 13 }, "{head:?}");
            let post = ask(&["--data", "some=body"], path);
            assert_eq!((post.status(), post.text().contains("trace")), (status, false));
        }
        // Other statuses pass, and so do all of a route that does not say so.
        for (path, status) in
            [("/own/200", 200), ("/own/403", 403), ("/theirs/404", 404), ("/theirs/500", 500)]
        {
            let answer = ask(&[], path);
            assert_eq!((answer.status(), answer.text().as_str()), (status, "a trace of the stack"));
            assert_eq!((answer.field("etag"), answer.field("content-type")), ("\"trace\"", "text/x-trace"));
        }
    }
    for event in instance.stop() {
        assert_eq!(cause(&event), "completed", "{event}");
        assert!(event["server"].is_string(), "{event}");
    }
}

#[test]
fn a_reload_reads_the_pages_again_and_refuses_what_cannot_be_read() {
    let (instance, _app, _refusing) = serve();
    let body = || get(&instance, &[], "https://localhost/down/").text();
    assert_eq!(body(), "we are sorry\n");
    fs::write(instance.home.file("5xx.txt"), "soon\n").unwrap();
    let outcome = reload(&instance);
    assert!(outcome.contains(" reloaded "), "{outcome}");
    assert_eq!(body(), "soon\n");

    fs::remove_file(instance.home.file("5xx.txt")).unwrap();
    fs::write(instance.home.file("404.json"), vec![b' '; (1 << 20) + 1]).unwrap();
    let outcome = reload(&instance);
    assert!(outcome.contains("reload refused"), "{outcome}");
    assert_eq!(body(), "soon\n");
    let checked = output(instance.home.path(), &["check", "-c", "offramp.toml"]);
    let said = stderr(&checked);
    assert_eq!(checked.status.code(), Some(2), "{said}");
    assert!(said.contains("error_pages: cannot read") && said.contains("5xx.txt"), "{said}");
    assert!(said.contains("404.json is larger than 1024 KiB"), "{said}");
    assert!(said.contains("offramp.toml:"), "{said}");
    instance.stop();
}
