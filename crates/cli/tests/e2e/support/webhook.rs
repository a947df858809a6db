//! A receiver of notifications: a server that keeps the requests that it gets.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::support::instance::Instance;

/// A listener of HTTP without TLS, and no more.
pub(crate) const PLAIN: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n";

/// The status of an answer that never comes.
pub(crate) const SILENT: u16 = 0;

/// A server that keeps the requests that it gets, and answers each with a status of the test's choice.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    status: Arc<AtomicU16>,
    requests: Arc<Mutex<Vec<Told>>>,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// The request line and the fields, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Told {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Site {
    pub(crate) fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (status, requests) = (Arc::new(AtomicU16::new(status)), Arc::<Mutex<Vec<Told>>>::default());
        let (answer, kept) = (Arc::clone(&status), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, kept) = (Arc::clone(&answer), Arc::clone(&kept));
                std::thread::spawn(move || serve(&stream.unwrap(), &answer, &kept));
            }
        });
        Self { address, status, requests }
    }

    pub(crate) fn answers(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub(crate) fn requests(&self) -> Vec<Told> {
        self.requests.lock().unwrap().clone()
    }

    /// Waits for the request of this number, from 0.
    pub(crate) fn request(&self, instance: &Instance, number: usize) -> Told {
        instance.until(&format!("request {number}"), || self.requests().get(number).cloned())
    }
}

fn serve(mut stream: &TcpStream, status: &AtomicU16, requests: &Mutex<Vec<Told>>) {
    let mut read = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        // A prober or a client may go.
        if read.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        head.push_str(&line);
        head.push('\n');
    }
    let mut body = vec![0; length];
    read.read_exact(&mut body).unwrap();
    requests.lock().unwrap().push(Told { head, body: String::from_utf8(body).unwrap() });
    match status.load(Ordering::Relaxed) {
        // Until the client gives up.
        SILENT => drop(read.read(&mut [0])),
        status => {
            let _ = write!(
                stream,
                "HTTP/1.1 {status} X\r\nContent-Length: 2\r\nConnection: close\r\nLocation: /elsewhere\r\n\r\nok"
            );
        }
    }
}

/// A backend with health checks that notice within a moment.
pub(crate) fn backend(server: SocketAddr) -> String {
    format!(
        "[[route]]\nbackend = \"app\"\n[backend.app]\nservers = [\"{server}\"]\n\
         health = {{ path = \"/up\", interval = \"100ms\", timeout = \"1s\", rise = 1, fall = 1 }}\n"
    )
}

/// A receiver of this name that gets messages at once.
pub(crate) fn receiver(name: &str, url: &str, more: &str) -> String {
    format!("[[notify]]\nname = \"{name}\"\nurl = \"{url}\"\ngroup = \"0s\"\nrest = \"0s\"\n{more}")
}

/// The only event of a message in JSON: its kind, its state and what it is about.
pub(crate) fn event(told: &Told) -> [String; 3] {
    let json = told.json();
    assert_eq!(json["events"].as_array().map(Vec::len), Some(1), "{json}");
    ["kind", "state", "about"].map(|key| json["events"][0][key].as_str().unwrap().to_owned())
}
