//! Who waits for `READY=1` can use everything that the configuration has, the admin interface included.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;

use crate::support::instance::{Home, LISTENER};
use crate::support::offramp::{offramp, stderr};

#[test]
fn nobody_is_told_that_it_is_ready_when_the_admin_address_is_taken() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "{}{LISTENER}[admin]\naddress = \"{}\"\n[[route]]\nserver = \"127.0.0.1:1\"\n",
        crate::support::instance::CERTIFICATE,
        taken.local_addr().unwrap()
    );
    let configuration = home.configure(&text);
    let path = home.file("notify.sock");
    let notifications = UnixDatagram::bind(&path).unwrap();
    notifications.set_nonblocking(true).unwrap();
    let mut command = offramp(home.path(), &["run", "--config"]);
    let output = command.arg(configuration).env("NOTIFY_SOCKET", path).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}\n{}", output.status, stderr(&output));
    let mut datagram = [0; 4096];
    while let Ok(length) = notifications.recv(&mut datagram) {
        let said = String::from_utf8_lossy(&datagram[..length]).into_owned();
        assert!(!said.contains("READY=1"), "{said}");
    }
}
