//! The binary form of entries on their way to the store's thread and in the spool. One allocation serves
//! many.

use std::net::IpAddr;

use crate::entry::{LogEntry, PhasePart, ProxyPart, RequestPart, ResponsePart};
use crate::text::LONGEST;

/// The number of texts in an entry.
const TEXTS: usize = 13;

/// The mark beside the kind of the client's address that phases follow. A spool of an older version has none.
const PHASES: u8 = 0x80;

/// The length that marks an absent text.
const ABSENT: u16 = u16::MAX;

/// Appends an entry. Texts are cut to slightly more than the store keeps.
pub(crate) fn pack(entry: &LogEntry<'_>, into: &mut Vec<u8>) {
    into.extend_from_slice(&entry.time_us.to_le_bytes());
    into.extend_from_slice(&entry.response.status.to_le_bytes());
    into.extend_from_slice(&entry.response.bytes.to_le_bytes());
    for number in [entry.response.received, entry.response.duration_us] {
        // The largest number stands for an absent one.
        into.extend_from_slice(&number.unwrap_or(u64::MAX).to_le_bytes());
    }
    let phases = entry.phases.all();
    let with_phases = if phases.iter().any(Option::is_some) { PHASES } else { 0 };
    match entry.client.map(|client| client.to_canonical()) {
        None => into.push(with_phases),
        Some(IpAddr::V4(ip)) => {
            into.push(4 | with_phases);
            into.extend_from_slice(&ip.octets());
        }
        Some(IpAddr::V6(ip)) => {
            into.push(16 | with_phases);
            into.extend_from_slice(&ip.octets());
        }
    }
    if with_phases != 0 {
        for phase in phases {
            into.extend_from_slice(&phase.unwrap_or(u64::MAX).to_le_bytes());
        }
    }
    let LogEntry { request, proxy, .. } = entry;
    let texts: [Option<&[u8]>; TEXTS] = [
        entry.host,
        request.method,
        Some(request.path),
        request.query,
        request.protocol,
        entry.referer,
        entry.agent,
        entry.user,
        proxy.route,
        proxy.server,
        proxy.tls,
        proxy.id,
        proxy.cause,
    ];
    for text in texts {
        let Some(text) = text else {
            into.extend_from_slice(&ABSENT.to_le_bytes());
            continue;
        };
        // Longer than the store keeps, so that it notices the cut.
        let text = &text[..text.len().min(LONGEST + 8)];
        into.extend_from_slice(&(text.len() as u16).to_le_bytes());
        into.extend_from_slice(text);
    }
}

/// Decodes entries until the bytes end or are invalid.
pub(crate) struct Unpack<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Unpack<'a> {
    type Item = LogEntry<'a>;

    fn next(&mut self) -> Option<LogEntry<'a>> {
        let time_us = i64::from_le_bytes(self.array()?);
        let status = u16::from_le_bytes(self.array()?);
        let bytes = u64::from_le_bytes(self.array()?);
        let [received, duration_us] = [u64::from_le_bytes(self.array()?), u64::from_le_bytes(self.array()?)];
        let [kind] = self.array::<1>()?;
        let client = match kind & !PHASES {
            4 => Some(IpAddr::from(self.array::<4>()?)),
            16 => Some(IpAddr::from(self.array::<16>()?)),
            _ => None,
        };
        let some = |number: u64| Some(number).filter(|number| *number != u64::MAX);
        let mut phases = PhasePart::default();
        if kind & PHASES != 0 {
            for phase in [&mut phases.queue_us, &mut phases.connect_us, &mut phases.first_byte_us] {
                *phase = some(u64::from_le_bytes(self.array()?));
            }
        }
        let mut texts = [None; TEXTS];
        for text in &mut texts {
            *text = match u16::from_le_bytes(self.array()?) {
                ABSENT => None,
                length => Some(self.slice(usize::from(length))?),
            };
        }
        let [host, method, path, query, protocol, referer, agent, user, route, server, tls, id, cause] =
            texts;
        Some(LogEntry {
            time_us,
            host,
            client,
            request: RequestPart { method, path: path.unwrap_or_default(), query, protocol },
            response: ResponsePart {
                status,
                bytes,
                received: some(received),
                duration_us: some(duration_us),
            },
            phases,
            referer,
            agent,
            user,
            proxy: ProxyPart { route, server, tls, id, cause },
        })
    }
}

impl<'a> Unpack<'a> {
    fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.slice(N)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option::of;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn entries_come_back_as_they_were(
            numbers in (any::<i64>(), any::<u16>(), any::<u64>(), of(0..u64::MAX), of(0..u64::MAX)),
            v6 in of(any::<u128>()),
            phases in (of(0..u64::MAX), of(0..u64::MAX), of(0..u64::MAX)),
            texts in vec(of(vec(any::<u8>(), 0..40)), TEXTS),
        ) {
            let text = |at: usize| texts[at].as_deref();
            let entry = LogEntry {
                time_us: numbers.0,
                host: text(0),
                client: v6.map(|bits| IpAddr::from(bits.to_be_bytes()).to_canonical()),
                request: RequestPart {
                    method: text(1),
                    path: text(2).unwrap_or_default(),
                    query: text(3),
                    protocol: text(4),
                },
                response: ResponsePart {
                    status: numbers.1,
                    bytes: numbers.2,
                    received: numbers.3,
                    duration_us: numbers.4,
                },
                phases: PhasePart { queue_us: phases.0, connect_us: phases.1, first_byte_us: phases.2 },
                referer: text(5),
                agent: text(6),
                user: text(7),
                proxy: ProxyPart { route: text(8), server: text(9), tls: text(10), id: text(11), cause: text(12) },
            };
            let mut packed = Vec::new();
            pack(&entry, &mut packed);
            pack(&entry, &mut packed);
            let found: Vec<_> = Unpack(&packed).collect();
            prop_assert_eq!(found, vec![entry, entry]);
        }

        #[test]
        fn nonsense_ends(bytes in vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Unpack(&bytes).count() <= bytes.len() / 61, true);
        }
    }
}
