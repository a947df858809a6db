//! Records that a peer may send, well made, ill made and damaged, in any pieces: nothing panics, every span
//! lies in what was consumed, nothing comes behind a fault, and what is delivered is what was sealed.
//!
//! The input is a script: keys, then raw bytes for the wire, or acts of a sender (see [`Sender::act`]).

#![no_main]

use libfuzzer_sys::fuzz_target;
use offramp_record::aead::Library;
use offramp_record::{
    ContentType, KeyMaterial, LibraryChoice, MAX_PLAINTEXT, Opener, PlaintextSpan, RecordEvent, Sealer,
    Suite, Version, whole_record,
};
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

/// The wire that one script may make.
const MOST_WIRE: usize = 60_000;
/// How the wire arrives: in pieces of up to so many bytes.
const PIECES: [usize; 6] = [1, 7, 64, 1500, 17_000, MOST_WIRE];

fuzz_target!(|data: &[u8]| {
    let mut script = Script(data);
    let keys = Keys {
        version: if script.byte() & 1 == 0 { Version::Tls13 } else { Version::Tls12 },
        suite: Suite::ALL[usize::from(script.byte()) % Suite::ALL.len()],
    };
    let libraries = script.byte();
    let sealing = LibraryChoice::always(Library::ALL[usize::from(libraries & 1)]);
    let opening = LibraryChoice::always(Library::ALL[usize::from(libraries >> 1 & 1)]);
    let most_spans = 1 + usize::from(script.byte() % 64);
    let pieces = usize::from(script.byte());
    let mut sent = Sent::default();
    if script.byte() == 0xff {
        sent.wire = script.0.to_vec();
        sent.odd();
    } else {
        let mut sender = Sender {
            keys,
            sealer: Sealer::new(&keys.material(0, 0), &sealing),
            generation: 0,
            sequence: 0,
            updates: 0,
            block: vec![0xee; 50_000],
            sent,
        };
        while !script.0.is_empty() && sender.sent.wire.len() < MOST_WIRE {
            sender.act(&mut script);
            let mark = (sender.sent.wire.len(), sender.sent.plain.len());
            sender.sent.marks.push(mark);
        }
        sent = sender.sent;
    }
    receive(keys, &opening, &sent, most_spans, pieces);
});

/// Reads the input; zeros behind its end.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// The keys of a connection: each generation has its own.
#[derive(Clone, Copy)]
struct Keys {
    version: Version,
    suite: Suite,
}

impl Keys {
    const IV: [u8; 12] = [7; 12];

    fn raw(self, generation: u8) -> Vec<u8> {
        vec![generation.wrapping_add(1); self.suite.key_len()]
    }

    fn material(self, generation: u8, sequence: u64) -> KeyMaterial {
        KeyMaterial::new(self.version, self.suite, &self.raw(generation), Self::IV, sequence)
            .expect("the key has the suite's length")
    }

    /// Protects any content of any type: what the sealer would never send.
    fn protect(self, generation: u8, sequence: u64, typ: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let algorithm = match self.suite {
            Suite::Aes128Gcm => &AES_128_GCM,
            Suite::Aes256Gcm => &AES_256_GCM,
            Suite::Chacha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, &self.raw(generation)).expect("the key has the suite's length");
        let mut nonce = Self::IV;
        for (byte, mask) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= mask;
        }
        let explicit: &[u8] = match (self.version, self.suite) {
            (Version::Tls12, Suite::Aes128Gcm | Suite::Aes256Gcm) => &nonce[4..],
            _ => &[],
        };
        let (outer, aad, mut body) = match self.version {
            Version::Tls13 => {
                let body = [content, &[typ], &vec![0; padding]].concat();
                let length = (body.len() + 16) as u16;
                (23, [&[23, 3, 3], &length.to_be_bytes()[..]].concat(), body)
            }
            Version::Tls12 => {
                let length = (content.len() as u16).to_be_bytes();
                (typ, [&sequence.to_be_bytes()[..], &[typ, 3, 3], &length].concat(), content.to_vec())
            }
        };
        LessSafeKey::new(key)
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut body)
            .expect("a record is short enough");
        let length = ((explicit.len() + body.len()) as u16).to_be_bytes();
        [&[outer, 3, 3], &length[..], explicit, &body].concat()
    }
}

/// What went out, and what may become of it.
#[derive(Default)]
struct Sent {
    wire: Vec<u8>,
    /// The application data of all records.
    plain: Vec<u8>,
    /// How much of it must arrive: all before the first record that a receiver may refuse.
    certain: Option<usize>,
    /// Lengths of the wire and of the plaintext after each act.
    marks: Vec<(usize, usize)>,
}

impl Sent {
    /// From here on a receiver may stop.
    fn odd(&mut self) {
        self.certain.get_or_insert(self.plain.len());
    }

    /// Acts whose records end before the damage arrive as if there were none.
    fn damaged_at(&mut self, at: usize) {
        let before = self.marks.iter().rev().find(|(wire, _)| *wire <= at).map_or(0, |(_, plain)| *plain);
        self.certain = Some(self.certain.map_or(before, |certain| certain.min(before)));
        // Places behind the damage may have moved.
        self.marks.retain(|(wire, _)| *wire <= at);
    }
}

struct Sender {
    keys: Keys,
    sealer: Sealer,
    generation: u8,
    sequence: u64,
    /// Key updates since there was data.
    updates: usize,
    /// Where batches are sealed.
    block: Vec<u8>,
    sent: Sent,
}

impl Sender {
    fn act(&mut self, script: &mut Script<'_>) {
        match script.byte() % 12 {
            0..=2 => self.batch(script.number() % 40_000 + 1, script.number() % MAX_PLAINTEXT + 1),
            3 | 4 => {
                let (typ, padding) = (script.byte(), script.number() % (MAX_PLAINTEXT + 300));
                let length = usize::from(script.byte());
                self.record(typ, script.take(length), padding);
            }
            5 => self.record(23, script.take(32), script.number() % 300),
            6 => self.key_update(script.byte()),
            7 => self.record(22, script.take(6), 0),
            8 => self.record(21, script.take(2), 0),
            9 => self.damage(script.number(), script.byte()),
            10 => {
                let at = script.number();
                self.cut(at, script.number());
            }
            _ => {
                let length = usize::from(script.byte() % 32);
                self.sent.odd();
                self.sent.wire.extend_from_slice(script.take(length));
            }
        }
    }

    /// Application data by the sealer, as the relay sends it.
    fn batch(&mut self, length: usize, slot: usize) {
        let bytes: Vec<u8> = (0..length).map(|i| (i ^ i >> 8) as u8).collect();
        self.sealer.rekey(&self.keys.material(self.generation, self.sequence));
        let layout = self.sealer.layout(slot, self.block.len(), 16);
        let filled = layout.fill(&mut self.block, [&bytes[..]]);
        let wire = self.sealer.seal(&layout, &mut self.block, filled);
        self.sequence += filled.div_ceil(slot) as u64;
        self.updates = 0;
        self.sent.wire.extend_from_slice(&self.block[..wire]);
        self.sent.plain.extend_from_slice(&bytes[..filled]);
    }

    /// One record of any type.
    fn record(&mut self, typ: u8, content: &[u8], padding: usize) {
        let tls13 = self.keys.version == Version::Tls13;
        let padded = content.len() + padding;
        // In TLS 1.3 a type of zero is padding, and the last byte that is none is the type (RFC 8446 §5.2).
        let (read_typ, read) = match content.iter().rposition(|&byte| byte != 0) {
            Some(end) if tls13 && typ == 0 => (content[end], &content[..end]),
            _ => (typ, content),
        };
        if read_typ == 23 && !read.is_empty() && (!tls13 || padded <= MAX_PLAINTEXT) {
            self.updates = 0;
        } else {
            self.sent.odd();
        }
        self.sent.wire.extend(self.keys.protect(self.generation, self.sequence, typ, content, padding));
        self.sequence += 1;
        if read_typ == 23 {
            self.sent.plain.extend_from_slice(read);
        }
    }

    fn key_update(&mut self, value: u8) {
        self.updates += 1;
        if self.keys.version == Version::Tls12 || value > 1 || self.updates > 32 {
            self.sent.odd();
        }
        self.sealer.rekey(&self.keys.material(self.generation, self.sequence));
        self.sealer.seal_message(ContentType::Handshake, &[24, 0, 0, 1, value], &mut self.sent.wire);
        self.sequence += 1;
        if self.keys.version == Version::Tls13 {
            (self.generation, self.sequence) = (self.generation.wrapping_add(1), 0);
        }
    }

    /// Changes a bit of the wire that is there.
    fn damage(&mut self, at: usize, bit: u8) {
        let length = self.sent.wire.len();
        if let Some(byte) = self.sent.wire.get_mut(at % length.max(1)) {
            *byte ^= 1 << (bit % 8);
            self.sent.damaged_at(at % length);
        }
    }

    /// Takes bytes out of the wire.
    fn cut(&mut self, at: usize, length: usize) {
        let start = at % (self.sent.wire.len() + 1);
        let end = (start + length).min(self.sent.wire.len());
        if start < end {
            self.sent.wire.drain(start..end);
            self.sent.damaged_at(start);
        }
    }
}

/// Opens the wire as it comes in pieces, and holds what comes out against what was sealed.
fn receive(keys: Keys, choice: &LibraryChoice, sent: &Sent, most_spans: usize, pieces: usize) {
    let mut receiver = Receiver {
        keys,
        opener: Opener::new(&keys.material(0, 0), choice),
        generation: 0,
        buffer: Vec::new(),
        spans: vec![PlaintextSpan::default(); most_spans],
        delivered: Vec::new(),
    };
    let piece = PIECES[pieces % PIECES.len()];
    let mut rest = &sent.wire[..];
    let mut turn = pieces;
    let mut over = false;
    while !rest.is_empty() && !over {
        turn = turn.wrapping_mul(25_173).wrapping_add(13_849) & 0xffff;
        let (now, later) = rest.split_at((1 + turn % piece).min(rest.len()));
        receiver.buffer.extend_from_slice(now);
        over = receiver.open();
        rest = later;
    }
    let delivered = &receiver.delivered;
    assert!(sent.plain.starts_with(delivered), "something was delivered that was not sealed");
    let certain = sent.certain.unwrap_or(sent.plain.len());
    assert!(delivered.len() >= certain, "{} of {certain} bytes were delivered", delivered.len());
}

struct Receiver {
    keys: Keys,
    opener: Opener,
    generation: u8,
    buffer: Vec<u8>,
    spans: Vec<PlaintextSpan>,
    delivered: Vec<u8>,
}

impl Receiver {
    /// Opens what is there; `true` when the connection is over.
    fn open(&mut self) -> bool {
        loop {
            let opened = self.opener.open(&mut self.buffer, &mut self.spans);
            assert!(opened.consumed <= self.buffer.len());
            let mut end = 0;
            for span in &self.spans[..opened.spans] {
                assert!(span.len > 0 && span.start >= end, "{span:?} behind {end}");
                end = span.start + span.len;
                assert!(end <= opened.consumed);
                self.delivered.extend_from_slice(span.of(&self.buffer));
            }
            self.buffer.drain(..opened.consumed);
            match opened.event {
                RecordEvent::Full => assert_eq!(opened.spans, self.spans.len()),
                RecordEvent::NeedMore(missing) => {
                    assert!(missing > 0 && whole_record(&self.buffer).is_none());
                    return false;
                }
                RecordEvent::KeyUpdate { .. } => {
                    assert!(self.keys.version == Version::Tls13);
                    self.generation = self.generation.wrapping_add(1);
                    self.opener.rekey(&self.keys.material(self.generation, 0));
                }
                RecordEvent::Tickets => panic!("only a client gets tickets"),
                RecordEvent::RefuseRenegotiation => assert!(self.keys.version == Version::Tls12),
                RecordEvent::CloseNotify | RecordEvent::PeerAlert(_) => return true,
                RecordEvent::Fault(fault) => {
                    assert!(!fault.to_string().is_empty());
                    self.nothing_follows();
                    return true;
                }
            }
        }
    }

    /// Whoever opens on after a fault gets nothing.
    fn nothing_follows(&mut self) {
        while !self.buffer.is_empty() {
            let opened = self.opener.open(&mut self.buffer, &mut self.spans);
            assert_eq!(opened.spans, 0, "data behind a fault");
            assert!(matches!(opened.event, RecordEvent::Fault(_) | RecordEvent::NeedMore(_)));
            if opened.consumed == 0 {
                break;
            }
            self.buffer.drain(..opened.consumed);
        }
    }
}
