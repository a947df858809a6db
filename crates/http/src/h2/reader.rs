//! Splits received bytes into frames, in place. An incomplete frame is buffered, except DATA, which is passed
//! on as it arrives.

use std::ops::Range;

use super::{Code, FrameHeader, Framed, HEAD, Kind, PREFACE, Violation, flag};

/// Largest frame payload accepted, the minimum that every endpoint must accept (RFC 9113 §4.2).
pub(super) const MOST: usize = 1 << 14;
/// Memory that an idle reader keeps, in bytes.
const KEPT: usize = 1024;

/// Result of reading the next bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// No whole element; all bytes were used.
    More,
    /// A frame with its payload at this range of the input.
    Here(FrameHeader, Range<usize>),
    /// A frame with its payload in [`Reader::kept`].
    Kept(FrameHeader),
    /// A piece of the data of a DATA frame.
    Data(DataPiece),
}

/// A piece of the data of a DATA frame, with marks for the first and last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DataPiece {
    pub(super) head: FrameHeader,
    pub(super) framed: Framed,
    pub(super) piece: Range<usize>,
    pub(super) first: bool,
    pub(super) last: bool,
}

/// Progress within the input.
#[derive(Debug)]
enum State {
    /// Number of preface bytes received.
    Preface(usize),
    /// Number of bytes received of the next header.
    Head(usize),
    /// Payload of a frame other than DATA.
    Payload(FrameHeader),
    /// DATA, with the number of payload bytes received.
    Data(FrameHeader, Option<Framed>, usize),
}

/// Splits bytes into frames.
#[derive(Debug)]
pub(super) struct Reader {
    state: State,
    head: [u8; HEAD],
    pub(super) kept: Vec<u8>,
}

impl Reader {
    /// Reads frames of a server.
    pub(super) fn of_server() -> Self {
        Self { state: State::Head(0), head: [0; HEAD], kept: Vec::new() }
    }

    /// Reads frames of a client, behind its preface.
    pub(super) fn of_client() -> Self {
        Self { state: State::Preface(0), ..Self::of_server() }
    }

    /// Releases memory between frames.
    pub(super) fn rest(&mut self) {
        if !matches!(self.state, State::Payload(_)) {
            self.kept = Vec::new();
        }
    }

    /// Returns true within a frame other than DATA.
    pub(super) fn is_amid(&self) -> bool {
        !matches!(self.state, State::Head(0) | State::Data(..))
    }

    /// Reads the front of `bytes`, which is not empty: returns the number of bytes used, and the result.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<(usize, Step), Violation> {
        match self.state {
            State::Preface(have) => {
                let n = bytes.len().min(PREFACE.len() - have);
                if bytes[..n] != PREFACE[have..have + n] {
                    return Err(Violation::protocol("the preface is not that of HTTP/2"));
                }
                let have = have + n;
                self.state = if have == PREFACE.len() { State::Head(0) } else { State::Preface(have) };
                Ok((n, Step::More))
            }
            State::Head(have) => {
                // Most headers are contiguous.
                let n = bytes.len().min(HEAD - have);
                self.head[have..have + n].copy_from_slice(&bytes[..n]);
                if have + n < HEAD {
                    self.state = State::Head(have + n);
                    return Ok((n, Step::More));
                }
                self.begin(n, bytes)
            }
            State::Payload(head) => {
                let n = bytes.len().min(head.length - self.kept.len());
                self.kept.extend_from_slice(&bytes[..n]);
                if self.kept.len() < head.length {
                    return Ok((n, Step::More));
                }
                self.state = State::Head(0);
                Ok((n, Step::Kept(head)))
            }
            State::Data(head, framed, seen) => self.data(head, framed, seen, bytes),
        }
    }

    /// Handles a complete header that ends with the first `n` of `bytes`.
    fn begin(&mut self, n: usize, bytes: &[u8]) -> Result<(usize, Step), Violation> {
        let head = FrameHeader::read(&self.head);
        if head.length > MOST {
            return Err(Violation::new(Code::FRAME_SIZE_ERROR, "a frame above SETTINGS_MAX_FRAME_SIZE"));
        }
        if head.kind == Kind::Data && (head.length > 0 || head.has(flag::PADDED)) {
            if head.length == 0 {
                return Err(Violation::new(Code::FRAME_SIZE_ERROR, "DATA without space for its padding"));
            }
            self.state = State::Data(head, None, 0);
            return Ok((n, Step::More));
        }
        self.state = State::Head(0);
        if head.kind == Kind::Data {
            let framed = Framed { before: 0, length: 0 };
            return Ok((n, Step::Data(DataPiece { head, framed, piece: n..n, first: true, last: true })));
        }
        if bytes.len() - n >= head.length {
            return Ok((n + head.length, Step::Here(head, n..n + head.length)));
        }
        self.kept.clear();
        if self.kept.capacity() > KEPT {
            self.kept = Vec::new();
        }
        self.state = State::Payload(head);
        Ok((n, Step::More))
    }

    fn data(
        &mut self,
        head: FrameHeader,
        framed: Option<Framed>,
        seen: usize,
        bytes: &[u8],
    ) -> Result<(usize, Step), Violation> {
        let first = framed.is_none();
        let framed = match framed {
            Some(framed) => framed,
            None => Framed::of(&head, bytes.first().copied())
                .map_err(|code| Violation::new(code, "DATA with more padding than payload"))?,
        };
        let n = bytes.len().min(head.length - seen);
        let end = seen + n;
        let last = end == head.length;
        let within =
            |at: usize| at.clamp(framed.before, framed.before + framed.length).clamp(seen, end) - seen;
        let piece = within(seen)..within(end);
        self.state = if last { State::Head(0) } else { State::Data(head, Some(framed), end) };
        Ok((n, Step::Data(DataPiece { head, framed, piece, first, last })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, flags: u8, payload: &[u8]) -> Vec<u8> {
        let head = FrameHeader { length: payload.len(), kind, flags, stream: 1 };
        [&head.bytes()[..], payload].concat()
    }

    /// Reads all frames, with their whole payload or data, in steps of `step` bytes.
    fn frames(mut reader: Reader, bytes: &[u8], step: usize) -> Result<Vec<(Kind, Vec<u8>)>, Violation> {
        let (mut all, mut data) = (Vec::new(), Vec::new());
        for mut part in bytes.chunks(step) {
            while !part.is_empty() {
                let (used, step) = reader.step(part)?;
                match step {
                    Step::More => {}
                    Step::Here(head, place) => all.push((head.kind, part[place].to_vec())),
                    Step::Kept(head) => all.push((head.kind, reader.kept.clone())),
                    Step::Data(DataPiece { head, framed, piece, first, last }) => {
                        assert!(!first || data.is_empty());
                        data.extend_from_slice(&part[piece]);
                        if last {
                            assert_eq!(data.len(), framed.length);
                            all.push((head.kind, std::mem::take(&mut data)));
                        }
                    }
                }
                part = &part[used..];
            }
        }
        Ok(all)
    }

    #[test]
    fn frames_are_the_same_at_every_split() {
        let ping = b"12345678";
        let bytes = [
            frame(Kind::Settings, 0, &[]),
            frame(Kind::Ping, 0, ping),
            frame(Kind::Data, 0, b"hello"),
            frame(Kind::Data, flag::PADDED, &[3, b'a', b'b', 0, 0, 0]),
            frame(Kind::Data, flag::PADDED, &[0]),
            frame(Kind::Data, 1, &[]),
            frame(Kind::Headers, 4, &[7; 3000]),
        ]
        .concat();
        let data = |text: &[u8]| (Kind::Data, text.to_vec());
        let wanted = [
            (Kind::Settings, Vec::new()),
            (Kind::Ping, ping.to_vec()),
            data(b"hello"),
            data(b"ab"),
            data(b""),
            data(b""),
            (Kind::Headers, vec![7; 3000]),
        ];
        let of_client = [PREFACE, &bytes[..]].concat();
        for step in [1, 2, 3, 7, 9, 10, 100, 2000, usize::MAX] {
            assert_eq!(frames(Reader::of_server(), &bytes, step).unwrap(), wanted, "{step}");
            assert_eq!(frames(Reader::of_client(), &of_client, step).unwrap(), wanted, "{step}");
        }
    }

    #[test]
    fn invalid_frames_are_rejected() {
        for (bytes, code) in [
            (vec![0, 0x40, 1, 4, 0, 0, 0, 0, 0], Code::FRAME_SIZE_ERROR),
            (frame(Kind::Data, flag::PADDED, &[]), Code::FRAME_SIZE_ERROR),
            (frame(Kind::Data, flag::PADDED, &[2, 0]), Code::PROTOCOL_ERROR),
        ] {
            for step in [1, usize::MAX] {
                let refused = frames(Reader::of_server(), &bytes, step).unwrap_err();
                assert_eq!(refused.code, code, "{}", bytes.escape_ascii());
            }
        }
        let refused = frames(Reader::of_client(), b"GET / HTTP/1.1\r\n", 1).unwrap_err();
        assert_eq!(refused.code, Code::PROTOCOL_ERROR);
    }
}
