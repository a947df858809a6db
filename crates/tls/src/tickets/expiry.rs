//! Expiry of the session that is being made or resumed on this thread.
//!
//! rustls passes a ticketer nothing but the bytes to encrypt, so the ticketer cannot see which session it
//! seals. The verifier of client certificates notes the expiry of the accepted chain; the ticketer writes it
//! into the ticket. Opening a ticket notes its expiry again, for the ticket that follows. Handshakes
//! alternate on a thread: [`Expiry::during`] sets the note of one connection for one call of rustls.

use std::cell::Cell;
use std::time::SystemTime;

use offramp_certs::client_auth::valid_until;
use rustls::pki_types::{CertificateDer, UnixTime};

thread_local! {
    static NOTED: Cell<Expiry> = const { Cell::new(Expiry::NEVER) };
}

/// Last second in which a session may be resumed, since the beginning of 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Expiry(u64);

/// Length of an [`Expiry`] in a ticket, in bytes.
pub(super) const LENGTH: usize = 8;

impl Expiry {
    /// No client certificate, no expiry.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// Expiry at this second of the Unix epoch.
    #[cfg(test)]
    pub(crate) fn at(second: u64) -> Self {
        Self(second)
    }

    /// Calls rustls for the connection of this expiry.
    pub(crate) fn during<T>(&mut self, call: impl FnOnce() -> T) -> T {
        NOTED.set(*self);
        let result = call();
        *self = NOTED.replace(Self::NEVER);
        result
    }

    /// Earliest expiry in a chain that was accepted at `now`.
    ///
    /// Clients may send certificates that are on no path to an authority; an expired one is on none and is
    /// skipped. A certificate that cannot be parsed expires at once, so that its session is never resumed.
    pub(crate) fn of_chain(
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Self {
        let end = |der: &CertificateDer<'_>| {
            let end = valid_until(der)?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            Some(Self(end.as_secs()))
        };
        let ends = std::iter::once(leaf).chain(intermediates).map(|der| end(der).unwrap_or(Self(0)));
        let ends = ends.filter(|end| *end == Self(0) || !end.is_over(now));
        ends.min().unwrap_or(Self(0))
    }

    /// Notes this as the expiry of the session that is being made or resumed.
    pub(crate) fn note(self) {
        NOTED.set(self);
    }

    pub(super) fn noted() -> Self {
        NOTED.get()
    }

    /// The last second is part of the validity (RFC 5280 §4.1.2.5).
    pub(crate) fn is_over(self, now: UnixTime) -> bool {
        now.as_secs() > self.0
    }

    pub(super) fn to_bytes(self) -> [u8; LENGTH] {
        self.0.to_be_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; LENGTH]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    fn ending(end: u64) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.not_after = (SystemTime::UNIX_EPOCH + Duration::from_secs(end)).into();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_earliest_expiry_of_valid_certificates_counts() {
        let [one, two, three] = [1_000, 2_000, 3_000].map(ending);
        let junk = CertificateDer::from(vec![1, 2, 3]);
        for (leaf, rest, now, expected) in [
            (&two, vec![], 500, 2_000),
            (&two, vec![three.clone()], 500, 2_000),
            (&two, vec![one.clone(), three.clone()], 500, 1_000),
            (&two, vec![one.clone(), three.clone()], 1_500, 2_000),
            (&two, vec![junk.clone()], 500, 0),
            (&junk, vec![two.clone()], 500, 0),
        ] {
            assert_eq!(Expiry::of_chain(leaf, &rest, at(now)), Expiry(expected), "{rest:?} at {now}");
        }
    }

    #[test]
    fn each_connection_has_its_own_expiry() {
        let (mut one, mut other) = (Expiry::NEVER, Expiry::NEVER);
        one.during(|| Expiry(7).note());
        other.during(|| assert_eq!(Expiry::noted(), Expiry::NEVER));
        one.during(|| assert_eq!(Expiry::noted(), Expiry(7)));
        assert_eq!((one, other, Expiry::noted()), (Expiry(7), Expiry::NEVER, Expiry::NEVER));
        assert!(!one.is_over(at(7)) && one.is_over(at(8)) && !other.is_over(at(u64::MAX)));
    }
}
