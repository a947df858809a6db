//! Events as text for people: the columns one looks at first are aligned, the rest follows as pairs.
//!
//! ```text
//! 2026-11-21T20:51:00.001234Z 192.0.2.1:51234        git.example.org           TLSv1.3 full     517 B in  1.2 MiB out    1.20 s  client_closed -> unix:/run/app.sock alpn=h2 …
//! ```

use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

use super::escape::bare_or_quoted;
use super::logfmt::join;
use crate::facts::{Alert, ConnectionFacts, Fault, Mismatch, Offer};
use crate::timestamp::{Precision, write_rfc3339};

pub(super) fn write(facts: &ConnectionFacts, out: &mut Vec<u8>) {
    write_rfc3339(out, facts.accepted, Precision::Micros);
    out.push(b' ');
    column(out, facts.client.address.to_string().as_bytes(), CLIENT_WIDTH);
    column(out, facts.tls.sni.as_deref().unwrap_or("-").as_bytes(), SNI_WIDTH);
    let version = facts.tls.version.map_or("-", |version| version.name());
    let kind = facts.tls.handshake.map_or("-", |kind| kind.name());
    // Writing into a Vec cannot fail, here and below.
    let _ = write!(
        out,
        "{version:<7} {kind:<7} {:>9} in {:>9} out {:>7}  {}",
        Size(facts.traffic.from_client).to_string(),
        Size(facts.traffic.to_client).to_string(),
        Span(facts.times.total).to_string(),
        facts.close.cause.name()
    );
    if facts.close.fault != Fault::Nobody {
        let _ = write!(out, " ({})", facts.close.fault.name());
    }
    if let Some(server) = &facts.path.server {
        out.extend_from_slice(b" -> ");
        bare_or_quoted(out, server.as_bytes());
    }
    close(facts, out);
    rest(facts, out);
}

/// The pairs that explain the end.
fn close(facts: &ConnectionFacts, out: &mut Vec<u8>) {
    match facts.close.alert {
        Some(Alert::Sent(name)) => pair(out, "alert_sent", name.as_bytes()),
        Some(Alert::Received(name)) => pair(out, "alert_received", name.as_bytes()),
        None => {}
    }
    option(out, "detail", facts.close.detail.as_deref().map(str::as_bytes));
    if let Some(mismatch) = &facts.mismatch {
        let Mismatch { offered, configured } = &**mismatch;
        lists(out, "offered", offered);
        lists(out, "configured", configured);
    }
}

/// The pairs that one looks for rather than at.
fn rest(facts: &ConnectionFacts, out: &mut Vec<u8>) {
    pair(out, "listener", facts.listener.as_bytes());
    if let Some(peer) = &facts.client.peer {
        pair(out, "peer", peer.to_string().as_bytes());
    }
    option(out, "route", facts.path.route.as_deref().map(str::as_bytes));
    option(out, "backend", facts.path.backend.as_deref().map(str::as_bytes));
    if facts.path.tries > 1 {
        pair(out, "tries", facts.path.tries.to_string().as_bytes());
    }
    option(out, "alpn", facts.tls.alpn.as_deref());
    option(out, "suite", facts.tls.suite.map(str::as_bytes));
    option(out, "group", facts.tls.group.map(str::as_bytes));
    option(out, "client_cn", facts.tls.client_cn.as_deref());
    for (key, duration) in [("handshake", facts.times.handshake), ("connect", facts.times.connect)] {
        if let Some(duration) = duration {
            pair(out, key, Span(duration).to_string().replace(' ', "").as_bytes());
        }
    }
    pair(out, "id", facts.id.to_string().as_bytes());
}

fn lists(out: &mut Vec<u8>, side: &str, offer: &Offer) {
    let lists = [
        ("versions", &offer.versions),
        ("suites", &offer.suites),
        ("groups", &offer.groups),
        ("schemes", &offer.schemes),
        ("alpn", &offer.alpn),
    ];
    for (what, names) in lists {
        if !names.is_empty() {
            let _ = write!(out, " {side}_{what}=");
            bare_or_quoted(out, &join(names));
        }
    }
}

/// A value, padded to `width` bytes; longer ones push the next column aside.
fn column(out: &mut Vec<u8>, value: &[u8], width: usize) {
    let start = out.len();
    bare_or_quoted(out, value);
    let padded = (start + width).max(out.len());
    out.resize(padded, b' ');
    out.push(b' ');
}

fn option(out: &mut Vec<u8>, key: &str, value: Option<&[u8]>) {
    if let Some(value) = value {
        pair(out, key, value);
    }
}

fn pair(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let _ = write!(out, " {key}=");
    bare_or_quoted(out, value);
}

/// Bytes for people: `517 B`, `1.2 MiB`.
struct Size(u64);

impl Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1000 {
            return write!(f, "{} B", self.0);
        }
        let (mut value, mut unit) = (self.0 as f64 / 1024.0, 0);
        // From 1000 on the number would be a digit wider.
        while value >= 999.95 {
            value /= 1024.0;
            unit += 1;
        }
        // 2^64 bytes are 16 EiB, so the last unit suffices.
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

/// A duration for people: `312 us`, `1.20 s`, `2h03m`.
struct Span(Duration);

impl Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (micros, seconds) = (self.0.as_micros(), self.0.as_secs());
        match seconds {
            0 if micros < 1000 => write!(f, "{micros} us"),
            0 => write!(f, "{}.{} ms", micros / 1000, micros / 100 % 10),
            1..60 => write!(f, "{seconds}.{:02} s", micros / 10_000 % 100),
            60..3600 => write!(f, "{}m{:02}s", seconds / 60, seconds % 60),
            _ => write!(f, "{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        }
    }
}

/// `255.255.255.255:65535`
const CLIENT_WIDTH: usize = 21;
const SNI_WIDTH: usize = 24;

#[cfg(test)]
mod tests {
    use super::{Size, Span};
    use std::time::Duration;

    #[test]
    fn sizes_fit_their_column() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (1_048_524, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(Size(bytes).to_string(), expected);
        }
        for shift in 0..64 {
            assert!(Size((1 << shift) - 1).to_string().len() <= 9);
        }
    }

    #[test]
    fn spans_read_well() {
        let cases = [
            (0, "0 us"),
            (999, "999 us"),
            (1_234, "1.2 ms"),
            (1_204_999, "1.20 s"),
            (59_999_999, "59.99 s"),
            (192_000_000, "3m12s"),
            (7_380_000_000, "2h03m"),
        ];
        for (micros, expected) in cases {
            assert_eq!(Span(Duration::from_micros(micros)).to_string(), expected);
        }
    }
}
