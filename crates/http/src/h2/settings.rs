//! SETTINGS: limits that the sides of a connection announce (RFC 9113 §6.5).

use super::Code;

/// A setting. Those without meaning for a server are omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Size of the peer's HPACK decoder table, in bytes (RFC 7541 §6.5.2).
    HeaderTableSize(u32),
    /// Maximum number of concurrent streams.
    MaxConcurrentStreams(u32),
    /// Initial window of streams in bytes, at most 2³¹−1.
    InitialWindowSize(u32),
    /// Maximum frame payload in bytes, 2¹⁴ to 2²⁴−1.
    MaxFrameSize(u32),
    /// Maximum size of a field section in bytes, each field counted with 32 more.
    MaxHeaderListSize(u32),
    /// Extended CONNECT is supported (RFC 8441 §3).
    EnableConnectProtocol,
    /// The priorities of RFC 7540 are not used (RFC 9218 §2.1).
    NoRfc7540Priorities,
}

/// Parses the payload of SETTINGS; unknown settings, and those without meaning for a server, are skipped.
///
/// # Errors
/// `FRAME_SIZE_ERROR` for an incomplete setting, `PROTOCOL_ERROR` and `FLOW_CONTROL_ERROR` for an invalid
/// value (RFC 9113 §6.5.2).
pub fn settings(payload: &[u8]) -> Result<impl Iterator<Item = Setting>, Code> {
    let (pairs, []) = payload.as_chunks::<6>() else { return Err(Code::FRAME_SIZE_ERROR) };
    pairs.iter().try_for_each(|pair| setting(pair).map(drop))?;
    Ok(pairs.iter().filter_map(|pair| setting(pair).ok().flatten()))
}

fn setting(&[a, b, c, d, e, f]: &[u8; 6]) -> Result<Option<Setting>, Code> {
    let value = u32::from_be_bytes([c, d, e, f]);
    Ok(Some(match u16::from_be_bytes([a, b]) {
        1 => Setting::HeaderTableSize(value),
        2 if value > 1 => return Err(Code::PROTOCOL_ERROR),
        3 => Setting::MaxConcurrentStreams(value),
        4 if value > i32::MAX as u32 => return Err(Code::FLOW_CONTROL_ERROR),
        4 => Setting::InitialWindowSize(value),
        5 if !(1 << 14..1 << 24).contains(&value) => return Err(Code::PROTOCOL_ERROR),
        5 => Setting::MaxFrameSize(value),
        6 => Setting::MaxHeaderListSize(value),
        8 if value > 1 => return Err(Code::PROTOCOL_ERROR),
        8 if value == 1 => Setting::EnableConnectProtocol,
        9 if value > 1 => return Err(Code::PROTOCOL_ERROR),
        9 if value == 1 => Setting::NoRfc7540Priorities,
        _ => return Ok(None),
    }))
}

/// Appends a payload with `settings`.
pub fn write_settings(settings: &[Setting], out: &mut Vec<u8>) {
    for setting in settings {
        let (name, value) = match *setting {
            Setting::HeaderTableSize(value) => (1_u16, value),
            Setting::MaxConcurrentStreams(value) => (3, value),
            Setting::InitialWindowSize(value) => (4, value),
            Setting::MaxFrameSize(value) => (5, value),
            Setting::MaxHeaderListSize(value) => (6, value),
            Setting::EnableConnectProtocol => (8, 1),
            Setting::NoRfc7540Priorities => (9, 1),
        };
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(u16, u32)]) -> Result<Vec<Setting>, Code> {
        let bytes = |&(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        let payload: Vec<_> = pairs.iter().flat_map(bytes).collect();
        settings(&payload).map(Iterator::collect)
    }

    #[test]
    fn settings_round_trip() {
        let all = [
            Setting::HeaderTableSize(0),
            Setting::MaxConcurrentStreams(7),
            Setting::InitialWindowSize((1 << 31) - 1),
            Setting::MaxFrameSize(1 << 14),
            Setting::MaxHeaderListSize(u32::MAX),
            Setting::EnableConnectProtocol,
            Setting::NoRfc7540Priorities,
        ];
        let mut payload = Vec::new();
        write_settings(&all, &mut payload);
        assert_eq!(settings(&payload).unwrap().collect::<Vec<_>>(), all);
        assert_eq!(settings(&payload[1..]).err(), Some(Code::FRAME_SIZE_ERROR));
    }

    #[test]
    fn values_have_bounds() {
        for (name, value, wanted) in [
            (2, 0, Ok(Vec::new())),
            (2, 1, Ok(Vec::new())),
            (2, 2, Err(Code::PROTOCOL_ERROR)),
            (4, 1 << 31, Err(Code::FLOW_CONTROL_ERROR)),
            (5, (1 << 14) - 1, Err(Code::PROTOCOL_ERROR)),
            (5, (1 << 24) - 1, Ok(vec![Setting::MaxFrameSize((1 << 24) - 1)])),
            (5, 1 << 24, Err(Code::PROTOCOL_ERROR)),
            (8, 0, Ok(Vec::new())),
            (8, 2, Err(Code::PROTOCOL_ERROR)),
            (9, 0, Ok(Vec::new())),
            (9, 2, Err(Code::PROTOCOL_ERROR)),
            (0xff00, 7, Ok(Vec::new())),
        ] {
            assert_eq!(read(&[(name, value)]), wanted, "{name} {value}");
        }
        // A single invalid value invalidates the frame.
        assert_eq!(read(&[(4, 10), (5, 0)]), Err(Code::PROTOCOL_ERROR));
    }
}
