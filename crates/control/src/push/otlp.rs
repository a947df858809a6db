//! Figures and spans for an OpenTelemetry collector, in OTLP over plain HTTP/1.1 with JSON bodies.
//!
//! Spans go every five seconds, figures once a minute: what OpenTelemetry's own exporters do by default. A
//! batch of spans that the collector could not take for now is tried again the next time; meanwhile spans wait
//! in their bounded queue. What the collector refuses for good is counted and dropped.

use std::io;
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use offramp_config::model::{OtlpUrl, ServerAddress, TracingConfig};
use offramp_observe::otlp::{SpanQueue, render_spans};
use offramp_observe::{Exposition, Log};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{PATIENCE, Task, Teller};

/// The interval between exports of spans.
const SPANS_EVERY: Duration = Duration::from_secs(5);
/// Figures are sent with every so many times of spans: once a minute.
const FIGURES_EVERY: u32 = 12;
/// Spans in one request.
const BATCH: usize = 512;
/// The most bytes of an answer that are read; they say nothing that is needed.
const ANSWER: usize = 64 * 1024;

/// The collector, and what it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Collector {
    url: OtlpUrl,
    figures: bool,
    every: Duration,
}

/// The collector's answer to a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Taken,
    /// It may take it later (OTLP specification, "Retryable Response Codes").
    Later(StatusCode),
    Refused(StatusCode),
}

impl Verdict {
    fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200..=299 => Self::Taken,
            429 | 502..=504 => Self::Later(status),
            _ => Self::Refused(status),
        }
    }
}

impl Collector {
    /// The collector of the configuration.
    pub(super) fn of(tracing: &TracingConfig) -> Option<Self> {
        Some(Self { url: tracing.otlp.clone()?, figures: tracing.metrics, every: SPANS_EVERY })
    }

    /// Sends until it is dropped.
    pub(super) async fn run(self, page: Exposition, spans: SpanQueue, log: Log) {
        let mut due = interval(self.every);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut teller = Teller::new("OpenTelemetry", &self.url.server, log);
        let mut waiting = Vec::new();
        let mut round = 0;
        loop {
            due.tick().await;
            if waiting.is_empty() {
                waiting = spans.take(BATCH);
            }
            let figures = self.figures && round == 0;
            round = (round + 1) % FIGURES_EVERY;
            if waiting.is_empty() && !figures {
                continue;
            }
            let export = self.export(&page, figures, &spans, &mut waiting);
            let outcome = match timeout(PATIENCE, export).await {
                Ok(outcome) => outcome,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            };
            teller.tell(&outcome);
        }
    }

    /// Sends figures, and spans until none wait. What is still in `waiting` after a failure is for next time.
    async fn export(
        &self,
        page: &Exposition,
        figures: bool,
        spans: &SpanQueue,
        waiting: &mut Vec<Box<[u8]>>,
    ) -> io::Result<()> {
        let mut link = Link::open(&self.url).await?;
        if figures {
            let mut body = Vec::new();
            page.render_otlp(SystemTime::now(), &mut body);
            match link.post("/v1/metrics", body).await? {
                Verdict::Taken => {}
                Verdict::Later(status) | Verdict::Refused(status) => return Err(answered(status)),
            }
        }
        while !waiting.is_empty() {
            let mut body = Vec::new();
            render_spans(&page.build, waiting, &mut body);
            match link.post("/v1/traces", body).await? {
                Verdict::Taken => spans.exported(waiting.len()),
                Verdict::Later(status) => return Err(answered(status)),
                Verdict::Refused(status) => {
                    spans.refused(waiting.len());
                    waiting.clear();
                    return Err(answered(status));
                }
            }
            *waiting = spans.take(BATCH);
        }
        Ok(())
    }
}

fn answered(status: StatusCode) -> io::Error {
    io::Error::other(format!("the collector answered {status}"))
}

/// A connection to the collector, for one round.
struct Link<'a> {
    url: &'a OtlpUrl,
    sender: SendRequest<Full<Bytes>>,
    _connection: Task,
}

impl<'a> Link<'a> {
    async fn open(url: &'a OtlpUrl) -> io::Result<Self> {
        let stream = match &url.server {
            ServerAddress::Ip(address) => TcpStream::connect(address).await?,
            ServerAddress::Name { host, port } => TcpStream::connect((host.as_str(), *port)).await?,
            // The URL of a collector never has one.
            ServerAddress::Unix(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let connection = Task(tokio::spawn(connection).abort_handle());
        Ok(Self { url, sender, _connection: connection })
    }

    async fn post(&mut self, path: &str, body: Vec<u8>) -> io::Result<Verdict> {
        self.sender.ready().await.map_err(io::Error::other)?;
        let request = Request::post(format!("{}{path}", self.url.path))
            .header(HOST, self.url.server.to_string())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .map_err(io::Error::other)?;
        let response = self.sender.send_request(request).await.map_err(io::Error::other)?;
        let verdict = Verdict::of(response.status());
        // The connection is free for the next request once the answer was read.
        Limited::new(response.into_body(), ANSWER).collect().await.map_err(io::Error::other)?;
        Ok(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::{Collector, PATIENCE, Verdict};
    use http_body_util::{BodyExt, Full};
    use hyper::body::{Bytes, Incoming};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Request, Response, StatusCode};
    use hyper_util::rt::TokioIo;
    use offramp_observe::event::Tap;
    use offramp_observe::facts::{
        Cause, ClientScheme, Close, ConnectionBrief, ConnectionFacts, HttpVersion, IdSource, RequestFacts,
        RequestSummary, Trace,
    };
    use offramp_observe::otlp::{SpanQueue, SpanTally, SpanTap};
    use offramp_observe::prometheus::Build;
    use offramp_observe::{Counters, Event, Exposition, Log};
    use std::convert::Infallible;
    use std::net::SocketAddr;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, UNIX_EPOCH};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio::time::timeout;

    /// A collector that answers with these statuses, then with 200, and tells of each request's path and body.
    async fn collector(statuses: Vec<u16>) -> (String, UnboundedReceiver<(String, String)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/otlp", listener.local_addr().unwrap());
        let (sender, receiver) = unbounded_channel();
        let statuses = Arc::new(Mutex::new(statuses.into_iter()));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (sender, statuses) = (sender.clone(), Arc::clone(&statuses));
                let service = service_fn(move |request: Request<Incoming>| {
                    let status = statuses.lock().unwrap().next().unwrap_or(200);
                    let sender = sender.clone();
                    async move {
                        assert_eq!(request.headers()["content-type"], "application/json");
                        let path = request.uri().path().to_owned();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let _ = sender.send((path, String::from_utf8(body.to_vec()).unwrap()));
                        let mut response = Response::new(Full::<Bytes>::default());
                        *response.status_mut() = StatusCode::from_u16(status).unwrap();
                        Ok::<_, Infallible>(response)
                    }
                });
                // The client hangs up when it has nothing more to say.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            }
        });
        (url, receiver)
    }

    /// A sampled request with this span id.
    fn request(span: u64) -> Event {
        let id = IdSource::new(0, 0).next(UNIX_EPOCH);
        let client: SocketAddr = "192.0.2.1:5000".parse().unwrap();
        let brief =
            ConnectionBrief::from(&ConnectionFacts::new(id, 0, "web".into(), UNIX_EPOCH, client.into()));
        let line = RequestSummary {
            method: "GET".into(),
            scheme: ClientScheme::Https,
            host: "example.org".into(),
            target: "/".into(),
            version: HttpVersion::Http2,
            referer: None,
            user_agent: None,
            user: None,
        };
        let mut facts = RequestFacts::new("id".into(), Arc::new(brief), UNIX_EPOCH, line);
        facts.close = Close::from(Cause::Completed);
        facts.trace = Some(Trace { id: 1, span, parent: None, sampled: true });
        Event::Request(Box::new(facts))
    }

    fn add(spans: &SpanQueue, span: u64) {
        let mut tap = SpanTap::new(spans.clone(), false);
        tap.take(&request(span));
        tap.flush();
    }

    #[test]
    fn statuses_say_whether_to_try_again() {
        let of = |status: u16| Verdict::of(StatusCode::from_u16(status).unwrap());
        assert_eq!((of(200), of(202)), (Verdict::Taken, Verdict::Taken));
        assert_eq!(of(503), Verdict::Later(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(of(500), Verdict::Refused(StatusCode::INTERNAL_SERVER_ERROR));
    }

    #[test]
    fn a_busy_collector_gets_the_batch_again_and_a_refusing_one_does_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // Figures first; then the first span is put off once, and the second refused.
            let (url, mut received) = collector(vec![200, 503, 200, 400]).await;
            let spans = SpanQueue::default();
            add(&spans, 0xa);
            let page = Exposition::new(Counters::new(1).0, Build { version: "0.0.0", commit: "" });
            let collector =
                Collector { url: url.parse().unwrap(), figures: true, every: Duration::from_millis(20) };
            let task = tokio::spawn(collector.run(page, spans.clone(), Log::silent()));
            let mut next = async || timeout(PATIENCE, received.recv()).await.unwrap().unwrap();
            let (path, body) = next().await;
            assert!(path == "/otlp/v1/metrics" && body.contains("offramp_workers"), "{path} {body}");
            for _ in 0..2 {
                let (path, body) = next().await;
                assert_eq!(path, "/otlp/v1/traces");
                assert!(body.contains(r#""spanId":"000000000000000a""#), "{body}");
            }
            add(&spans, 0xb);
            assert!(next().await.1.contains("000000000000000b"));
            add(&spans, 0xc);
            assert!(next().await.1.contains("000000000000000c"), "what was refused does not come again");
            // The answers to all before are in when the next is sent.
            add(&spans, 0xd);
            next().await;
            let SpanTally { exported, dropped, refused } = spans.tally();
            assert!(exported >= 2 && (dropped, refused) == (0, 1), "{exported} {dropped} {refused}");
            task.abort();
        });
    }
}
