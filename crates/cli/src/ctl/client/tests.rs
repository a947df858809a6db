use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;

use super::*;

/// A socket at which the first client gets a constant answer.
struct Other {
    path: PathBuf,
    thread: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Other {
    fn new(answer: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            if !answer.is_empty() {
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    stream.read_line(&mut line).unwrap();
                }
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        });
        Self { path, thread, _folder: folder }
    }

    /// Error of a request to it.
    fn refuses(self, request: &AdminRequest) -> String {
        let failure = AdminClient::at_socket(&self.path).ask_json(request).unwrap_err().to_string();
        self.thread.join().unwrap();
        assert!(failure.contains(&self.path.display().to_string()), "{failure}");
        failure
    }
}

#[test]
fn a_connection_that_is_closed_without_an_answer_says_why_that_may_be() {
    let read = Other::new("").refuses(&AdminRequest::new("GET", "/status"));
    assert!(read.contains("as many connections are open as may be") && !read.contains("history"), "{read}");
    let change = Other::new("").refuses(&AdminRequest::new("POST", "/reload"));
    assert!(change.contains("Try again\nWhat was asked for may still be done"), "{change}");
}

#[test]
fn an_answer_of_another_program_is_recognized() {
    let said = Other::new("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
        .refuses(&AdminRequest::new("GET", "/status"));
    assert!(said.contains("what listens there is no admin interface"), "{said}");
}
