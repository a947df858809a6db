//! The names that matter to a proxy, by number: they are compared once, when a field is found.

/// A well-known name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Known {
    /// Any other name.
    Other,
    /// `accept`
    Accept,
    /// `connection`
    Connection,
    /// `content-length`
    ContentLength,
    /// `cookie`
    Cookie,
    /// `date`
    Date,
    /// `expect`
    Expect,
    /// `forwarded`
    Forwarded,
    /// `host`
    Host,
    /// `http2-settings`
    Http2Settings,
    /// `keep-alive`
    KeepAlive,
    /// `max-forwards`
    MaxForwards,
    /// `proxy`, which CGI programs take for the setting of a proxy ("httpoxy", CVE-2016-5385)
    Proxy,
    /// `proxy-connection`
    ProxyConnection,
    /// `referer`
    Referer,
    /// `te`
    Te,
    /// `traceparent`
    Traceparent,
    /// `tracestate`
    Tracestate,
    /// `trailer`
    Trailer,
    /// `transfer-encoding`
    TransferEncoding,
    /// `upgrade`
    Upgrade,
    /// `user-agent`
    UserAgent,
    /// `via`
    Via,
    /// `x-forwarded-for`
    XForwardedFor,
    /// `x-forwarded-host`
    XForwardedHost,
    /// `x-forwarded-port`
    XForwardedPort,
    /// `x-forwarded-proto`
    XForwardedProto,
    /// `x-request-id`
    XRequestId,
}

/// A set of well-known names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KnownSet(u64);

impl KnownSet {
    /// The set of `names`.
    #[must_use]
    pub const fn of(names: &[Known]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < names.len() {
            bits |= names[at].bit();
            at += 1;
        }
        Self(bits)
    }

    /// The same set with `name` in it.
    #[must_use]
    #[inline]
    pub const fn and(self, name: Known) -> Self {
        Self(self.0 | name.bit())
    }

    /// Whether `name` is in it. [`Known::Other`] is in none.
    #[must_use]
    #[inline]
    pub const fn has(self, name: Known) -> bool {
        self.0 & name.bit() != 0
    }

    /// Whether both have a name in common.
    #[must_use]
    #[inline]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    pub(super) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[inline]
    pub(super) fn insert(&mut self, name: Known) {
        self.0 |= name.bit();
    }
}

impl Known {
    /// The number of a name, in whatever case.
    #[must_use]
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        let candidates: &[(&[u8], Self)] = match name.len() {
            2 => &[(b"te", Self::Te)],
            3 => &[(b"via", Self::Via)],
            4 => &[(b"host", Self::Host), (b"date", Self::Date)],
            5 => &[(b"proxy", Self::Proxy)],
            6 => &[(b"accept", Self::Accept), (b"cookie", Self::Cookie), (b"expect", Self::Expect)],
            7 => &[(b"upgrade", Self::Upgrade), (b"referer", Self::Referer), (b"trailer", Self::Trailer)],
            9 => &[(b"forwarded", Self::Forwarded)],
            10 => &[
                (b"user-agent", Self::UserAgent),
                (b"connection", Self::Connection),
                (b"keep-alive", Self::KeepAlive),
                (b"tracestate", Self::Tracestate),
            ],
            11 => &[(b"traceparent", Self::Traceparent)],
            12 => &[(b"x-request-id", Self::XRequestId), (b"max-forwards", Self::MaxForwards)],
            14 => &[(b"content-length", Self::ContentLength), (b"http2-settings", Self::Http2Settings)],
            15 => &[(b"x-forwarded-for", Self::XForwardedFor)],
            16 => &[
                (b"x-forwarded-host", Self::XForwardedHost),
                (b"x-forwarded-port", Self::XForwardedPort),
                (b"proxy-connection", Self::ProxyConnection),
            ],
            17 => &[
                (b"transfer-encoding", Self::TransferEncoding),
                (b"x-forwarded-proto", Self::XForwardedProto),
            ],
            _ => return Self::Other,
        };
        // Most names of a length are others, and differ in the first letter.
        let first = name[0] | 0x20;
        for (text, known) in candidates {
            if text[0] == first && name.eq_ignore_ascii_case(text) {
                return *known;
            }
        }
        Self::Other
    }

    /// The name in lower case; empty for [`Known::Other`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other => "",
            Self::Accept => "accept",
            Self::Connection => "connection",
            Self::ContentLength => "content-length",
            Self::Cookie => "cookie",
            Self::Date => "date",
            Self::Expect => "expect",
            Self::Forwarded => "forwarded",
            Self::Host => "host",
            Self::Http2Settings => "http2-settings",
            Self::KeepAlive => "keep-alive",
            Self::MaxForwards => "max-forwards",
            Self::Proxy => "proxy",
            Self::ProxyConnection => "proxy-connection",
            Self::Referer => "referer",
            Self::Te => "te",
            Self::Traceparent => "traceparent",
            Self::Tracestate => "tracestate",
            Self::Trailer => "trailer",
            Self::TransferEncoding => "transfer-encoding",
            Self::Upgrade => "upgrade",
            Self::UserAgent => "user-agent",
            Self::Via => "via",
            Self::XForwardedFor => "x-forwarded-for",
            Self::XForwardedHost => "x-forwarded-host",
            Self::XForwardedPort => "x-forwarded-port",
            Self::XForwardedProto => "x-forwarded-proto",
            Self::XRequestId => "x-request-id",
        }
    }

    #[inline]
    const fn bit(self) -> u64 {
        // Other has no bit.
        (1 << self as u8) & !1
    }

    /// All of them but [`Known::Other`].
    #[cfg(test)]
    pub(crate) const ALL: [Self; 27] = [
        Self::Accept,
        Self::Connection,
        Self::ContentLength,
        Self::Cookie,
        Self::Date,
        Self::Expect,
        Self::Forwarded,
        Self::Host,
        Self::Http2Settings,
        Self::KeepAlive,
        Self::MaxForwards,
        Self::Proxy,
        Self::ProxyConnection,
        Self::Referer,
        Self::Te,
        Self::Traceparent,
        Self::Tracestate,
        Self::Trailer,
        Self::TransferEncoding,
        Self::Upgrade,
        Self::UserAgent,
        Self::Via,
        Self::XForwardedFor,
        Self::XForwardedHost,
        Self::XForwardedPort,
        Self::XForwardedProto,
        Self::XRequestId,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case() {
        for known in Known::ALL {
            let name = known.name();
            assert_eq!(Known::of(name.as_bytes()), known, "{name}");
            assert_eq!(Known::of(name.to_uppercase().as_bytes()), known, "{name}");
            for at in 0..name.len() {
                let mut other = name.as_bytes().to_vec();
                other[at] = b'_';
                assert_eq!(Known::of(&other), Known::Other, "{name} {at}");
            }
            assert!(KnownSet::of(&[known]).has(known) && !KnownSet::of(&[known]).has(Known::Other));
        }
        for name in [&b""[..], b"h", b"hosts", b"x-forwarded-by"] {
            assert_eq!(Known::of(name), Known::Other);
        }
    }
}
