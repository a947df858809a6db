//! Behaviours of applications that do not work, each in one way. One that refuses connections is
//! [`Refusing`](super::Refusing).

use std::io::{Read, Write};
use std::net::Shutdown;

use super::Stream;
use super::apps::drain;

/// Accepts, reads all that comes, and never answers.
pub fn hang(mut stream: Stream) {
    drain(&mut stream);
}

/// Resets the connection at once. Over a Unix socket the peer sees a plain close unless it has sent
/// something.
pub fn reset(stream: Stream) {
    // Without the option this is a close, which the test will see.
    let _ = stream.reset_on_close();
    drop(stream);
}

/// Waits for the first bytes, answers with `prefix` and resets the connection.
pub fn reset_in_the_middle(prefix: &'static [u8]) -> impl Fn(Stream) + Send + Sync + 'static {
    move |mut stream| {
        if answer_first(&mut stream, prefix) {
            let _ = stream.reset_on_close();
        }
    }
}

/// Waits for the first bytes, answers with `prefix` and closes in order, as if more had to follow.
pub fn close_in_the_middle(prefix: &'static [u8]) -> impl Fn(Stream) + Send + Sync + 'static {
    move |mut stream| {
        if answer_first(&mut stream, prefix) {
            let _ = stream.shutdown(Shutdown::Write);
            drain(&mut stream);
        }
    }
}

/// Reads until the peer has closed its side, and only then answers, with `answer`.
pub fn answer_after_eof(answer: &'static [u8]) -> impl Fn(Stream) + Send + Sync + 'static {
    move |mut stream| {
        drain(&mut stream);
        let _ = stream.write_all(answer);
        let _ = stream.shutdown(Shutdown::Write);
    }
}

/// Sends `greeting`, closes its own side at once, and goes on reading until the peer closes.
pub fn close_own_side_first(greeting: &'static [u8]) -> impl Fn(Stream) + Send + Sync + 'static {
    move |mut stream| {
        let _ = stream.write_all(greeting);
        let _ = stream.shutdown(Shutdown::Write);
        drain(&mut stream);
    }
}

/// Answers what comes first; whether there was a peer to answer.
fn answer_first(stream: &mut Stream, prefix: &[u8]) -> bool {
    let mut first = [0; 1024];
    matches!(stream.read(&mut first), Ok(1..)) && stream.write_all(prefix).is_ok()
}
