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
    /// `priority`
    Priority,
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
        let candidates: &[Entry] = match name.len() {
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
            Some(entry) if is_same(name, ends, entry.known) => entry.known,
            _ => Self::Other,
        }
    }

    const fn entry(self) -> Entry {
        let (first, last) = ends(self.name().as_bytes());
        Entry { ends: (first | FOLD, last | FOLD), known: self }
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

    /// All of them but [`Known::Other`].
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

/// A well-known name, to be compared in registers.
struct Entry {
    ends: (u64, u64),
    known: Known,
}

/// What makes letters lower case, eight at a time. All bytes of well-known names have this bit.
const FOLD: u64 = u64::from_le_bytes([0x20; 8]);

/// The first and the last up to eight bytes of a name: all of one that has two bytes at least and not more than sixteen.
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

/// Whether a name whose folded ends are those of `known` is that one: folding makes a hyphen of CR too, and a digit of
/// another control byte, and a byte in the middle of seventeen is in neither end.
#[inline]
fn is_same(name: &[u8], (first, last): (u64, u64), known: Known) -> bool {
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
    fn names_are_known_in_any_case() {
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
