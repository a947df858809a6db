//! Choice of a backend for a request on a route with shares.
//!
//! Pure: the random number is an argument. A request that names a backend gets it; else the cookie of an earlier
//! response keeps the client with its backend; else the share decides. Shares are parts of the numbers from 0 to
//! 2^64 in the order of the configuration, and a key always has the same number: where the weights change from 95
//! and 5 to 90 and 10, a client among the last 5 of 100 stays there.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;
use offramp_http::head::Fields;
use offramp_upstream::pick::key;
use offramp_upstream::sticky::cookie;
use offramp_upstream::{HashSource, Sticky};

/// The servers that get the requests of a route.
#[derive(Debug)]
pub enum RouteBackends {
    /// Those of one backend, by its place in [`Snapshot::backends`](crate::Snapshot::backends).
    Backend(usize),
    /// Those of several backends, by shares.
    Split(Box<Split>),
}

/// The shares of a route.
#[derive(Debug)]
pub struct Split {
    /// At least one; not all of weight 0.
    pub shares: Vec<Share>,
    /// Key of a request's share; `None`: by chance.
    pub by: Option<HashSource>,
    /// Field with the name of the backend.
    pub header: Option<http::HeaderName>,
    /// Cookie with the name of the backend.
    pub cookie: Option<Box<str>>,
    /// The cookie that keeps clients with their backends.
    pub sticky: Option<Sticky>,
}

/// The share of one backend.
#[derive(Debug)]
pub struct Share {
    /// The name of the backend.
    pub name: Arc<str>,
    /// Its place in [`Snapshot::backends`](crate::Snapshot::backends).
    pub backend: usize,
    /// Its part of the sum of all weights.
    pub weight: u16,
}

/// Share of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareChoice {
    /// The place of the backend.
    pub(crate) backend: usize,
    /// Set if the client is to get the cookie: the share decided, and the client had none yet, or an old one.
    pub(crate) fresh: bool,
}

impl RouteBackends {
    /// Chooses the backend of a request, as [`Split::choose`] does.
    pub(crate) fn choose(
        &self,
        fields: &Fields,
        client: Option<IpAddr>,
        random: impl FnOnce() -> u64,
    ) -> ShareChoice {
        match self {
            Self::Backend(backend) => ShareChoice { backend: *backend, fresh: false },
            Self::Split(split) => split.choose(fields, client, random),
        }
    }

    /// The cookie that keeps a client with its backend, where it is to be set. `secure`: it came over TLS.
    pub(crate) fn cookie(&self, choice: ShareChoice, secure: bool) -> Option<HeaderValue> {
        let Self::Split(split) = self else { return None };
        let sticky = split.sticky.as_ref().filter(|_| choice.fresh)?;
        let share = split.shares.iter().find(|share| share.backend == choice.backend)?;
        sticky.set_cookie(&share.name, secure)
    }
}

impl Split {
    /// Chooses for a request with these fields from `client`. `random` gives a number of 64 random bits.
    pub(crate) fn choose(
        &self,
        fields: &Fields,
        client: Option<IpAddr>,
        random: impl FnOnce() -> u64,
    ) -> ShareChoice {
        if let Some(share) = self.named(fields) {
            return ShareChoice { backend: share.backend, fresh: false };
        }
        if let Some((share, outdated)) = self.tied(fields) {
            return ShareChoice { backend: share.backend, fresh: outdated };
        }
        let share = self.place(self.number(fields, client).unwrap_or_else(random));
        ShareChoice { backend: share.backend, fresh: self.sticky.is_some() }
    }

    /// The share that the request names.
    fn named(&self, fields: &Fields) -> Option<&Share> {
        let of = |value: &[u8]| self.shares.iter().find(|share| share.name.as_bytes() == value);
        let header = self.header.as_ref();
        let header = header.and_then(|name| fields.named(name.as_str().as_bytes()).find_map(of));
        header.or_else(|| cookie(fields, self.cookie.as_ref()?).and_then(of))
    }

    /// The share that the client had before, unless it was closed; set for a cookie that is to be replaced.
    fn tied(&self, fields: &Fields) -> Option<(&Share, bool)> {
        let names = self.shares.iter().map(|share| &*share.name);
        let tie = self.sticky.as_ref()?.server(fields, names)?;
        let share = Some(&self.shares[tie.server]).filter(|share| share.weight > 0);
        Some((share?, tie.outdated))
    }

    /// The number that the key of a request has; `None` where chance decides. One without the key goes by its client.
    fn number(&self, fields: &Fields, client: Option<IpAddr>) -> Option<u64> {
        let value = match self.by.as_ref()? {
            HashSource::Client => None,
            HashSource::Cookie(name) => cookie(fields, name),
            HashSource::Header(name) => fields.named(name.as_str().as_bytes()).next(),
        };
        value.map(key).or_else(|| client.map(network))
    }

    /// The share that has this number.
    fn place(&self, number: u64) -> &Share {
        let total: u64 = self.shares.iter().map(|share| u64::from(share.weight)).sum();
        // Below the total.
        let mut point = (u128::from(number) * u128::from(total)) >> 64;
        let mut last = &self.shares[0];
        for share in self.shares.iter().filter(|share| share.weight > 0) {
            last = share;
            match point.checked_sub(u128::from(share.weight)) {
                None => break,
                Some(rest) => point = rest,
            }
        }
        last
    }
}

/// The key of a client: its IPv4 address, or the first 64 bits of its IPv6 address, because clients change the others.
fn network(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => key(&address.octets()),
        IpAddr::V6(address) => key(&address.octets()[..8]),
    }
}

#[cfg(test)]
mod tests {
    use offramp_upstream::StickyKey;

    use super::*;

    fn split(weights: &[u16], by: Option<HashSource>) -> Split {
        let share = |(backend, weight): (usize, &u16)| Share {
            name: format!("b{backend}").into(),
            backend,
            weight: *weight,
        };
        let shares = weights.iter().enumerate().map(share).collect();
        Split { shares, by, header: None, cookie: None, sticky: None }
    }

    fn client(number: u32) -> Option<IpAddr> {
        Some(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn numbers_are_in_the_shares_that_have_them() {
        let split = split(&[950, 0, 50], None);
        let at = |share: f64| (share * 2_f64.powi(64)) as u64;
        for (number, backend) in
            [(0, 0), (at(0.5), 0), (at(0.9499), 0), (at(0.9501), 2), (u64::MAX - 1, 2), (u64::MAX, 2)]
        {
            let choice = split.choose(&Fields::new(), None, || number);
            assert_eq!(choice, ShareChoice { backend, fresh: false }, "{number}");
        }
        // Evenly spaced numbers fall exactly as the weights say.
        let mut counts = [0; 3];
        for step in 0..1000_u64 {
            counts[split.place(step * (u64::MAX / 1000) + u64::MAX / 2000).backend] += 1;
        }
        assert_eq!(counts, [950, 0, 50]);
    }

    #[test]
    fn clients_stay_and_move_only_as_far_as_weights_do() {
        let by = || Some(HashSource::Client);
        let (before, after) = (split(&[95, 5], by()), split(&[80, 20], by()));
        let of = |split: &Split, number| {
            split.choose(&Fields::new(), client(number), || unreachable!("the client decides")).backend
        };
        let (mut few, mut more) = (0, 0);
        for number in 0..20_000 {
            let (one, other) = (of(&before, number), of(&after, number));
            assert_eq!(one, of(&before, number));
            assert!(one == 0 || other == 1, "client {number} left the share that grew");
            (few, more) = (few + one, more + other);
        }
        // Hashes of fixed keys: always the same counts.
        assert!((900..1100).contains(&few) && (3800..4200).contains(&more), "{few} and {more}");
        // The addresses of one IPv6 network are one client.
        let v6 = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        let halves = split(&[1, 1], by());
        let of = |text: &str| halves.choose(&Fields::new(), v6(text), || unreachable!()).backend;
        assert!((0..64).all(|n| of(&format!("2001:db8::{n:x}")) == of("2001:db8::")));
        assert!((0..64).any(|n| of(&format!("2001:db8:0:{n:x}::1")) != of("2001:db8::")));
    }

    #[test]
    fn cookies_and_fields_are_keys() {
        let header = split(&[1, 1], Some(HashSource::Header(http::HeaderName::from_static("x-tenant"))));
        let cookie = split(&[1, 1], Some(HashSource::Cookie("session".into())));
        let mut seen = [[0; 2]; 2];
        for number in 0..1000 {
            let fields: Fields = [("x-tenant", format!("t{number}"))].into_iter().collect();
            seen[0][header.choose(&fields, client(number), || unreachable!()).backend] += 1;
            let fields: Fields = [("cookie", format!("a=b; session=s{number}"))].into_iter().collect();
            let choice = cookie.choose(&fields, client(1), || unreachable!());
            assert_eq!(choice, cookie.choose(&fields, client(2), || unreachable!()));
            seen[1][choice.backend] += 1;
        }
        assert!(seen.iter().flatten().all(|count| (400..600).contains(count)), "{seen:?}");
        // Without the key the client decides, and without a client chance.
        assert_eq!(header.choose(&Fields::new(), None, || u64::MAX).backend, 1);
    }

    #[test]
    fn requests_name_backends_and_clients_are_tied() {
        let mut split = split(&[1, 1, 0], None);
        split.header = Some(http::HeaderName::from_static("x-version"));
        split.cookie = Some("version".into());
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
        let key = StickyKey::new([7; StickyKey::BYTES], later);
        split.sticky = Some(Sticky { cookie: "share".into(), key });
        let of = |split: &Split, name: &'static str, value: String| {
            let fields: Fields = [(name, value)].into_iter().collect();
            split.choose(&fields, client(1), || 0)
        };
        let fresh = ShareChoice { backend: 0, fresh: true };
        assert_eq!(split.choose(&Fields::new(), None, || 0), fresh);
        assert_eq!(of(&split, "x-version", "b2".into()), ShareChoice { backend: 2, fresh: false });
        assert_eq!(of(&split, "x-version", "b3".into()), fresh);
        assert_eq!(of(&split, "cookie", "version=b1".into()), ShareChoice { backend: 1, fresh: false });
        // The cookie as it is set leads back, even where another field names the same.
        let set = split.sticky.as_ref().unwrap().set_cookie("b1", true).unwrap();
        let pair = set.to_str().unwrap().split(';').next().unwrap().to_owned();
        assert_eq!(of(&split, "cookie", pair.clone()), ShareChoice { backend: 1, fresh: false });
        // `b1` under the key of older versions: it counts, and is replaced.
        let old = "share=327209712c9f4eb9".to_owned();
        assert_eq!(of(&split, "cookie", old), ShareChoice { backend: 1, fresh: true });
        // A share that was closed lets its clients go.
        split.shares[1].weight = 0;
        assert_eq!(of(&split, "cookie", pair), fresh);
        assert_eq!(of(&split, "cookie", "share=0000000000000000".into()), fresh);
    }
}
