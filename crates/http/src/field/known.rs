//! Well-known field names by number: a name is compared once, when its field is found.

/// A well-known field name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Known {
    /// Any name that is not listed below.
    Other,
    /// `accept`: media types that the client accepts
    Accept,
    /// `connection`: options of this connection
    Connection,
    /// `content-length`: length of the content
    ContentLength,
    /// `cookie`: cookies of the client
    Cookie,
    /// `date`: time of the response
    Date,
    /// `expect`: a request for `100 Continue`
    Expect,
    /// `forwarded`: clients by proxy (RFC 7239)
    Forwarded,
    /// `host`: host and port of the target
    Host,
    /// `http2-settings`: upgrade to HTTP/2 (obsolete)
    Http2Settings,
    /// `keep-alive`: parameters of persistent connections
    KeepAlive,
    /// `max-forwards`: bound for TRACE and OPTIONS
    MaxForwards,
    /// `priority`: urgency of the response (RFC 9218)
    Priority,
    /// `proxy`, which CGI programs treat as the setting of a proxy ("httpoxy", CVE-2016-5385)
    Proxy,
    /// `proxy-connection`: old, nonstandard `connection`
    ProxyConnection,
    /// `referer`: page that led to the request
    Referer,
    /// `te`: transfer codings that the client accepts
    Te,
    /// `traceparent`: position in a trace (W3C)
    Traceparent,
    /// `tracestate`: vendor data of a trace (W3C)
    Tracestate,
    /// `trailer`: names of the trailers
    Trailer,
    /// `transfer-encoding`: framing by chunks
    TransferEncoding,
    /// `upgrade`: protocols that the client proposes
    Upgrade,
    /// `user-agent`: software of the client
    UserAgent,
    /// `via`: proxies on the way
    Via,
    /// `x-forwarded-for`: clients by proxy
    XForwardedFor,
    /// `x-forwarded-host`: host that the client requested
    XForwardedHost,
    /// `x-forwarded-port`: port that the client connected to
    XForwardedPort,
    /// `x-forwarded-proto`: scheme that the client used
    XForwardedProto,
    /// `x-request-id`: identifier for logs
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

    /// The set with `name` added.
    #[must_use]
    #[inline]
    pub const fn and(self, name: Known) -> Self {
        Self(self.0 | name.bit())
    }

    /// Returns true if `name` is in the set. [`Known::Other`] is in none.
    #[must_use]
    #[inline]
    pub const fn has(self, name: Known) -> bool {
        self.0 & name.bit() != 0
    }

    /// Returns true if the sets intersect.
    #[must_use]
    #[inline]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[inline]
    pub(crate) fn insert(&mut self, name: Known) {
        self.0 |= name.bit();
    }
}

impl Known {
    /// Looks up a name in any case.
    #[must_use]
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        let candidates: &[PackedName] = match name.len() {
            2 => const { &[Self::Te.entry()] },
            3 => const { &[Self::Via.entry()] },
            4 => const { &[Self::Host.entry(), Self::Date.entry()] },
            5 => const { &[Self::Proxy.entry()] },
            6 => const { &[Self::Accept.entry(), Self::Cookie.entry(), Self::Expect.entry()] },
            7 => const { &[Self::Upgrade.entry(), Self::Referer.entry(), Self::Trailer.entry()] },
            8 => const { &[Self::Priority.entry()] },
            9 => const { &[Self::Forwarded.entry()] },
            10 => {
                const {
                    &[
                        Self::UserAgent.entry(),
                        Self::Connection.entry(),
                        Self::KeepAlive.entry(),
                        Self::Tracestate.entry(),
                    ]
                }
            }
            11 => const { &[Self::Traceparent.entry()] },
            12 => const { &[Self::XRequestId.entry(), Self::MaxForwards.entry()] },
            14 => const { &[Self::ContentLength.entry(), Self::Http2Settings.entry()] },
            15 => const { &[Self::XForwardedFor.entry()] },
            16 => {
                const {
                    &[
                        Self::XForwardedHost.entry(),
                        Self::XForwardedPort.entry(),
                        Self::ProxyConnection.entry(),
                    ]
                }
            }
            17 => const { &[Self::TransferEncoding.entry(), Self::XForwardedProto.entry()] },
            _ => return Self::Other,
        };
        let ends = ends(name);
        let folded = (ends.0 | FOLD, ends.1 | FOLD);
        match candidates.iter().find(|entry| entry.ends == folded) {
            Some(entry) if is_same(name, ends.0, ends.1, entry.known) => entry.known,
            _ => Self::Other,
        }
    }

    const fn entry(self) -> PackedName {
        let (first, last) = ends(self.name().as_bytes());
        PackedName { ends: (first | FOLD, last | FOLD), known: self }
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
            Self::Priority => "priority",
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

    /// Every name except [`Known::Other`].
    #[cfg(test)]
    pub(crate) const ALL: [Self; 28] = [
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
        Self::Priority,
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

/// A well-known name in a form that is compared in registers.
struct PackedName {
    ends: (u64, u64),
    known: Known,
}

/// Bit that makes letters lower case, eight at a time. All bytes of well-known names have it.
const FOLD: u64 = u64::from_le_bytes([0x20; 8]);

/// The first and the last up to eight bytes of a name: together the whole name, if it has two to sixteen
/// bytes.
#[inline(always)]
const fn ends(name: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
    } else if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        (u32::from_le_bytes(*first) as u64, u32::from_le_bytes(*last) as u64)
    } else if let (Some(first), Some(last)) = (name.first_chunk::<2>(), name.last_chunk::<2>()) {
        (u16::from_le_bytes(*first) as u64, u16::from_le_bytes(*last) as u64)
    } else {
        (0, 0)
    }
}

/// Confirms that a name with the folded ends of `known` is that name: folding also maps CR to a hyphen and
/// some control bytes to digits, and of seventeen bytes the middle one is in neither end.
#[inline]
fn is_same(name: &[u8], first: u64, last: u64, known: Known) -> bool {
    let bits = FOLD << 1;
    let all = match name.len() {
        ..4 => bits & 0xffff,
        4..8 => bits & 0xffff_ffff,
        _ => bits,
    };
    let visible = |word: u64| (word | word << 1) & bits == all;
    visible(first)
        && visible(last)
        && (name.len() <= 16 || name[8].eq_ignore_ascii_case(&known.name().as_bytes()[8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        for known in Known::ALL {
            let name = known.name();
            assert_eq!(Known::of(name.as_bytes()), known, "{name}");
            assert_eq!(Known::of(name.to_uppercase().as_bytes()), known, "{name}");
            for at in 0..name.len() {
                for byte in 0..=255 {
                    let mut other = name.as_bytes().to_vec();
                    other[at] = byte;
                    let same = other.eq_ignore_ascii_case(name.as_bytes());
                    let expected = if same { known } else { Known::Other };
                    assert_eq!(Known::of(&other), expected, "{name} {at} {byte}");
                }
            }
            assert!(KnownSet::of(&[known]).has(known) && !KnownSet::of(&[known]).has(Known::Other));
        }
        for name in [&b""[..], b"h", b"hosts", b"x-forwarded-by"] {
            assert_eq!(Known::of(name), Known::Other);
        }
    }
}
