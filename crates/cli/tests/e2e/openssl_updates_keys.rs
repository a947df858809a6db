//! Key updates of TLS 1.3, by the commands `k` (the client's keys) and `K` (and please yours) of
//! `openssl s_client`, with data before, between and behind them.

use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::{Instance, cause};
use crate::support::openssl::connect;

#[test]
fn openssl_updates_keys() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = Instance::before(app.address());
    let mut client = connect(&instance, &["-tls1_3", "-msg"]);
    client.say("before any update\n");
    client.hear("before any update");
    // The command is told by the first letter of what s_client reads, and so stands alone.
    let commands = ["k", "K", "K", "k", "k", "K"];
    for (at, command) in commands.into_iter().enumerate() {
        client.say(&format!("{command}\n"));
        client.hear_times("KEYUPDATE", at + 1);
        client.say(&format!("behind update {at}\n"));
        client.hear(&format!("behind update {at}"));
    }
    client.say("Q\n");
    let (status, said) = client.end();
    assert!(status.success(), "{said}");
    let updates = |from: &str| {
        said.lines().filter(|line| line.starts_with(from) && line.ends_with(", KeyUpdate")).count()
    };
    assert_eq!((updates(">>>"), updates("<<<")), (6, 3), "{said}");
    let [event] = &instance.stop()[..] else { panic!("one event") };
    assert_eq!(cause(event), "client_closed", "{event}");
}
