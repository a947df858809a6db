//! What arrived at a server, connection by connection: for PROXY headers and for what must not arrive.

use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Listen, Server, Stream};
use crate::Error;

/// The bytes of every connection to one server, growing while they arrive.
#[derive(Clone, Default)]
pub struct Recording {
    shared: Arc<(Mutex<Vec<Vec<u8>>>, Condvar)>,
}

impl Recording {
    /// A server that keeps all that arrives and sends it back.
    ///
    /// # Errors
    /// What binding says.
    pub fn start(listen: &Listen) -> Result<(Server, Self), Error> {
        let recording = Self::default();
        let server = Server::start(listen, {
            let recording = recording.clone();
            move |stream| recording.run(stream)
        })?;
        Ok((server, recording))
    }

    /// What has arrived so far, one entry per connection in the order of their beginning.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Vec<u8>> {
        self.lock().clone()
    }

    /// Waits until what has arrived satisfies `enough`.
    ///
    /// # Errors
    /// [`Error::Setup`] with what has arrived, after `timeout`.
    pub fn wait_until(
        &self,
        timeout: Duration,
        enough: impl Fn(&[Vec<u8>]) -> bool,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let deadline = Instant::now() + timeout;
        let mut connections = self.lock();
        loop {
            if enough(&connections) {
                return Ok(connections.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seen: Vec<_> = connections.iter().map(|bytes| bytes.escape_ascii().to_string()).collect();
                return Err(Error::setup(format!("within {timeout:?} only this arrived: {seen:?}")));
            }
            let waited = self.shared.1.wait_timeout(connections, left);
            connections = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn run(&self, mut stream: Stream) {
        let index = {
            let mut connections = self.lock();
            connections.push(Vec::new());
            connections.len() - 1
        };
        self.shared.1.notify_all();
        let mut chunk = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = stream.read(&mut chunk) {
            self.lock()[index].extend_from_slice(&chunk[..length]);
            self.shared.1.notify_all();
            if stream.write_all(&chunk[..length]).is_err() {
                break;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
