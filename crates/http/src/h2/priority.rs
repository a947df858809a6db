//! Priorities of responses (RFC 9218).
//!
//! A client sends the field `priority` with a request, and PRIORITY_UPDATE to change it. The response of a
//! server may override it.

use std::collections::VecDeque;

use super::{Code, Violation};

/// Urgency without a parameter (RFC 9218 §4.1).
const USUAL: u8 = 3;
/// Maximum number of unopened streams with a priority. The oldest is dropped.
const AHEAD: usize = 32;
/// Time after which a stream that waits for more urgent ones gets one turn, in milliseconds: a long, more
/// urgent download must not starve it.
const STARVED: u64 = 1000;

/// Priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Urgency from 0, the most urgent, to 7.
    pub urgency: u8,
    /// Set if partial content is useful: the response then takes turns with others like it. Otherwise
    /// responses follow the order of their requests.
    pub incremental: bool,
}

impl Default for Priority {
    /// Default without a `priority` field: incremental, unlike that of a field without `i`. Clients that do
    /// not know priorities must not wait for a download to end.
    fn default() -> Self {
        Self { urgency: USUAL, incremental: true }
    }
}

impl Priority {
    /// Parses a field (RFC 9218 §4). Missing parameters have the defaults of §4.1 and §4.2; a malformed field
    /// is ignored.
    #[must_use]
    pub fn of_request(value: &[u8]) -> Self {
        let Some(said) = Parameters::parse(value) else { return Self::default() };
        Self { urgency: said.urgency.unwrap_or(USUAL), incremental: said.incremental.unwrap_or(false) }
    }

    /// Merges the field of a server's response, which has precedence (RFC 9218 §8).
    #[must_use]
    pub fn of_response(self, value: &[u8]) -> Self {
        let Some(said) = Parameters::parse(value) else { return self };
        Self {
            urgency: said.urgency.unwrap_or(self.urgency),
            incremental: said.incremental.unwrap_or(self.incremental),
        }
    }

    /// Rank of a stream among those that wait to send: the least goes first. `had_turn` is set if it has sent
    /// since it waited before; `waits` is the time waited in milliseconds.
    #[must_use]
    pub fn rank(self, id: u32, had_turn: bool, waits: u64) -> Rank {
        if waits >= STARVED {
            return Rank { urgency: 0, kind: 0, place: 0 };
        }
        let (kind, place) = if self.incremental { (1, had_turn.into()) } else { (0, id) };
        Rank { urgency: self.urgency, kind, place }
    }
}

/// Position of a stream among others; see [`Priority::rank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    urgency: u8,
    kind: u8,
    place: u32,
}

/// Parameters of a field.
#[derive(Clone, Copy, Debug, Default)]
struct Parameters {
    urgency: Option<u8>,
    incremental: Option<bool>,
}

impl Parameters {
    /// Parses the two parameters of a dictionary (RFC 9651 §3.2). The last one of a repeated parameter
    /// counts; a value of another type or range is ignored.
    fn parse(value: &[u8]) -> Option<Self> {
        let mut said = Self::default();
        for member in members(value) {
            let member = member?.trim_ascii();
            // Parameters of the value are ignored.
            let bare = member.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
            match bare {
                [b'u', b'=', digit @ b'0'..=b'7'] => said.urgency = Some(digit - b'0'),
                [b'u', b'=', ..] | b"u" => said.urgency = None,
                b"i" | b"i=?1" => said.incremental = Some(true),
                b"i=?0" => said.incremental = Some(false),
                [b'i', b'=', ..] => said.incremental = None,
                [b'a'..=b'z' | b'*', ..] => {}
                _ => return None,
            }
        }
        Some(said)
    }
}

/// Members of a dictionary; `None` for an unterminated string.
fn members(value: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = Some(value.trim_ascii()).filter(|value| !value.is_empty());
    std::iter::from_fn(move || {
        let all = rest.take()?;
        let (mut quoted, mut escaped) = (false, false);
        for (at, byte) in all.iter().enumerate() {
            match byte {
                _ if std::mem::take(&mut escaped) => {}
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b',' if !quoted => {
                    rest = Some(&all[at + 1..]);
                    return Some(Some(&all[..at]));
                }
                _ => {}
            }
        }
        Some((!quoted).then_some(all))
    })
}

/// Parses PRIORITY_UPDATE into stream and priority (RFC 9218 §7.1).
///
/// # Errors
/// The payload is too short, or names stream 0.
pub fn priority_update(payload: &[u8]) -> Result<(u32, Priority), Violation> {
    let Some((id, value)) = payload.split_first_chunk::<4>() else {
        return Err(Violation::new(Code::FRAME_SIZE_ERROR, "a frame with an invalid length"));
    };
    match u32::from_be_bytes(*id) & 0x7fff_ffff {
        0 => Err(Violation::new(Code::PROTOCOL_ERROR, "PRIORITY_UPDATE for stream 0")),
        id => Ok((id, Priority::of_request(value))),
    }
}

/// Priorities of streams that are not opened yet.
#[derive(Debug, Default)]
pub struct Updates(VecDeque<(u32, Priority)>);

impl Updates {
    /// Stores a priority, replacing an earlier one of the same stream.
    pub fn put(&mut self, id: u32, priority: Priority) {
        self.0.retain(|(known, _)| *known != id);
        if self.0.len() >= AHEAD {
            self.0.pop_front();
        }
        self.0.push_back((id, priority));
    }

    /// Takes the priority of a stream that is opened now. Streams are opened in order, so entries of lower
    /// ones are dropped.
    #[inline]
    pub fn take(&mut self, id: u32) -> Option<Priority> {
        if self.0.is_empty() {
            return None;
        }
        let said = self.0.iter().find(|(known, _)| *known == id).map(|(_, priority)| *priority);
        self.0.retain(|(known, _)| *known > id);
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(urgency: u8, incremental: bool) -> Priority {
        Priority { urgency, incremental }
    }

    #[test]
    fn fields_have_urgency_and_incremental() {
        for (value, wanted) in [
            ("", of(3, false)),
            ("u=0", of(0, false)),
            ("u=7, i", of(7, true)),
            ("i", of(3, true)),
            (" i=?1 ,u=2 ", of(2, true)),
            ("i=?0", of(3, false)),
            ("u=5;x=1, i;y", of(5, true)),
            ("u=1, u=6", of(6, false)),
            ("x=\"a, u=1\", u=2", of(2, false)),
            ("x=\"\\\", u=1\", u=4", of(4, false)),
            // Out of range, or of another type: ignored.
            ("u=8", of(3, false)),
            ("u=-1", of(3, false)),
            ("u=1.5, i=1", of(3, false)),
            ("u", of(3, false)),
        ] {
            assert_eq!(Priority::of_request(value.as_bytes()), wanted, "{value}");
        }
        for malformed in ["u=1,", "U=1", "=", "x=\"a, u=1", ",", "\u{e4}"] {
            assert_eq!(Priority::of_request(malformed.as_bytes()), Priority::default(), "{malformed}");
        }
    }

    #[test]
    fn a_response_overrides_parameters() {
        let asked = of(5, true);
        assert_eq!(asked.of_response(b"u=1"), of(1, true));
        assert_eq!(asked.of_response(b"i=?0"), of(5, false));
        assert_eq!(asked.of_response(b"x"), asked);
        assert_eq!(asked.of_response(b"\""), asked);
    }

    #[test]
    fn urgent_streams_go_first_and_none_starves() {
        let mut all = [
            ("waits for long", of(7, false).rank(99, true, STARVED)),
            ("urgent", of(0, false).rank(77, true, 0)),
            ("one by one", of(3, false).rank(5, true, 0)),
            ("behind it", of(3, false).rank(7, false, 0)),
            ("takes turns", of(3, true).rank(1, false, 0)),
            ("had its turn", of(3, true).rank(3, true, STARVED - 1)),
            ("background", of(7, true).rank(1, false, 0)),
        ];
        let wanted = all.map(|(what, _)| what);
        all.reverse();
        all.sort_by_key(|(_, rank)| *rank);
        assert_eq!(all.map(|(what, _)| what), wanted);
    }

    #[test]
    fn updates_ahead_are_bounded() {
        let mut updates = Updates::default();
        for id in (1..=2 * AHEAD as u32).map(|n| 2 * n + 1) {
            updates.put(id, of(1, false));
            updates.put(id, of(2, false));
        }
        assert_eq!(updates.0.len(), AHEAD);
        let last = 4 * AHEAD as u32 + 1;
        assert_eq!((updates.take(3), updates.take(last - 2)), (None, Some(of(2, false))));
        assert_eq!(updates.0.len(), 1, "streams before it cannot be opened any more");
        assert_eq!(
            (updates.take(last), updates.take(last), updates.0.capacity()),
            (Some(of(2, false)), None, 0)
        );
    }

    #[test]
    fn updates_name_a_stream() {
        let frame = |id: u32, value: &[u8]| priority_update(&[&id.to_be_bytes(), value].concat());
        assert_eq!(frame(5, b"u=1, i").unwrap(), (5, of(1, true)));
        assert_eq!(frame(0x8000_0005, b"").unwrap(), (5, of(3, false)));
        assert_eq!(frame(0, b"u=1").unwrap_err().code, Code::PROTOCOL_ERROR);
        assert_eq!(priority_update(&[0, 0, 1]).unwrap_err().code, Code::FRAME_SIZE_ERROR);
    }
}
