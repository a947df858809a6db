//! The application behind `offramp demo`, on a Unix socket.
//!
//! It runs on a thread and a runtime of its own, as separate from the proxy as another process, and learns
//! about its clients like any application: from the PROXY header.

mod answer;
mod filler;
mod page;
mod seen;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// The running application. Dropping it stops it and removes its socket.
pub(crate) struct DemoApplication {
    directory: TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl DemoApplication {
    /// Starts the application on a socket in a private directory.
    ///
    /// # Errors
    /// The directory, the socket or the thread cannot be created.
    pub(crate) fn start() -> io::Result<Self> {
        // Mode 0700: the socket is for this user only.
        let directory = tempfile::Builder::new().prefix("offramp-demo-").tempdir()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _guard = runtime.enter();
            UnixListener::bind(directory.path().join(SOCKET))?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("demo".to_owned())
            .spawn(move || runtime.block_on(serve(listener, stopped)))?;
        Ok(DemoApplication { directory, stop: Some(stop), thread: Some(thread) })
    }

    /// Path of the application's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join(SOCKET)
    }
}

impl Drop for DemoApplication {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic.
            let _ = thread.join();
        }
    }
}

const SOCKET: &str = "app.sock";

/// Accepts connections until it is stopped, which also aborts open ones.
async fn serve(listener: UnixListener, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream))),
                // Most likely out of descriptors, which open connections release as they end.
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection; its failure affects no other.
async fn connection(mut stream: UnixStream) {
    let Ok(Ok(seen)) = tokio::time::timeout(HEADER_TIMEOUT, seen::read(&mut stream)).await else {
        return;
    };
    let seen = Arc::new(seen);
    let service = service_fn(move |request| {
        let answer = answer::answer(&seen, request);
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).half_close(true);
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

/// Delay after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Timeout of the PROXY header and of each request head; also bounds the idle time of a connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
