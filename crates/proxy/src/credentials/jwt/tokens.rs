//! The tokens that a worker has checked: a signature costs up to a tenth of a millisecond, and clients send the same token
//! with each request.
//!
//! One signature is checked at a time, and then the event loop looks at all others: whatever clients send, no turn of the
//! loop has more than one. Requests that wait for it take turns by client ([`FairPermits`]).

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::hash::Hasher as _;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use offramp_net::turn;
use rustls::crypto::aws_lc_rs;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::{Disbelief, Jwt, KeySet, Token, Unchecked};
use crate::fair_permits::FairPermits;
use crate::fair_queue::ClientNetworkPath;

/// Tokens that each worker remembers.
const REMEMBERED: usize = 4096;
/// The most bytes in the fields of all of them.
const FIELDS_MAX: usize = 1 << 20;
/// Requests of a worker that wait for a signature: a third of a second of work for one core.
const SIGNATURES: usize = 4096;
/// Requests of a worker that wait for keys that are being fetched.
const FETCHES: usize = 1024;
/// Time for which a token is remembered.
const REMEMBER: Duration = Duration::from_secs(5 * 60);

/// The tokens that a worker knows.
pub(crate) struct KnownTokens {
    key: [u8; 16],
    right: RefCell<ValidTokens>,
    /// Requests that wait for a signature to be checked, and for keys that are being fetched.
    signatures: Rc<FairPermits>,
    fetches: Rc<FairPermits>,
}

#[derive(Default)]
struct ValidTokens {
    tokens: HashMap<u128, CachedToken>,
    /// Tokens by age, the oldest first.
    order: VecDeque<u128>,
    /// The bytes in their fields.
    size: usize,
}

struct CachedToken {
    token: Rc<Token>,
    /// End of the token in seconds since 1970.
    until: f64,
}

impl Default for KnownTokens {
    fn default() -> Self {
        let mut key = [0; 16];
        // Tokens are never remembered by a key that others could know.
        let drawn = aws_lc_rs::default_provider().secure_random.fill(&mut key).is_ok();
        assert!(drawn, "the system has random numbers: TLS has drawn some before");
        let signatures = FairPermits::new(1, SIGNATURES);
        Self { key, right: RefCell::default(), signatures, fetches: FairPermits::new(0, FETCHES) }
    }
}

impl KnownTokens {
    /// A token that was believed a moment ago.
    pub(crate) fn known(&self, jwt: &Jwt, token: &str) -> Result<Option<Rc<Token>>, Disbelief> {
        let digest = jwt.keys.with(|keys| self.digest(jwt, keys, token)).ok_or(Disbelief::NoKeys)?;
        Ok(self.right.borrow().get(digest, SystemTime::now()))
    }

    /// Claims of a token of `client` that is not remembered, if `jwt` believes it. Waits for signatures of others,
    /// and for keys that are being fetched.
    pub(crate) async fn check(
        &self,
        jwt: &Jwt,
        token: &str,
        client: Option<IpAddr>,
    ) -> Result<Rc<Token>, Disbelief> {
        let client = ClientNetworkPath::of(client);
        let unchecked = jwt.read(token, SystemTime::now())?;
        let keys = jwt.keys.current().ok_or(Disbelief::NoKeys)?;
        match self.verify(jwt, &keys, token, &unchecked, client).await {
            Err(Disbelief::Wrong(why)) if unchecked.names_another(&keys) => {
                let newer = self.fetches.beside(client, jwt.keys.newer(&keys)).await;
                let newer = newer.ok_or(Disbelief::Busy)?.ok_or(why)?;
                self.verify(jwt, &newer, token, &unchecked, client).await
            }
            outcome => outcome,
        }
    }

    /// Checks a signature when it is its turn, and remembers the token where it is right.
    async fn verify(
        &self,
        jwt: &Jwt,
        keys: &KeySet,
        token: &str,
        unchecked: &Unchecked<'_>,
        client: ClientNetworkPath,
    ) -> Result<Rc<Token>, Disbelief> {
        let _turn = self.signatures.enter(client).await.ok_or(Disbelief::Busy)?;
        // Another request with it may have been in front of this one.
        let (digest, now) = (self.digest(jwt, keys, token), SystemTime::now());
        if let Some(known) = self.right.borrow().get(digest, now) {
            return Ok(known);
        }
        let signed = unchecked.is_signed(keys);
        turn::next().await;
        signed?;
        let token = Rc::new(unchecked.token.clone());
        self.right.borrow_mut().add(digest, &token, now);
        Ok(token)
    }

    /// The digest of a token: other keys or rules make it another.
    fn digest(&self, jwt: &Jwt, keys: &KeySet, token: &str) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(keys.digest());
        hasher.write(&jwt.identity);
        hasher.write(token.as_bytes());
        hasher.finish128().as_u128()
    }
}

impl ValidTokens {
    fn get(&self, digest: u128, now: SystemTime) -> Option<Rc<Token>> {
        let known = self.tokens.get(&digest).filter(|known| known.until > seconds(now))?;
        Some(Rc::clone(&known.token))
    }

    fn add(&mut self, digest: u128, token: &Rc<Token>, now: SystemTime) {
        let size = |token: &Token| token.fields.iter().map(|(_, value)| value.len()).sum::<usize>();
        self.forget(digest, size);
        let now = seconds(now);
        while let Some(oldest) = self.order.front().copied() {
            let over = self.tokens.get(&oldest).is_none_or(|known| known.until <= now);
            let room = self.order.len() < REMEMBERED && self.size + size(token) <= FIELDS_MAX;
            if !over && room {
                break;
            }
            self.order.pop_front();
            self.forget(oldest, size);
        }
        self.size += size(token);
        let until = token.ends.min(now + REMEMBER.as_secs_f64());
        self.tokens.insert(digest, CachedToken { token: Rc::clone(token), until });
        self.order.push_back(digest);
    }

    fn forget(&mut self, digest: u128, size: impl Fn(&Token) -> usize) {
        if let Some(known) = self.tokens.remove(&digest) {
            self.size -= size(&known.token);
        }
    }
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_in_number_size_and_time() {
        let (mut right, now) = (ValidTokens::default(), SystemTime::now());
        let token = |size: usize, ends: f64| {
            let fields = vec![(HeaderName::from_static("x"), vec![b'x'; size])];
            Rc::new(Token { user: None, fields, ends, tunnel_end: None })
        };
        for digest in 0..3 * REMEMBERED as u128 {
            right.add(digest, &token(1, f64::MAX), now);
        }
        assert_eq!((right.tokens.len(), right.order.len(), right.size), (REMEMBERED, REMEMBERED, REMEMBERED));
        let last = 3 * REMEMBERED as u128 - 1;
        assert!(right.get(last, now).is_some() && right.get(0, now).is_none());
        assert!(right.get(last, now + REMEMBER).is_none());
        // Not beyond its own end.
        right.add(0, &token(1, seconds(now) + 1.0), now);
        assert!(right.get(0, now).is_some() && right.get(0, now + Duration::from_secs(1)).is_none());
        for digest in 0..1000 {
            right.add(digest, &token(FIELDS_MAX / 100, f64::MAX), now);
            assert!(right.size <= FIELDS_MAX);
        }
        assert!(right.tokens.len() <= 100 && right.order.len() <= REMEMBERED);
        // The same one again has its place once.
        for _ in 0..10_000 {
            right.add(7, &token(1, f64::MAX), now);
        }
        assert!(right.order.len() <= REMEMBERED && right.size <= FIELDS_MAX);
    }
}
