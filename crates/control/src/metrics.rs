//! The page that Prometheus reads: `GET /metrics` over plain HTTP/1.1, and nothing else.
//!
//! `GET /metrics?created` as OpenMetrics has the times since when figures are counted as well.
//!
//! It runs on the control thread and reads counters; no worker notices. Each connection serves one
//! request and is bounded in time, and there are few at once: a client that floods this endpoint keeps out
//! other readers of it, and nothing more.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use offramp_config::{Config, model};
use offramp_net::listen::{AcceptError, Acceptor};
use offramp_net::{Address, PeerAddress, listen};
use offramp_observe::{ClientSettings, Exposition, ExpositionFormat, Log, panics};
use offramp_process::inherited::{Inherited, Purpose};
use offramp_process::{Finding, supervise};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};

use crate::listeners::{explain, net_address, unlink};

/// Requests at once: a few Prometheus servers and a person.
const CONNECTIONS: usize = 16;
/// The time limit of a request's head.
const HEAD: Duration = Duration::from_secs(10);
/// The time limit of a connection from accept to close.
const WHOLE: Duration = Duration::from_secs(30);
/// The pause of accepting when descriptors or memory have run out.
const PAUSE: Duration = Duration::from_secs(1);

/// The endpoint as it runs; it ends when dropped, connections included once they are done.
pub(crate) struct Endpoint {
    bound: Address,
    task: AbortHandle,
    /// For the process that takes the place of this one.
    socket: OwnedFd,
    /// Set if the service manager has it too.
    pub(crate) foreign: bool,
    /// Set if a process that takes the place of this one has it.
    left: bool,
}

/// Opens the endpoint's socket; must be called within a tokio runtime.
///
/// # Errors
/// Which address, why not, and what to do.
pub(crate) fn open(endpoint: &model::ServiceEndpoint, inherited: &mut Inherited) -> Result<Opened, Finding> {
    let address = net_address(&endpoint.address);
    let refused =
        |error: &io::Error| Finding::new(&endpoint.at, format!("metrics: {}", explain(&address, error)));
    let set = inherited.for_address(Purpose::Metrics, "metrics", &address);
    let adopted = set.is_some();
    let foreign = set.as_ref().is_some_and(|set| set.label.foreign);
    let fds = match set {
        Some(set) => listen::adopt(set.fds, 1),
        None => listen::open(&address, 1),
    };
    let mut fds = fds.map_err(|error| refused(&error))?;
    let Some(fd) = fds.pop() else { return Err(refused(&io::ErrorKind::NotFound.into())) };
    let bound = listen::bound_address(&fd).map_or(address.clone(), Address::Tcp);
    let socket = fd.try_clone().map_err(|error| refused(&error))?;
    let acceptor = Acceptor::new(fd).map_err(|error| refused(&error))?;
    Ok(Opened { acceptor, socket, bound, foreign, adopted })
}

/// The endpoint's socket, not yet served.
pub(crate) struct Opened {
    acceptor: Acceptor,
    socket: OwnedFd,
    bound: Address,
    /// Set where the service manager has it too.
    foreign: bool,
    /// Set where another process has opened it.
    adopted: bool,
}

impl Opened {
    /// Takes away the file of a Unix socket.
    pub(crate) fn abandon(&self) {
        if !self.adopted {
            unlink(&self.bound);
        }
    }
}

impl Endpoint {
    /// Serves the page; must be called within a tokio runtime.
    pub(crate) fn serve(opened: Opened, page: Exposition, log: &Log) -> Self {
        let Opened { acceptor, socket, bound, foreign, .. } = opened;
        let (acceptor, page, task_log) = (Arc::new(acceptor), Arc::new(page), log.clone());
        let task = supervise::spawn("metrics page", log, move || {
            accept(Arc::clone(&acceptor), Arc::clone(&page), task_log.clone())
        });
        Self { bound, task, socket, foreign, left: false }
    }

    /// The listening socket of the endpoint.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Ends, and leaves the socket to another process.
    pub(crate) fn leave(mut self) {
        self.left = true;
    }

    /// The address of the endpoint.
    pub(crate) fn address(&self) -> &Address {
        &self.bound
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.left && !self.foreign {
            unlink(&self.bound);
        }
        self.task.abort();
    }
}

/// The clients with their own figures: none without an output for them.
pub(crate) fn clients(config: &Config) -> ClientSettings {
    let is_read = config.telemetry.metrics.endpoint.is_some()
        || config.telemetry.metrics.graphite.is_some()
        || config.telemetry.tracing.metrics
        || config.admin.endpoint.is_some();
    let top = if is_read { config.telemetry.metrics.top_clients as usize } else { 0 };
    ClientSettings { top, anonymize: config.telemetry.access_log.anonymize == model::Anonymize::Ip }
}

async fn accept(acceptor: Arc<Acceptor>, page: Arc<Exposition>, log: Log) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (fd, peer) = match acceptor.accept().await {
            Ok(accepted) => accepted,
            Err(AcceptError::Gone) => {
                yield_now().await;
                continue;
            }
            Err(AcceptError::Descriptors | AcceptError::Memory | AcceptError::Denied(_)) => {
                sleep(PAUSE).await;
                continue;
            }
            Err(AcceptError::Broken(error)) => {
                return log.error("the metrics endpoint failed", &[("reason", (&error).into())]);
            }
        };
        let page = Arc::clone(&page);
        tokio::spawn(async move {
            // A scraper that goes away or sends nonsense needs no event.
            let _ = timeout(WHOLE, connection(fd, peer, page)).await;
            drop(place);
        });
    }
}

async fn connection(fd: OwnedFd, peer: PeerAddress, page: Arc<Exposition>) -> io::Result<()> {
    match peer {
        PeerAddress::Tcp(_) => {
            talk(tokio::net::TcpStream::from_std(std::net::TcpStream::from(fd))?, page).await;
        }
        PeerAddress::Unix => {
            talk(tokio::net::UnixStream::from_std(std::os::unix::net::UnixStream::from(fd))?, page).await;
        }
    }
    Ok(())
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, page: Arc<Exposition>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer_or_500(&page, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(false);
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// The answer; a panic in a figure costs one scrape, not the connection.
fn answer_or_500<B>(page: &Exposition, request: &Request<B>) -> Response<Full<Bytes>> {
    panics::catch(|| answer(page, request)).unwrap_or_else(|_| {
        plain(StatusCode::INTERNAL_SERVER_ERROR, "A fault of Offramp's own; its log has the reason.\n")
    })
}

fn answer<B>(page: &Exposition, request: &Request<B>) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "Only /metrics is here.\n");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are allowed.\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    // Several Accept headers mean the same as one with a list (RFC 9110 §5.3).
    let accept: Vec<&str> =
        request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = ExpositionFormat::from_accept(Some(&accept.join(",")));
    let mut body = Vec::new();
    let created = request.uri().query().is_some_and(|query| query.split('&').any(|key| key == "created"));
    if created && format == ExpositionFormat::OpenMetrics {
        page.render_with_created(&mut body);
    } else {
        page.render(format, &mut body);
    }
    let mut response = Response::new(Full::new(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use offramp_observe::Counters;
    use offramp_observe::prometheus::Build;

    #[test]
    fn a_figure_that_panics_is_a_500() {
        let build = Build { version: "0.0.0", commit: "" };
        let sampler = offramp_observe::Sampler::new(|| panic!("a figure"));
        let page = Exposition { sampler: Some(sampler), ..Exposition::new(Counters::new(1).0, build) };
        let request = Request::get("/metrics").body(()).unwrap();
        assert_eq!(answer_or_500(&page, &request).status(), StatusCode::INTERNAL_SERVER_ERROR);
        let request = Request::get("/other").body(()).unwrap();
        assert_eq!(answer_or_500(&page, &request).status(), StatusCode::NOT_FOUND);
    }

    fn ask(method: &str, path: &str, accept: &str) -> Response<Full<Bytes>> {
        let build = Build { version: "0.0.0", commit: "" };
        let page = Exposition::new(Counters::new(1).0, build);
        let request = Request::builder().method(method).uri(path).header(ACCEPT, accept).body(()).unwrap();
        answer(&page, &request)
    }

    #[test]
    fn the_page_and_what_is_not_it() {
        let page = ask("GET", "/metrics", "*/*");
        assert_eq!(page.status(), StatusCode::OK);
        assert!(page.headers()[CONTENT_TYPE].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
        let open = ask("GET", "/metrics?x=y", "application/openmetrics-text;version=1.0.0");
        assert!(open.headers()[CONTENT_TYPE].to_str().unwrap().starts_with("application/openmetrics-text"));
        assert_eq!(ask("GET", "/", "*/*").status(), StatusCode::NOT_FOUND);
        let post = ask("POST", "/metrics", "*/*");
        assert_eq!(
            (post.status(), &post.headers()[ALLOW]),
            (StatusCode::METHOD_NOT_ALLOWED, &HeaderValue::from_static("GET, HEAD"))
        );
    }
}
