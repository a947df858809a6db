//! The end of a client's connection where it is not the ordinary one.
//!
//! Closing a socket with unread input makes the kernel send a reset, which can overtake and destroy
//! what was said last. So after a last word the direction is shut, and what still comes is read and
//! dropped for a moment.

use std::time::Duration;

use offramp_net::Socket;
use tokio::time::timeout;

/// How long a client has to take a last word and to close.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much a client may still send in that time: it may be in the middle of an upload that the server
/// has answered already.
const MOST_DROPPED: usize = 64 * 1024 * 1024;
/// How much of it is read at a time.
const BIN: usize = 32 * 1024;

/// Sends `last`, ends the direction, and waits a moment for the peer to close.
pub(crate) async fn farewell(socket: &Socket, last: &[u8]) {
    let _ = timeout(PATIENCE, async {
        socket.write_all(last).await?;
        socket.shutdown_write()?;
        let mut dropped = 0;
        let mut bin = vec![0; BIN];
        loop {
            match socket.read(&mut bin).await? {
                0 => break std::io::Result::Ok(()),
                n if dropped + n > MOST_DROPPED => break Ok(()),
                n => dropped += n,
            }
        }
    })
    .await;
}
