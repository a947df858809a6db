//! Stateless session tickets (RFC 5077, RFC 8446 §4.6.1) under keys that rotate.
//!
//! A ticket is `name (16) ‖ nonce (12) ‖ AES-256-GCM ciphertext and tag`. The current and the
//! previous key are in one shared, atomically swapped ring: a handshake takes no lock. Each
//! configuration binds its tickets to a *context* (its rule for client certificates) as associated
//! data, so that a ticket won where no client certificate was asked for is worthless where one is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA256, digest};
use rustls::server::ProducesTickets;

const NAME: usize = 16;
const TAG: usize = 16;
/// RFC 8446 §4.6.1: no ticket may be used longer than seven days.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// The operating system gave no randomness for a new key; the old keys stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRandomness;

impl fmt::Display for NoRandomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system's random generator gave no key for session tickets")
    }
}

impl std::error::Error for NoRandomness {}

struct Key {
    name: [u8; NAME],
    aead: LessSafeKey,
}

impl Key {
    fn generate() -> Result<Self, NoRandomness> {
        let mut secret = [0; 32];
        let mut name = [0; NAME];
        aws_lc_rs::rand::fill(&mut secret).map_err(|_| NoRandomness)?;
        aws_lc_rs::rand::fill(&mut name).map_err(|_| NoRandomness)?;
        let aead = UnboundKey::new(&AES_256_GCM, &secret).map_err(|_| NoRandomness)?;
        Ok(Self { name, aead: LessSafeKey::new(aead) })
    }
}

struct Ring {
    current: Arc<Key>,
    previous: Option<Arc<Key>>,
}

/// The ticket keys of the process, shared by every configuration and worker.
pub struct TicketKeys {
    ring: ArcSwap<Ring>,
    rotation: Duration,
}

impl TicketKeys {
    /// Generates a first key. `rotation` is how often the caller will call [`TicketKeys::rotate`];
    /// a ticket is good for at least that long, and for no more than seven days.
    ///
    /// # Errors
    /// Where the system has no randomness.
    pub fn new(rotation: Duration) -> Result<Self, NoRandomness> {
        let ring = Ring { current: Arc::new(Key::generate()?), previous: None };
        Ok(Self { ring: ArcSwap::from_pointee(ring), rotation: rotation.min(LONGEST) })
    }

    /// Begins a new key; tickets of the one before stay good, older ones do not.
    ///
    /// # Errors
    /// Where the system has no randomness; nothing changes then.
    pub fn rotate(&self) -> Result<(), NoRandomness> {
        let current = Arc::new(Key::generate()?);
        let previous = Some(Arc::clone(&self.ring.load().current));
        self.ring.store(Arc::new(Ring { current, previous }));
        Ok(())
    }

    /// The ticketer for a configuration with this context.
    #[must_use]
    pub fn ticketer(self: &Arc<Self>, context: &[u8]) -> Arc<dyn ProducesTickets> {
        let mut hashed = [0; 32];
        hashed.copy_from_slice(digest(&SHA256, context).as_ref());
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
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let mut out = Vec::with_capacity(NAME + NONCE_LEN + plain.len() + TAG);
        out.extend_from_slice(&ring.current.name);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(plain);
        let tag = ring
            .current
            .aead
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(self.context),
                &mut out[NAME + NONCE_LEN..],
            )
            .ok()?;
        out.extend_from_slice(tag.as_ref());
        Some(out)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let ring = self.keys.ring.load();
        let key = [Some(&ring.current), ring.previous.as_ref()]
            .into_iter()
            .flatten()
            .find(|key| key.name == *name)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = key.aead.open_in_place(nonce, Aad::from(self.context), &mut sealed).ok()?.len();
        sealed.truncate(plain);
        Some(sealed)
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
        keys.rotate().unwrap();
        assert_eq!(ticketer.decrypt(&ticket), None);
    }

    #[test]
    fn a_ticket_is_bound_to_its_context() {
        let keys = Arc::new(TicketKeys::new(Duration::from_secs(60)).unwrap());
        let ticket = keys.ticketer(b"no client certificate").encrypt(b"state").unwrap();
        assert_eq!(keys.ticketer(b"client certificate required").decrypt(&ticket), None);
    }

    #[test]
    fn a_damaged_ticket_is_no_ticket() {
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
