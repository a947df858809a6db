//! Knot DNS with the zone `test`, all of whose names lead to `127.0.0.1`, and a key that may change it.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

use offramp_testkit::process::{Process, Ready, free_port, require};

use crate::support::instance::{LIFE, PATIENCE};

/// The key `offramp`, in base64.
pub(crate) const SECRET: &str = "c2VjcmV0IG9mIHR3ZW50eS1mb3VyIGJ5dGVz";

/// A running name server.
pub(crate) struct Knot {
    _process: Process,
    /// Its port, of UDP and TCP.
    pub(crate) port: u16,
}

impl Knot {
    pub(crate) fn start(home: &Path) -> Self {
        let port = free_port();
        let folder = home.join("knot");
        fs::create_dir_all(folder.join("db")).unwrap();
        let place = folder.display();
        let config = format!(
            "server:\n  listen: 127.0.0.1@{port}\n  rundir: \"{place}\"\n\
             database:\n  storage: \"{place}/db\"\n\
             key:\n  - id: offramp.\n    algorithm: hmac-sha256\n    secret: {SECRET}\n\
             acl:\n  - id: acme\n    key: offramp.\n    action: update\n\
             zone:\n  - domain: test\n    storage: \"{place}\"\n    file: test.zone\n    acl: acme\n    zonefile-sync: -1\n"
        );
        fs::write(folder.join("knot.conf"), config).unwrap();
        let zone = "$TTL 1\n@ SOA ns.test. me.test. 1 1 1 1 1\n@ NS ns\nns A 127.0.0.1\nw A 127.0.0.1\n";
        fs::write(folder.join("test.zone"), zone).unwrap();
        let mut command = Command::new(require("knotd", "knot"));
        command.arg("-c").arg(folder.join("knot.conf"));
        let process = Process::start(command, LIFE).unwrap();
        process.wait_for(&Ready::Line("server started".into()), PATIENCE).unwrap();
        Self { _process: process, port }
    }

    /// Whether the name has a TXT record.
    pub(crate) fn has_text(&self, name: &str) -> bool {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut question = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            question.push(u8::try_from(label.len()).unwrap());
            question.extend(label.as_bytes());
        }
        question.extend([0, 0, 16, 0, 1]);
        socket.send_to(&question, ("127.0.0.1", self.port)).unwrap();
        let mut answer = [0; 2048];
        let length = socket.recv(&mut answer).unwrap();
        assert!(length > 12 && answer[..2] == [0, 7]);
        // The count of answers.
        answer[6..8] != [0, 0]
    }
}
