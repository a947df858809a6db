//! A client program that is talked to: said something, waited for its answer, said more.

use std::io::{Read, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A running client. Dropping it kills it.
pub(crate) struct Conversation {
    child: Child,
    input: Option<ChildStdin>,
    heard: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Conversation {
    /// Starts the client with all its ends in our hands.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let heard = Arc::default();
        let readers =
            vec![listen(child.stdout.take().unwrap(), &heard), listen(child.stderr.take().unwrap(), &heard)];
        Self { input: child.stdin.take(), child, heard, readers }
    }

    /// Writes to its standard input.
    pub(crate) fn say(&mut self, what: &str) {
        self.input.as_mut().unwrap().write_all(what.as_bytes()).unwrap_or_else(|error| {
            panic!("it does not listen to {what:?}: {error}\n{}", self.heard());
        });
    }

    /// All that it has written so far, to both outputs.
    pub(crate) fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().unwrap()).into_owned()
    }

    /// Waits until it has written this text.
    pub(crate) fn hear(&mut self, text: &str) {
        self.hear_times(text, 1);
    }

    /// Waits until it has written this text so many times.
    pub(crate) fn hear_times(&mut self, text: &str, times: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Asked first, so that what an ended client has left in its pipes still counts.
            let late = self.readers.iter().all(JoinHandle::is_finished) || Instant::now() >= deadline;
            let heard = self.heard();
            if heard.matches(text).count() >= times {
                return;
            }
            assert!(!late, "not said {times} times: {text:?}\n{heard}");
            thread::sleep(POLL);
        }
    }

    /// Waits until it has written one of these texts: whether it is the first.
    pub(crate) fn hear_either(&mut self, one: &str, other: &str) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let heard = self.heard();
            if heard.contains(one) || heard.contains(other) {
                return heard.contains(one);
            }
            assert!(Instant::now() < deadline, "neither {one:?} nor {other:?}\n{heard}");
            thread::sleep(POLL);
        }
    }

    /// Closes its standard input, waits for its end, and gives its status and all that it has written.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        drop(self.input.take());
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "it does not end:\n{}", self.heard()),
            }
            thread::sleep(POLL);
        };
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        (status, self.heard())
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // Fails where it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(mut output: impl Read + Send + 'static, heard: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    let heard = Arc::clone(heard);
    thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = output.read(&mut chunk) {
            heard.lock().unwrap().extend_from_slice(&chunk[..length]);
        }
    })
}

/// How long a client is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const POLL: Duration = Duration::from_millis(5);
