//! A route that comes or changes through the admin API takes over what routes share, as it would in the file.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

use offramp_testkit::server::Listen;

use crate::support::crowd::tcp;
use crate::support::http_app::named;
use crate::support::instance::{Home, Instance};
use crate::support::offramp::{output, stderr, stdout};

/// The status and the head of the response for this host.
fn ask(address: SocketAddr, host: &str) -> (u16, String) {
    let mut stream = tcp(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

fn ctl(instance: &Instance, arguments: &[&str]) -> String {
    let done =
        output(instance.home.path(), &[&["ctl", "--admin", "unix:state/admin.sock"], arguments].concat());
    assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
    stdout(&done)
}

#[test]
fn a_new_route_lets_nobody_in_whom_all_routes_refuse() {
    let home = Home::new();
    let (app, _) = named(&Listen::Unix(home.file("app.sock")), "app");
    let instance = home.run(
        "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
         [defaults.route]\ndeny = [\"127.0.0.1\"]\n\
         [policy.framed]\nresponse_headers = { set = { X-Frame-Options = \"DENY\" } }\n\
         [policy.open]\ndeny = false\n\
         [[route]]\nhost = \"a.example\"\nserver = \"unix:app.sock\"\npolicy = \"framed\"\n",
    );
    let address = instance.address();
    let status = |host: &str| ask(address, host).0;
    let server = format!("unix:{}", instance.home.file("app.sock").display());
    let add = |host: &str, more: &[&str]| {
        ctl(&instance, &[&["route", "add", "--host", host, "--to", &server], more].concat())
    };
    assert_eq!(status("a.example"), 403);
    add("b.example", &["--persist"]);
    add("open.example", &["policy=framed", "policy=open", "--persist"]);
    let expected = || {
        assert_eq!((status("a.example"), status("b.example")), (403, 403));
        let (code, head) = ask(address, "open.example");
        assert_eq!(code, 200, "{head}");
        assert!(head.to_ascii_lowercase().contains("x-frame-options: deny"), "{head}");
    };
    expected();
    // Taken away from a route, the rule of all routes still holds.
    ctl(&instance, &["route", "change", "b.example", "deny=10.9.9.9", "--persist"]);
    assert_eq!(status("b.example"), 200);
    ctl(&instance, &["route", "change", "b.example", "deny=", "--persist"]);
    expected();
    let file = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    assert!(!file.contains("10.9.9.9") && file.matches("127.0.0.1\"").count() == 1, "{file}");
    // What is in force is what the file says.
    let plan = ctl(&instance, &["plan", "offramp.toml"]);
    assert!(plan.contains("othing would change"), "{plan}");
    ctl(&instance, &["reload"]);
    expected();
    // What is shown can be applied, and says the same.
    fs::write(instance.home.file("shown.toml"), ctl(&instance, &["show", "config"])).unwrap();
    let plan = ctl(&instance, &["plan", "shown.toml"]);
    assert!(plan.contains("othing would change"), "{plan}");
    // A change of what all routes share is one, whatever comes of it.
    let more = file.replace("[defaults.route]\n", "[defaults.route]\nerror_pages = { 404 = \"404.html\" }\n");
    fs::write(instance.home.file("404.html"), "none").unwrap();
    fs::write(instance.home.file("new.toml"), more).unwrap();
    let plan = ctl(&instance, &["plan", "new.toml"]);
    assert!(plan.contains("defaults.route: error_pages: (absent) -> "), "{plan}");
    drop(app);
    instance.stop();
}
