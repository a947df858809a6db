//! The frames of a client, as many as a turn has room for.

use offramp_http::h2::reader::{DataPiece, Reader, Step};
use offramp_http::h2::{FrameHeader, Framed};
use offramp_net::turn::{Turn, Work};

use super::Violation;

/// A frame, or a piece of one.
#[derive(Debug)]
pub(super) enum Frame<'b> {
    /// One that has come whole, and its payload.
    Whole(FrameHeader, &'b [u8]),
    /// A piece of the data of a DATA frame; whether it is the first, and the last.
    Data { head: FrameHeader, framed: Framed, piece: &'b [u8], first: bool, last: bool },
}

/// Has `handle` look at the frames that `bytes` bring, until they are used up or the turn is over, and gives how
/// many bytes were used up. A frame is one piece of work, besides what `handle` makes of it.
pub(super) fn read(
    reader: &mut Reader,
    bytes: &[u8],
    turn: &mut Turn,
    mut handle: impl FnMut(Frame<'_>, &mut Turn) -> Result<(), Violation>,
) -> Result<usize, Violation> {
    let mut rest = bytes;
    while !rest.is_empty() && !turn.is_over() {
        let (used, step) = reader.step(rest)?;
        turn.spend(Work::Pieces(1));
        match step {
            Step::More => {}
            Step::Here(head, place) => handle(Frame::Whole(head, &rest[place]), turn)?,
            Step::Kept(head) => handle(Frame::Whole(head, reader.kept()), turn)?,
            Step::Data(DataPiece { head, framed, piece, first, last }) => {
                handle(Frame::Data { head, framed, piece: &rest[piece], first, last }, turn)?;
            }
        }
        rest = &rest[used..];
    }
    Ok(bytes.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use offramp_http::h2::{Kind, PREFACE, flag};

    use super::*;

    fn frame(kind: Kind, flags: u8, payload: &[u8]) -> Vec<u8> {
        let head = FrameHeader { length: payload.len(), kind, flags, stream: 1 };
        [&head.bytes()[..], payload].concat()
    }

    /// However small frames are: no more than a turn of them is looked at before others have theirs, and none is lost.
    #[test]
    fn hostile_senders_have_no_longer_turns() {
        let data = |flags, payload: &[u8]| frame(Kind::Data, flags, payload);
        for (what, each) in [
            ("PING", frame(Kind::Ping, 0, &[0; 8])),
            ("SETTINGS", frame(Kind::Settings, 0, &[])),
            ("empty DATA", data(0, &[])),
            ("DATA of a byte", data(0, b"x")),
            ("DATA that is all padding", data(flag::PADDED, &[1, 0])),
            ("requests", frame(Kind::Headers, 5, &[0x82, 0x87, 0x84])),
            ("resets", frame(Kind::ResetStream, 0, &[0; 4])),
            ("CONTINUATION", frame(Kind::Continuation, 0, &[])),
        ] {
            let mut reader = Reader::of_client();
            let preface = read(&mut reader, PREFACE, &mut Turn::default(), |_, _| Ok(()));
            assert_eq!(preface.unwrap(), PREFACE.len());
            let bytes = each.repeat(20_000);
            let (mut rest, mut all) = (&bytes[..], 0);
            while !rest.is_empty() {
                let mut count = 0;
                let used = read(&mut reader, rest, &mut Turn::default(), |_, _| {
                    count += 1;
                    Ok(())
                });
                rest = &rest[used.unwrap()..];
                assert!((1..=2000).contains(&count), "{what}: {count} at a time");
                all += count;
            }
            assert_eq!(all, 20_000, "{what}");
        }
    }

    /// Work that a frame makes ends the turn as frames do.
    #[test]
    fn what_frames_make_of_work_counts() {
        let mut reader = Reader::of_client();
        let bytes = [&PREFACE[..], &frame(Kind::Headers, 5, &[0x82]).repeat(100)].concat();
        let mut count = 0;
        let read = read(&mut reader, &bytes, &mut Turn::default(), |_, turn| {
            count += 1;
            turn.spend(Work::Pieces(200));
            Ok(())
        });
        assert!((1..=10).contains(&count), "{count}");
        assert_eq!(read.unwrap(), PREFACE.len() + 10 * count);
    }
}
