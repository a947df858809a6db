//! Stateless session tickets (RFC 5077, RFC 8446 §4.6.1) under keys that rotate.
//!
//! A ticket is `name (16) ‖ number (16) ‖ AES-256-GCM-SIV ciphertext and tag`. The plaintext is the expiry of
//! the session (`Expiry`) and the state of rustls. The current and the previous key are in one shared,
//! atomically swapped ring: a handshake takes no lock. The associated data is the *context* of the
//! configuration: this format, and the whole rule for client certificates.
//!
//! A session that must not be resumed cannot be opened: after the expiry of the client's certificate, or
//! under another rule, whether of another route or of a changed configuration. A full handshake follows, in
//! which the client can present its current certificate. Rejecting a resumed session instead would lock the
//! client out: it would keep the ticket and retry with it.
//!
//! The nonce is the number of the ticket under its key. It costs no randomness, and it never repeats:
//!
//! - Among workers: the count is one atomic number, which belongs to the key. 2^48 tickets are never reached.
//! - After a restart or a rotation: keys are in memory only, each begins at 0, and no two are the same.
//! - In a process that inherited the keys: the first 16 bits are the number of the process, so that both may
//!   issue tickets for a while ([`TicketKeys::hand_over`]).
//! - In a copy of a running machine (a snapshot of a virtual machine that is started twice) it does repeat.
//!   That is why the AEAD is AES-GCM-SIV (RFC 8452): a repeated nonce reveals only if two tickets are equal.
//!
//! A readable number would reveal when a ticket was issued. An observer could recognize a client in another
//! network by it, which the obfuscated ticket age prevents (RFC 8446 §4.2.11.1). So the number is encrypted
//! as one block of AES-256 under a key of its own: different numbers stay different, and look random.

mod expiry;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;
use zeroize::Zeroizing;

pub(crate) use expiry::Expiry;

/// Format of the plaintext. Tickets of another format, from an older process, are not opened.
const FORMAT: &[u8] = b"offramp session ticket 2";
const NAME: usize = 16;
/// Size of an AES block, in bytes.
const NUMBER: usize = 16;
const TAG: usize = 16;
/// Size of a name and two secrets, in bytes.
const KEY: usize = NAME + 32 + 32;
/// Bits of a ticket's number behind the number of the process.
const OWN_BITS: u32 = 48;
/// RFC 8446 §4.6.1: no ticket may be used longer than seven days.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// The operating system provided no randomness for a new key; the old keys remain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRandomness;

impl fmt::Display for NoRandomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system's random generator gave no key for session tickets")
    }
}

impl std::error::Error for NoRandomness {}

struct TicketKey {
    name: [u8; NAME],
    aead: LessSafeKey,
    numbers: Numbers,
    /// The whole key: its name, the secret of the AEAD, and that of the numbers.
    secret: Zeroizing<[u8; KEY]>,
}

impl TicketKey {
    fn generate() -> Result<Self, NoRandomness> {
        let mut secret = Zeroizing::new([0; KEY]);
        aws_lc_rs::rand::fill(&mut *secret).map_err(|_| NoRandomness)?;
        Self::of(secret, 0)
    }

    /// Creates the key with this secret; its tickets are numbered from `first`.
    fn of(secret: Zeroizing<[u8; KEY]>, first: u64) -> Result<Self, NoRandomness> {
        let mut name = [0; NAME];
        name.copy_from_slice(&secret[..NAME]);
        let aead = UnboundKey::new(&AES_256_GCM_SIV, &secret[NAME..NAME + 32]).map_err(|_| NoRandomness)?;
        let numbers = Numbers::of(&secret[NAME + 32..], first)?;
        Ok(Self { name, aead: LessSafeKey::new(aead), numbers, secret })
    }
}

/// Numbers the tickets of one key, and encrypts the numbers.
struct Numbers {
    next: AtomicU64,
    hide: EncryptingKey,
    show: DecryptingKey,
}

impl Numbers {
    fn of(secret: &[u8], first: u64) -> Result<Self, NoRandomness> {
        let key = || UnboundCipherKey::new(&AES_256, secret);
        let hide = key().and_then(EncryptingKey::ecb).map_err(|_| NoRandomness)?;
        let show = key().and_then(DecryptingKey::ecb).map_err(|_| NoRandomness)?;
        Ok(Self { next: AtomicU64::new(first), hide, show })
    }

    /// Nonce of the next ticket, and its encrypted number.
    fn draw(&self) -> Option<(Nonce, [u8; NUMBER])> {
        // Only the number is shared: it orders no other memory.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut block = [0; NUMBER];
        block[..8].copy_from_slice(&number.to_be_bytes());
        let nonce = nonce(&block);
        // A single block that is never encrypted twice, so the weaknesses of ECB do not apply.
        self.hide.less_safe_encrypt(&mut block, EncryptionContext::None).ok()?;
        Some((nonce, block))
    }

    /// Nonce of an encrypted number; for foreign bytes, a nonce that opens no ticket.
    fn read(&self, hidden: &[u8; NUMBER]) -> Option<Nonce> {
        let mut block = *hidden;
        self.show.decrypt(&mut block, DecryptionContext::None).ok()?;
        block[8..].iter().all(|byte| *byte == 0).then(|| nonce(&block))
    }
}

fn nonce(block: &[u8; NUMBER]) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - 8..].copy_from_slice(&block[..8]);
    Nonce::assume_unique_for_key(nonce)
}

struct Ring {
    current: Arc<TicketKey>,
    previous: Option<Arc<TicketKey>>,
}

/// Ticket keys of the process, shared by every configuration and worker.
pub struct TicketKeys {
    ring: ArcSwap<Ring>,
    rotation: Duration,
    /// Highest number of a process that has these keys: this one, or one that inherited them.
    latest: AtomicU16,
}

impl TicketKeys {
    /// Generates a first key. `rotation` is the interval at which the caller will call
    /// [`TicketKeys::rotate`]; a ticket is valid for at least that long, and for at most seven days.
    ///
    /// # Errors
    /// The system provides no randomness.
    pub fn new(rotation: Duration) -> Result<Self, NoRandomness> {
        let ring = Ring { current: Arc::new(TicketKey::generate()?), previous: None };
        Ok(Self::with(ring, rotation, 0))
    }

    fn with(ring: Ring, rotation: Duration, process: u16) -> Self {
        let latest = AtomicU16::new(process);
        Self { ring: ArcSwap::from_pointee(ring), rotation: rotation.min(LONGEST), latest }
    }

    /// Serializes the keys for a successor of this process; keep them secret. Each call is for another
    /// process; `None` after 65,535.
    #[must_use]
    pub fn hand_over(&self) -> Option<Zeroizing<Vec<u8>>> {
        let next = |latest: u16| latest.checked_add(1);
        let before = self.latest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let ring = self.ring.load();
        let keys = [Some(&ring.current), ring.previous.as_ref()];
        let mut bytes = Zeroizing::new(Vec::with_capacity(2 + 2 * KEY));
        bytes.extend_from_slice(&(before + 1).to_be_bytes());
        keys.into_iter().flatten().for_each(|key| bytes.extend_from_slice(&*key.secret));
        Some(bytes)
    }

    /// Takes over the keys of the predecessor; `None` if the bytes are not from [`TicketKeys::hand_over`].
    #[must_use]
    pub fn inherit(rotation: Duration, bytes: &[u8]) -> Option<Self> {
        let (process, keys) = bytes.split_first_chunk::<2>()?;
        let process = u16::from_be_bytes(*process);
        let first = u64::from(process) << OWN_BITS;
        let (keys, rest) = keys.as_chunks::<KEY>();
        let mut keys = keys.iter().map(|key| TicketKey::of(Zeroizing::new(*key), first).map(Arc::new));
        let (current, previous) = (keys.next()?.ok()?, keys.next().transpose().ok()?);
        if process == 0 || keys.next().is_some() || !rest.is_empty() {
            return None;
        }
        Some(Self::with(Ring { current, previous }, rotation, process))
    }

    /// Starts a new key; tickets of the previous one stay valid, older ones do not.
    ///
    /// # Errors
    /// The system provides no randomness; nothing changes then.
    pub fn rotate(&self) -> Result<(), NoRandomness> {
        let current = Arc::new(TicketKey::generate()?);
        let previous = Some(Arc::clone(&self.ring.load().current));
        self.ring.store(Arc::new(Ring { current, previous }));
        Ok(())
    }

    /// Returns true if a ticket names one of these keys. It may still be forged, or from another
    /// configuration.
    #[must_use]
    pub fn has_key_of(&self, ticket: &[u8]) -> bool {
        let ring = self.ring.load();
        let mut keys = [Some(&ring.current), ring.previous.as_ref()].into_iter().flatten();
        keys.any(|key| ticket.starts_with(&key.name))
    }

    /// Creates the ticketer of a configuration with this context.
    #[must_use]
    pub fn ticketer(self: &Arc<Self>, context: &[u8]) -> Arc<dyn ProducesTickets> {
        let mut hashed = [0; 32];
        hashed.copy_from_slice(digest(&SHA256, &[FORMAT, context].concat()).as_ref());
        Arc::new(Ticketer { keys: Arc::clone(self), context: hashed })
    }
}

struct Ticketer {
    keys: Arc<TicketKeys>,
    context: [u8; 32],
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticketer")
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        // At most seven days, which fits.
        u32::try_from(self.keys.rotation.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let ring = self.keys.ring.load();
        let (nonce, number) = ring.current.numbers.draw()?;
        let mut out = Vec::with_capacity(NAME + NUMBER + expiry::LENGTH + plain.len() + TAG);
        out.extend_from_slice(&ring.current.name);
        out.extend_from_slice(&number);
        out.extend_from_slice(&Expiry::noted().to_bytes());
        out.extend_from_slice(plain);
        let tag = ring
            .current
            .aead
            .seal_in_place_separate_tag(nonce, Aad::from(self.context), &mut out[NAME + NUMBER..])
            .ok()?;
        out.extend_from_slice(tag.as_ref());
        Some(out)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (expiry, state) = self.open(ticket, UnixTime::now())?;
        expiry.note();
        Some(state)
    }
}

impl Ticketer {
    /// Expiry of the session and the state of rustls; `None` if the session must not be resumed at `now`.
    fn open(&self, ticket: &[u8], now: UnixTime) -> Option<(Expiry, Vec<u8>)> {
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        let (number, sealed) = rest.split_first_chunk::<NUMBER>()?;
        let ring = self.keys.ring.load();
        let key = [Some(&ring.current), ring.previous.as_ref()]
            .into_iter()
            .flatten()
            .find(|key| key.name == *name)?;
        let nonce = key.numbers.read(number)?;
        let mut sealed = sealed.to_vec();
        let plain = key.aead.open_in_place(nonce, Aad::from(self.context), &mut sealed).ok()?;
        let (expiry, state) = plain.split_first_chunk()?;
        let (expiry, length) = (Expiry::from_bytes(*expiry), state.len());
        if expiry.is_over(now) {
            return None;
        }
        sealed.copy_within(expiry::LENGTH..expiry::LENGTH + length, 0);
        sealed.truncate(length);
        Some((expiry, sealed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_lives_through_one_rotation() {
        let keys = Arc::new(TicketKeys::new(Duration::from_secs(60)).unwrap());
        let ticketer = keys.ticketer(b"open");
        let ticket = ticketer.encrypt(b"state").unwrap();
        assert_eq!(ticketer.decrypt(&ticket).unwrap(), b"state");
        keys.rotate().unwrap();
        assert_eq!(ticketer.decrypt(&ticket).unwrap(), b"state");
        assert!(keys.has_key_of(&ticket) && !keys.has_key_of(&ticket[1..]) && !keys.has_key_of(&[]));
        keys.rotate().unwrap();
        assert_eq!(ticketer.decrypt(&ticket), None);
        assert!(!keys.has_key_of(&ticket));
    }

    #[test]
    fn a_process_inherits_tickets_of_its_predecessor() {
        let rotation = Duration::from_secs(60);
        let old = Arc::new(TicketKeys::new(rotation).unwrap());
        let first = old.ticketer(b"open").encrypt(b"first").unwrap();
        old.rotate().unwrap();
        let second = old.ticketer(b"open").encrypt(b"second").unwrap();
        let new = Arc::new(TicketKeys::inherit(rotation, &old.hand_over().unwrap()).unwrap());
        let next = Arc::new(TicketKeys::inherit(rotation, &old.hand_over().unwrap()).unwrap());
        let last = Arc::new(TicketKeys::inherit(rotation, &next.hand_over().unwrap()).unwrap());
        for keys in [&new, &next, &last] {
            let ticketer = keys.ticketer(b"open");
            assert_eq!(ticketer.decrypt(&first).unwrap(), b"first");
            assert_eq!(ticketer.decrypt(&second).unwrap(), b"second");
            assert_eq!(keys.ticketer(b"other").decrypt(&second), None);
        }
        // All processes accept the tickets of each other, and no nonce is used twice.
        let numbers = [&old, &new, &next, &last].map(|keys| {
            let ticket = keys.ticketer(b"open").encrypt(b"state").unwrap();
            assert_eq!(old.ticketer(b"open").decrypt(&ticket).unwrap(), b"state");
            let hidden = ticket[NAME..NAME + NUMBER].try_into().unwrap();
            *old.ring.load().current.numbers.read(hidden).unwrap().as_ref()
        });
        let distinct: std::collections::BTreeSet<_> = numbers.iter().collect();
        assert_eq!(distinct.len(), 4, "{numbers:?}");
    }

    #[test]
    fn inherited_keys_are_whole_or_rejected() {
        let old = TicketKeys::new(LONGEST).unwrap();
        let bytes = old.hand_over().unwrap();
        for length in 0..bytes.len() {
            assert!(TicketKeys::inherit(LONGEST, &bytes[..length]).is_none(), "{length}");
        }
        let mut three = bytes.to_vec();
        three.extend_from_slice(&[7; 2 * KEY]);
        assert!(TicketKeys::inherit(LONGEST, &three).is_none());
        assert!(TicketKeys::inherit(LONGEST, &bytes).is_some());
        old.latest.store(u16::MAX, Ordering::Relaxed);
        assert!(old.hand_over().is_none(), "the numbers of processes are used up");
    }

    #[test]
    fn expired_tickets_are_not_opened() {
        let keys = Arc::new(TicketKeys::new(Duration::from_secs(60)).unwrap());
        let context = [0; 32];
        let ticketer = Ticketer { keys, context };
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let end = Expiry::from_bytes(7_u64.to_be_bytes());
        let ticket = { end }.during(|| ticketer.encrypt(b"state")).unwrap();
        assert_eq!(ticketer.open(&ticket, at(7)), Some((end, b"state".to_vec())));
        assert_eq!(ticketer.open(&ticket, at(8)), None);
        assert_eq!(ticketer.decrypt(&ticket), None);
        // The next ticket expires at the same time.
        let mut resumed = Expiry::NEVER;
        let far = Expiry::from_bytes(i64::MAX.to_be_bytes());
        let ticket = { far }.during(|| ticketer.encrypt(b"state")).unwrap();
        resumed.during(|| ticketer.decrypt(&ticket)).unwrap();
        assert_eq!(resumed, far);
    }

    /// Tickets of older versions had neither an expiry nor a format.
    #[test]
    fn a_ticket_of_another_format_is_not_opened() {
        let keys = Arc::new(TicketKeys::new(Duration::from_secs(60)).unwrap());
        let mut context = [0; 32];
        context.copy_from_slice(digest(&SHA256, b"open").as_ref());
        let old = Ticketer { keys: Arc::clone(&keys), context };
        let ticket = old.encrypt(b"state").unwrap();
        assert!(old.decrypt(&ticket).is_some() && keys.has_key_of(&ticket));
        assert_eq!(keys.ticketer(b"open").decrypt(&ticket), None);
    }

    #[test]
    fn a_ticket_is_bound_to_its_context() {
        let keys = Arc::new(TicketKeys::new(Duration::from_secs(60)).unwrap());
        let ticket = keys.ticketer(b"no client certificate").encrypt(b"state").unwrap();
        assert_eq!(keys.ticketer(b"client certificate required").decrypt(&ticket), None);
    }

    #[test]
    fn ticket_numbers_are_unique_and_hidden() {
        let keys = Arc::new(TicketKeys::new(Duration::from_secs(60)).unwrap());
        // Workers and configurations share the key, and so the count.
        let tickets: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let workers: Vec<_> = [b"one".as_slice(), b"two", b"two"]
                .map(|context| {
                    let ticketer = keys.ticketer(context);
                    scope.spawn(move || {
                        (0..500).map(|_| ticketer.encrypt(b"state").unwrap()).collect::<Vec<_>>()
                    })
                })
                .into();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        let key = &keys.ring.load().current;
        let hidden: Vec<[u8; NUMBER]> =
            tickets.iter().map(|ticket| ticket[NAME..NAME + NUMBER].try_into().unwrap()).collect();
        let mut nonces: Vec<[u8; NONCE_LEN]> =
            hidden.iter().map(|hidden| *key.numbers.read(hidden).unwrap().as_ref()).collect();
        nonces.sort_unstable();
        for (number, nonce) in (0..1500_u64).zip(&nonces) {
            assert_eq!(nonce[4..], number.to_be_bytes());
        }
        // In plaintext, each would have zeros in its first or last bytes.
        assert!(hidden.iter().all(|hidden| hidden[..6] != [0; 6] && hidden[8..] != [0; 8]));
        // Foreign bytes are not a number.
        assert!(key.numbers.read(&[7; NUMBER]).is_none());
        let other = TicketKey::generate().unwrap();
        assert!(hidden.iter().all(|hidden| other.numbers.read(hidden).is_none()));
    }

    #[test]
    fn damaged_tickets_are_not_opened() {
        let ticketer = Arc::new(TicketKeys::new(LONGEST * 2).unwrap()).ticketer(b"");
        let ticket = ticketer.encrypt(b"state").unwrap();
        for cut in 0..ticket.len() {
            assert_eq!(ticketer.decrypt(&ticket[..cut]), None);
        }
        for at in 0..ticket.len() {
            let mut damaged = ticket.clone();
            damaged[at] ^= 1;
            assert_eq!(ticketer.decrypt(&damaged), None);
        }
        assert_eq!(ticketer.lifetime(), 7 * 24 * 3600);
    }
}
