//! Copies of requests for another backend, without a wait for its responses.
//!
//! A copy leaves when the whole request has come, in a task of its own: the request that it is a copy of never
//! waits for it, and its client learns nothing of it. Each worker has only so many of them, and each is only so
//! large. What is beyond these bounds is not copied, and counted.
//!
//! A change of protocol (WebSocket) is never copied.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use offramp_http::body::Frame;
use offramp_http::head::{Known, Request};
use offramp_observe::counters::Mirrored;
use offramp_observe::facts::ClientScheme;
use offramp_upstream::{Affinity, Backend, RequestBody as _, ServerProtocol, Timeouts};
use tokio::time::timeout;

use super::body::ClientBody;
use super::forward::Forward;
use super::resources::HttpResources;
use super::unwanted::drain;
use crate::resources::Resources;
use crate::snapshot::http::Mirror;

/// For how long a response is read so that its connection can be kept.
const PATIENCE: Duration = Duration::from_secs(5);

/// Number of copies that a worker has under way, by the name of their backend.
#[derive(Default)]
pub(crate) struct Mirrors(Rc<RefCell<HashMap<Arc<str>, u32>>>);

/// The place of one copy, until it is dropped.
struct MirrorPermit {
    all: Rc<RefCell<HashMap<Arc<str>, u32>>>,
    backend: Arc<str>,
}

impl Mirrors {
    /// A place for one more copy, where there are fewer than `most`.
    fn take(&self, backend: &Arc<str>, most: u32) -> Option<MirrorPermit> {
        let mut all = self.0.borrow_mut();
        let count = all.entry(Arc::clone(backend)).or_default();
        (*count < most).then(|| {
            *count += 1;
            MirrorPermit { all: Rc::clone(&self.0), backend: Arc::clone(backend) }
        })
    }
}

impl Drop for MirrorPermit {
    fn drop(&mut self) {
        let mut all = self.all.borrow_mut();
        if let Some(count) = all.get_mut(&self.backend) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.backend);
            }
        }
    }
}

/// A copy that grows with its request. Dropped before that has come whole, it is counted as incomplete.
pub(crate) struct RequestCopy(Option<Box<Growing>>);

struct Growing {
    worker: Rc<Resources>,
    http: Rc<HttpResources>,
    backend: Arc<Backend>,
    head: Request,
    body: Vec<u8>,
    most: u64,
    client: Option<IpAddr>,
    tls: bool,
    timeouts: Timeouts,
    place: MirrorPermit,
}

/// Begins a copy of `request`, which is as its own server gets it, and sends it when `body` has come.
pub(crate) fn begin(forward: &Forward<'_>, mirror: &Mirror, request: &Request, body: &mut ClientBody) {
    let worker = &forward.session.worker;
    let one_in = u64::from(mirror.one_in.get());
    if one_in > 1 && !worker.random().is_multiple_of(one_in) {
        return;
    }
    let backend = &forward.context.view.snapshot.backends[mirror.backend];
    if body.length().is_some_and(|length| length > mirror.max_body) {
        return worker.counters.mirrored(Mirrored::TooLarge);
    }
    let Some(place) = forward.session.http.mirrors.take(&backend.name, mirror.requests) else {
        return worker.counters.mirrored(Mirrored::Busy);
    };
    let mut head = request.clone();
    // The client is not asked to go on: the body is there.
    head.fields.remove(Known::Expect);
    let copy = RequestCopy(Some(Box::new(Growing {
        worker: Rc::clone(worker),
        http: Rc::clone(&forward.session.http),
        backend: Arc::clone(backend),
        head,
        body: Vec::new(),
        most: mirror.max_body,
        client: forward.context.named.or(forward.session.ip),
        tls: forward.session.scheme == ClientScheme::Https,
        timeouts: forward.timeouts(),
        place,
    })));
    if body.is_end_stream() {
        copy.send();
    } else {
        body.copy_to(copy);
    }
}

impl RequestCopy {
    /// Takes in a part of the body; `None` where that is too much.
    pub(crate) fn take(mut self, frame: &Frame) -> Option<Self> {
        if let (Some(growing), Frame::Data(data)) = (&mut self.0, frame) {
            if (growing.body.len() + data.len()) as u64 > growing.most {
                growing.worker.counters.mirrored(Mirrored::TooLarge);
                self.0 = None;
                return None;
            }
            growing.body.extend_from_slice(data);
        }
        Some(self)
    }

    /// The request has come whole.
    pub(crate) fn send(mut self) {
        let Some(mut growing) = self.0.take() else { return };
        if !growing.body.is_empty() || growing.head.fields.contains(Known::TransferEncoding) {
            let length = growing.body.len() as u64;
            let fields = &mut growing.head.fields;
            fields.remove(Known::TransferEncoding);
            fields.remove(Known::Trailer);
            fields.set_known(Known::ContentLength, itoa::Buffer::new().format(length).as_bytes());
        }
        tokio::task::spawn_local(growing.run());
    }
}

impl Drop for RequestCopy {
    fn drop(&mut self) {
        if let Some(growing) = self.0.take() {
            growing.worker.counters.mirrored(Mirrored::Incomplete);
        }
    }
}

impl Growing {
    async fn run(self: Box<Self>) {
        let worker = Rc::clone(&self.worker);
        // What a server says piece by piece has an end too.
        let limits = &self.backend.limits;
        let response = self.timeouts.response.unwrap_or(limits.response_timeout);
        let connect = self.timeouts.connect.unwrap_or(limits.connect_timeout);
        let most = limits.queue_timeout + connect + response + PATIENCE;
        let answered = timeout(most, self.exchange()).await.unwrap_or(false);
        worker.counters.mirrored(if answered { Mirrored::Answered } else { Mirrored::Failed });
    }

    /// Sends the copy, and forgets the response. Gives whether there was one.
    async fn exchange(self: Box<Self>) -> bool {
        let Self { http, backend, head, body, client, tls, timeouts, place, .. } = *self;
        // A URI of HTTP/2 has an authority.
        if backend.protocol != ServerProtocol::Http1 && !head.fields.contains(Known::Host) {
            return false;
        }
        let about = Affinity { client, tls, private: None, progress: &|_| (), interim: None, timeouts };
        let body = ClientBody::whole(body.into());
        let answered = match http.pools.send(&backend, (&head, body), &about).await {
            Ok(answer) => {
                let mut body = answer.response.body;
                drain(|cx| body.poll_frame(cx), PATIENCE).await;
                true
            }
            Err(_) => false,
        };
        drop(place);
        answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_a_bound_and_give_their_places_back() {
        let (mirrors, name, other) = (Mirrors::default(), Arc::from("a"), Arc::from("b"));
        let first = mirrors.take(&name, 2).unwrap();
        let second = mirrors.take(&name, 2).unwrap();
        assert!(mirrors.take(&name, 2).is_none());
        assert!(mirrors.take(&other, 2).is_some(), "each backend has its own");
        drop(first);
        let third = mirrors.take(&name, 2).unwrap();
        drop((second, third));
        assert!(mirrors.0.borrow().is_empty(), "nothing is remembered of those that are gone");
    }
}
