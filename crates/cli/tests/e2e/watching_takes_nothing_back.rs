//! With `watch = true` Offramp reloads when the file changes, and not because what is in force is another by changes that
//! are not in the file, or not yet.

use std::fs;
use std::io::Write as _;

use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::Home;
use crate::support::upgrade::Upgraded;
use crate::upgrades_keep_the_admin_socket::ctl;

fn text(app: &Server, watch: bool) -> String {
    format!(
        "watch = {watch}\n[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
         [[route]]\nbackend = \"shop\"\n[backend.shop]\nservers = [\"{}\", \"127.0.0.1:9\"]\n",
        app.address()
    )
}

/// Has the loop that looks at the file do other things, twice: the look was due before.
fn passes(upgraded: &Upgraded) {
    for _ in 0..2 {
        ctl(upgraded, &["server", "weight", "shop", "127.0.0.1:9", "7", "--dry-run"]);
    }
}

/// Changes nothing but the text of the file, and waits for the reload.
fn touch(upgraded: &Upgraded) {
    let path = upgraded.instance.home.file("offramp.toml");
    let before = upgraded.logged("by=watch").len();
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"# another text\n").unwrap();
    upgraded.instance.until("the reload", || (upgraded.logged("by=watch").len() > before).then_some(()));
}

#[test]
fn what_passes_over_at_an_upgrade_stays() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let upgraded = Upgraded::of(Home::new().run(&text(&app, true)));
    let server = app.address().to_string();
    ctl(&upgraded, &["server", "drain", "shop", &server]);
    upgraded.upgrade();
    passes(&upgraded);
    let status = ctl(&upgraded, &["status"]);
    assert_eq!(status["config"]["unwritten"].as_array().unwrap().len(), 1, "{status}");
    assert_eq!(upgraded.logged("by=watch"), [""; 0]);
    // Whoever changes the file has it read, as before.
    touch(&upgraded);
    assert_eq!(ctl(&upgraded, &["status"])["config"]["unwritten"].as_array().unwrap().len(), 0);
    assert_eq!(upgraded.logged("by=watch").len(), 1);
    upgraded.stop();
}

#[test]
fn a_change_that_turns_it_on_waits_to_be_confirmed() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let upgraded = Upgraded::of(Home::new().run(&text(&app, false)));
    let path = upgraded.instance.home.file("offramp.toml");
    let new = fs::read_to_string(&path).unwrap().replace("watch = false", "watch = true");
    fs::write(upgraded.instance.home.file("new.toml"), &new).unwrap();
    ctl(&upgraded, &["apply", "new.toml", "--confirm", "1h", "--persist"]);
    passes(&upgraded);
    let status = ctl(&upgraded, &["status"]);
    assert_eq!(status["config"]["version"], 2, "{status}");
    assert!(status["config"]["confirm_until"].is_string(), "{status}");
    ctl(&upgraded, &["confirm"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), new);
    passes(&upgraded);
    assert_eq!(upgraded.logged("by=watch"), [""; 0]);
    touch(&upgraded);
    assert_eq!(upgraded.logged("by=watch").len(), 1);
    upgraded.stop();
}

/// A reload while a change waits: what the file has is known from then on, though the reload leads back.
#[test]
fn what_was_read_meanwhile_is_in_the_file() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let upgraded = Upgraded::of(Home::new().run(&text(&app, false)));
    let path = upgraded.instance.home.file("offramp.toml");
    ctl(&upgraded, &["route", "add", "--host", "b.example", "--backend", "shop"]);
    let route = b"[[route]]\nhost = \"b.example\"\nbackend = \"shop\"\n";
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(route).unwrap();
    ctl(&upgraded, &["log-level", "debug", "--confirm", "1h"]);
    ctl(&upgraded, &["reload"]);
    let status = ctl(&upgraded, &["status"]);
    assert_eq!(status["config"]["unwritten"].as_array().unwrap().len(), 0, "{status}");
    upgraded.upgrade_by(|| drop(ctl(&upgraded, &["upgrade"])));
    assert_eq!(ctl(&upgraded, &["status"])["routes"], 2);
    upgraded.stop();
}
