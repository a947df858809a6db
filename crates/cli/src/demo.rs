//! The demo: an application of our own on a Unix socket, for Offramp to stand in front of.
//!
//! It runs on a thread of its own with a runtime of its own, as far from the proxy as another process would
//! be, and learns about its clients as any application could: from the PROXY header.

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

/// The running application. Dropping it ends it and removes its socket.
pub(crate) struct Demo {
    directory: TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Demo {
    /// Starts the application on a socket in a private directory.
    ///
    /// # Errors
    /// There is no directory for it, or what else the system says.
    pub(crate) fn start() -> io::Result<Self> {
        // Mode 0700: nobody else reaches the socket.
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
        Ok(Demo { directory, stop: Some(stop), thread: Some(thread) })
    }

    /// The socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join(SOCKET)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has said so.
            let _ = thread.join();
        }
    }
}

const SOCKET: &str = "app.sock";

/// Accepts until it is stopped; what is still being served then ends with it.
async fn serve(listener: UnixListener, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream))),
                // Out of descriptors, most likely: the connections that there are will end.
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection. A failure ends only this connection.
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

/// After a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// For a PROXY header, and for the head of each request; also how long an idle connection is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
