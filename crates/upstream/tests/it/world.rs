//! A worker's runtime, backends, and requests for tests.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use offramp_net::Address;
use offramp_upstream::{Affinity, Answer, Backend, Candidate, Failure, Pools, RequestBody, Server};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedReceiver;

/// Runs a test as a worker runs, for at most 30 seconds.
pub(crate) fn worker<T>(test: impl Future<Output = T>) -> T {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), test).await.unwrap() })
}

/// A backend of these servers.
pub(crate) fn backend(servers: &[SocketAddr]) -> Backend {
    let server = |address: &SocketAddr| (Server::at(Address::Tcp(*address)), Candidate::default());
    Backend::new("app", servers.iter().map(server))
}

/// The body of a request.
#[derive(Debug)]
pub(crate) enum Sent {
    Nothing,
    Whole(Option<Bytes>),
    /// Piece by piece, as the test gives them; `Err` breaks it off.
    Pieces(UnboundedReceiver<Result<Bytes, String>>),
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Sent::Nothing => Poll::Ready(None),
            Sent::Whole(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Sent::Pieces(pieces) => pieces
                .poll_recv(cx)
                .map(|piece| piece.map(|piece| piece.map(Frame::data).map_err(Into::into))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Sent::Nothing | Sent::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Sent::Nothing | Sent::Whole(None) => SizeHint::with_exact(0),
            Sent::Whole(Some(body)) => SizeHint::with_exact(body.len() as u64),
            Sent::Pieces(_) => SizeHint::default(),
        }
    }
}

impl RequestBody for Sent {}

/// A request without a body.
pub(crate) fn get(path: &str) -> Request<Sent> {
    request("GET", path, Sent::Nothing)
}

pub(crate) fn request(method: &str, path: &str, body: Sent) -> Request<Sent> {
    Request::builder().method(method).uri(path).header("host", "app.test").body(body).unwrap()
}

pub(crate) fn whole(body: impl Into<Bytes>) -> Sent {
    Sent::Whole(Some(body.into()))
}

/// Nothing is known of the client.
pub(crate) fn nobody() -> Affinity<'static, Sent> {
    Affinity { client: None, tls: true, private: None, attempted: &|_| (), interim: None }
}

/// Sends a request on behalf of nobody.
pub(crate) async fn send(
    pools: &Pools<Sent>,
    backend: &Arc<Backend>,
    request: Request<Sent>,
) -> Result<Answer<Sent>, Failure> {
    pools.send(backend, request, &nobody()).await
}

/// The body of an answer as text.
pub(crate) async fn text(answer: Answer<Sent>) -> String {
    let body = answer.response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}
