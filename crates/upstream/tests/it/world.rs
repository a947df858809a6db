//! A worker's runtime, backends, and requests for tests.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use offramp_http::body::Frame;
use offramp_net::Address;
use offramp_upstream::{
    Affinity, Backend, Candidate, FailedRequest, Pools, RequestBody, Server, ServerBody, UpstreamFault,
    UpstreamResponse,
};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedReceiver;

/// Runs a test like a worker, for at most 30 seconds.
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

/// Body of a request.
#[derive(Debug)]
pub(crate) enum Sent {
    Nothing,
    Whole(Option<Bytes>),
    /// Pieces given by the test; `Err` aborts the body.
    Pieces(UnboundedReceiver<Result<Bytes, String>>),
}

impl RequestBody for Sent {
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Self::Error>>> {
        match self {
            Sent::Nothing => Poll::Ready(None),
            Sent::Whole(body) => Poll::Ready(body.take().map(|body| Ok(Frame::Data(body)))),
            Sent::Pieces(pieces) => pieces
                .poll_recv(cx)
                .map(|piece| piece.map(|piece| piece.map(Frame::Data).map_err(Into::into))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Sent::Nothing | Sent::Whole(None))
    }

    fn length(&self) -> Option<u64> {
        match self {
            Sent::Nothing | Sent::Whole(None) => Some(0),
            Sent::Whole(Some(body)) => Some(body.len() as u64),
            Sent::Pieces(_) => None,
        }
    }
}

/// Reading of a response in tests.
pub(crate) trait BodyExt {
    /// Returns the next part.
    async fn frame(&mut self) -> Option<Result<Frame, UpstreamFault>>;

    /// Reads everything.
    async fn collect(self) -> Result<Collected, UpstreamFault>;
}

/// A complete body.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    data: Vec<u8>,
    trailers: Option<HeaderMap>,
}

impl Collected {
    pub(crate) fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.data)
    }

    pub(crate) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }
}

impl<B: RequestBody> BodyExt for ServerBody<B> {
    async fn frame(&mut self) -> Option<Result<Frame, UpstreamFault>> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    async fn collect(mut self) -> Result<Collected, UpstreamFault> {
        let mut all = Collected::default();
        while let Some(frame) = self.frame().await {
            match frame?.into_data() {
                Ok(data) => all.data.extend_from_slice(&data),
                Err(trailers) => {
                    let header = |(name, value): (&[u8], &[u8])| {
                        (name.try_into().unwrap(), http::HeaderValue::from_bytes(value).unwrap())
                    };
                    all.trailers = Some(trailers.iter().map(header).collect());
                }
            }
        }
        Ok(all)
    }
}

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

/// An unknown client.
pub(crate) fn nobody() -> Affinity<'static, Sent> {
    Affinity {
        client: None,
        tls: true,
        private: None,
        progress: &|_| (),
        interim: None,
        timeouts: offramp_upstream::Timeouts::default(),
    }
}

/// Sends a request without a client.
pub(crate) async fn send(
    pools: &Pools<Sent>,
    backend: &Arc<Backend>,
    request: Request<Sent>,
) -> Result<UpstreamResponse<Sent>, FailedRequest> {
    pools.send(backend, request, &nobody()).await
}

/// Body of a response as text.
pub(crate) async fn text(answer: UpstreamResponse<Sent>) -> String {
    let body = answer.response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}
