//! Framing of requests with content.

use std::collections::VecDeque;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request};
use offramp_http::body::Frame;
use offramp_http::head::Fields;
use offramp_upstream::{Affinity, FailedRequest, Pools, RequestBody, UpstreamFault};

use crate::server::{HELLO, Server};
use crate::world::{backend, worker};

/// A body of available frames; `size` is its declared length.
struct Frames {
    frames: VecDeque<Frame>,
    size: Option<u64>,
}

impl RequestBody for Frames {
    type Error = std::convert::Infallible;

    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, Self::Error>>> {
        Poll::Ready(self.frames.pop_front().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        false
    }

    fn length(&self) -> Option<u64> {
        self.size
    }
}

fn data(text: &'static str) -> Frame {
    Frame::Data(Bytes::from_static(text.as_bytes()))
}

/// Sends a request and returns the `n` bytes that the server received.
fn sent(
    method: &str,
    fields: &[(&str, &str)],
    frames: impl IntoIterator<Item = Frame>,
    size: Option<u64>,
    n: usize,
) -> Result<String, FailedRequest> {
    let mut request = Request::builder().method(method).uri("/").header("host", "a");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(Frames { frames: frames.into_iter().collect(), size }).unwrap();
    let (tell, told) = mpsc::channel();
    worker(async move {
        let server = Server::start(move |mut peer| {
            if n == 0 {
                return peer.wait_for_close();
            }
            let _ = tell.send(String::from_utf8(peer.body(n)).unwrap());
            peer.say(HELLO);
            peer.wait_for_close();
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        let about = Affinity {
            client: None,
            tls: true,
            private: None,
            progress: &|_| (),
            interim: None,
            timeouts: offramp_upstream::Timeouts::default(),
        };
        pools.send(&backend, request, &about).await.map(drop)
    })?;
    Ok(told.recv().unwrap())
}

#[test]
fn content_is_sent_with_its_framing() {
    let trailers = || {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "5".parse().unwrap());
        trailers.insert("x-other", "6".parse().unwrap());
        let mut fields = Fields::new();
        fields.load_map(&trailers);
        Frame::Trailers(Box::new(fields))
    };
    let head = |method: &str, fields: &str| format!("{method} / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
    let chunked = "transfer-encoding: chunked\r\n";
    let table = [
        ("POST", vec![], vec![data("hello")], Some(5), head("POST", "content-length: 5\r\n") + "hello"),
        (
            "POST",
            vec![],
            vec![data("he"), data("llo")],
            Some(5),
            head("POST", "content-length: 5\r\n") + "hello",
        ),
        (
            "PUT",
            vec![],
            vec![data("he"), data(""), data("llo")],
            None,
            head("PUT", chunked) + "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        ),
        ("POST", vec![], vec![], None, head("POST", chunked) + "0\r\n\r\n"),
        ("GET", vec![], vec![data("lost")], None, head("GET", "")),
        (
            "GET",
            vec![("transfer-encoding", "chunked")],
            vec![data("kept")],
            None,
            head("GET", chunked) + "4\r\nkept\r\n0\r\n\r\n",
        ),
        (
            "POST",
            vec![("trailer", "x-sum")],
            vec![data("hello"), trailers()],
            None,
            head("POST", &format!("trailer: x-sum\r\n{chunked}")) + "5\r\nhello\r\n0\r\nx-sum: 5\r\n\r\n",
        ),
        // Trailers that were not announced, or are not permitted.
        ("POST", vec![], vec![trailers()], None, head("POST", chunked) + "0\r\n\r\n"),
        (
            "POST",
            vec![("trailer", "x-sum")],
            vec![data("hello"), trailers()],
            Some(5),
            head("POST", "trailer: x-sum\r\ncontent-length: 5\r\n") + "hello",
        ),
    ];
    for (method, fields, frames, size, expected) in table {
        let n = expected.len();
        assert_eq!(sent(method, &fields, frames, size, n).unwrap(), expected);
    }
}

#[test]
fn a_body_of_another_length_is_aborted() {
    for (frames, size) in [
        (vec![data("hell")], Some(5)),
        (vec![], Some(5)),
        (vec![data("hello!")], Some(5)),
        (vec![data("hel"), data("lo!")], Some(5)),
        (vec![data("hell"), Frame::Trailers(Box::default())], Some(5)),
    ] {
        let failure = sent("POST", &[], frames, size, 0).unwrap_err();
        assert!(matches!(failure.fault, UpstreamFault::RequestBody(_)), "{:?}", failure.fault);
        assert!(failure.fault.to_string().contains("not of the length"));
    }
}
