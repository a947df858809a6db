//! The first bytes of TCP connections, from segments in any order.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use super::CapturedHello;
use super::packet::Segment;
use crate::client_hello::{self, MAX_LOOK};
use crate::{ParseStep, postgres, proxy};

/// Number of connections that are followed at a time; of more, the oldest are given up.
const MAX_FLOWS: usize = 4096;
/// Bytes at the front of a connection that can matter: PROXY header, preamble and hello.
const MAX_FRONT: usize = MAX_LOOK + 2048;
/// Bytes that all connections together may hold.
const MAX_HELD: usize = 32 << 20;

/// The connections whose hellos are not complete.
#[derive(Debug, Default)]
pub(super) struct FlowTable {
    flows: HashMap<FlowKey, FirstBytes>,
    /// The connections in the order in which they began.
    ages: BTreeMap<u64, FlowKey>,
    /// Bytes that the connections hold.
    held: usize,
    begun: u64,
    given_up: usize,
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FlowKey {
    from: SocketAddr,
    to: SocketAddr,
}

#[derive(Debug)]
struct FirstBytes {
    /// Sequence number of the first byte.
    start: u32,
    /// The first bytes, without a gap.
    front: Vec<u8>,
    /// Bytes behind a gap, by their distance from the first one; none overlap.
    later: BTreeMap<usize, Vec<u8>>,
    /// Length of `front` below which there is nothing to be decided.
    needed: usize,
    age: u64,
}

impl FlowTable {
    /// Takes a segment; gives the hello that it completes.
    pub(super) fn take(&mut self, segment: &Segment<'_>) -> Option<CapturedHello> {
        let key = FlowKey { from: segment.from, to: segment.to };
        // The ports of an older connection may be used again, and the capture may begin later than the connection.
        if segment.is_first || (!self.flows.contains_key(&key) && begins_tls(segment.data)) {
            self.forget(key);
            self.begin(key, segment.sequence);
        }
        if segment.data.is_empty() {
            return None;
        }
        let flow = self.flows.get_mut(&key)?;
        self.held += flow.insert(segment.sequence, segment.data);
        let verdict = flow.verdict();
        if !matches!(verdict, FlowVerdict::Wait(_)) {
            self.forget(key);
        }
        while self.held > MAX_HELD {
            self.give_up_oldest();
        }
        match verdict {
            FlowVerdict::Hello(records) => {
                Some(CapturedHello { client: segment.from, server: segment.to, records })
            }
            FlowVerdict::Wait(_) | FlowVerdict::Other => None,
        }
    }

    /// Connections that began like TLS and whose hello was never complete.
    pub(super) fn incomplete(&self) -> usize {
        self.given_up + self.flows.values().filter(|flow| begins_tls(&flow.front)).count()
    }

    fn begin(&mut self, key: FlowKey, start: u32) {
        if self.flows.len() >= MAX_FLOWS {
            self.give_up_oldest();
        }
        self.begun += 1;
        let age = self.begun;
        self.ages.insert(age, key);
        self.flows
            .insert(key, FirstBytes { start, front: Vec::new(), later: BTreeMap::new(), needed: 1, age });
    }

    fn forget(&mut self, key: FlowKey) -> Option<FirstBytes> {
        let flow = self.flows.remove(&key)?;
        self.ages.remove(&flow.age);
        self.held -= flow.front.len() + flow.later.values().map(Vec::len).sum::<usize>();
        Some(flow)
    }

    fn give_up_oldest(&mut self) {
        let Some((_, key)) = self.ages.first_key_value() else { return };
        let flow = self.forget(*key);
        self.given_up += usize::from(flow.is_some_and(|flow| begins_tls(&flow.front)));
    }
}

fn begins_tls(data: &[u8]) -> bool {
    matches!(data, [22, 3, _, _, _, 1, ..])
}

enum FlowVerdict {
    /// The hello is not complete; at least so many more bytes are needed.
    Wait(usize),
    /// The records of a hello.
    Hello(Vec<u8>),
    /// The connection does not begin with TLS.
    Other,
}

impl FirstBytes {
    /// Keeps what is new of a segment, and returns how many bytes that is. The first copy of a byte counts.
    fn insert(&mut self, sequence: u32, data: &[u8]) -> usize {
        // Numbers wrap around; a negative distance belongs to bytes before the start.
        let distance = sequence.wrapping_sub(self.start) as i32;
        let Ok(first) = usize::try_from(distance) else { return 0 };
        let end = first.saturating_add(data.len()).min(MAX_FRONT);
        let (mut at, mut added) = (first.max(self.front.len()), 0);
        while at < end {
            let before = self.later.range(..=at).next_back().map(|(start, part)| start + part.len());
            if let Some(covered) = before.filter(|covered| *covered > at) {
                at = covered;
                continue;
            }
            let next = self.later.range(at..).next().map_or(end, |(start, _)| (*start).min(end));
            self.later.insert(at, data[at - first..next - first].to_vec());
            added += next - at;
            at = next;
        }
        while let Some(part) = self.later.remove(&self.front.len()) {
            self.front.extend(part);
        }
        added
    }

    fn verdict(&mut self) -> FlowVerdict {
        if self.front.len() < self.needed {
            return FlowVerdict::Wait(self.needed - self.front.len());
        }
        let verdict = hello_of(&self.front);
        if let FlowVerdict::Wait(more) = verdict {
            self.needed = self.front.len() + more;
            if self.needed > MAX_FRONT {
                return FlowVerdict::Other;
            }
        }
        verdict
    }
}

/// The hello in the first bytes of a client, behind what may precede it.
fn hello_of(mut front: &[u8]) -> FlowVerdict {
    if front.first().is_some_and(|first| matches!(first, b'P' | b'\r')) {
        match proxy::parse(front) {
            ParseStep::Need(more) => return FlowVerdict::Wait(more),
            ParseStep::Reject(_) => return FlowVerdict::Other,
            ParseStep::Done { consumed, .. } => front = &front[consumed..],
        }
    }
    if front.first() == Some(&0) {
        if let Some(missing) = postgres::SSL_REQUEST.strip_prefix(front) {
            return FlowVerdict::Wait(missing.len().max(1));
        }
        match front.strip_prefix(&postgres::SSL_REQUEST[..]) {
            Some(rest) => front = rest,
            None => return FlowVerdict::Other,
        }
    }
    match client_hello::extract(front) {
        ParseStep::Need(more) => FlowVerdict::Wait(more),
        ParseStep::Reject(_) => FlowVerdict::Other,
        ParseStep::Done { value, .. } => FlowVerdict::Hello(value),
    }
}
