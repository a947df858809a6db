//! What RFC 9113 says of frames and streams (§3 to §6), as rows: what a client says, and what must follow.

use crate::support::h2_client::kind::{
    CONTINUATION, DATA, GOAWAY, HEADERS, PING, PRIORITY as PRIORITY_FRAME, PUSH_PROMISE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE,
};
use crate::support::h2_client::{
    ACK, END_HEADERS, END_STREAM, PADDED, PRIORITY, WHOLE, block, data, frame, get, headers, post, request,
    reset, settings, window,
};

/// Codes of errors (RFC 9113 §7).
pub(crate) const PROTOCOL: u32 = 1;
pub(crate) const FLOW_CONTROL: u32 = 3;
pub(crate) const CLOSED: u32 = 5;
pub(crate) const FRAME_SIZE: u32 = 6;
pub(crate) const REFUSED: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const COMPRESSION: u32 = 9;
pub(crate) const CALM: u32 = 11;

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// GOAWAY with this code, and the end.
    Connection(u32),
    /// The stream is reset with this code; the connection goes on.
    Stream(u32),
    /// The stream is answered; the connection goes on.
    Status(u16),
    /// Nothing; the connection goes on.
    Nothing,
}
pub(crate) use Then::{Connection, Nothing, Status, Stream};

/// One rule under test.
pub(crate) struct Row {
    pub(crate) section: &'static str,
    pub(crate) what: &'static str,
    /// What is said behind preface and settings.
    pub(crate) bytes: Vec<u8>,
    /// The stream that is looked at.
    pub(crate) stream: u32,
    /// What may follow: one thing, unless the RFC leaves a choice.
    pub(crate) then: Vec<Then>,
}

/// A row about stream 1.
pub(crate) fn row(section: &'static str, what: &'static str, bytes: impl Join, then: &[Then]) -> Row {
    Row { section, what, bytes: bytes.join(), stream: 1, then: then.to_vec() }
}

impl Row {
    /// The same about another stream.
    fn on(self, stream: u32) -> Self {
        Self { stream, ..self }
    }
}

/// Bytes in one piece or several.
pub(crate) trait Join {
    fn join(self) -> Vec<u8>;
}

impl Join for Vec<u8> {
    fn join(self) -> Vec<u8> {
        self
    }
}

impl<const N: usize> Join for [Vec<u8>; N] {
    fn join(self) -> Vec<u8> {
        self.concat()
    }
}

/// The block of a plain GET.
fn plain() -> Vec<u8> {
    block(&request("GET", "/", &[]))
}

/// A block of fields behind the fields of a GET, as bytes.
fn raw(more: &[u8]) -> Vec<u8> {
    frame(HEADERS, WHOLE, 1, &[&plain()[..], more].concat())
}

/// §4.1, §4.2: frames.
pub(crate) fn frames() -> Vec<Row> {
    let bomb = |length: usize| vec![0; length];
    vec![
        row("4.1", "a frame of no known type", [frame(0xf7, 0xff, 1, b"what"), get(1, "/")], &[Status(200)]),
        row("4.1", "a frame of no known type on no stream", frame(0x20, 0, 0, b"what"), &[Nothing]),
        row("4.1", "a flag of no known meaning", frame(PING, 0xfe, 0, &[0; 8]), &[Nothing]),
        row(
            "4.1",
            "the reserved bit of a stream",
            [frame(HEADERS, WHOLE, 1 | 1 << 31, &plain())],
            &[Status(200)],
        ),
        row(
            "4.2",
            "DATA above the largest frame",
            [post(1, "/", &[]), data(1, 0, &bomb(16_385))],
            &[Connection(FRAME_SIZE)],
        ),
        row(
            "4.2",
            "DATA of the largest frame",
            [post(1, "/", &[]), data(1, 1, &bomb(16_384))],
            &[Status(200)],
        ),
        row(
            "4.2",
            "HEADERS above the largest frame",
            frame(HEADERS, WHOLE, 1, &bomb(16_385)),
            &[Connection(FRAME_SIZE)],
        ),
        row(
            "4.2",
            "SETTINGS above the largest frame",
            frame(SETTINGS, 0, 0, &bomb(6 * 2731)),
            &[Connection(FRAME_SIZE)],
        ),
        row(
            "4.2",
            "a frame of no known type that is too large",
            frame(0xf7, 0, 0, &bomb(16_385)),
            &[Connection(FRAME_SIZE)],
        ),
    ]
}

/// §4.3: the compression of fields (RFC 7541).
pub(crate) fn compression() -> Vec<Row> {
    vec![
        row("4.3", "an index of 0", raw(&[0x80]), &[Connection(COMPRESSION)]),
        row("4.3", "an index behind both tables", raw(&[0xff, 0xff, 0x7f]), &[Connection(COMPRESSION)]),
        row("4.3", "an index that never ends", raw(&[0xff; 12]), &[Connection(COMPRESSION)]),
        row("4.3", "a literal that is cut short", raw(&[0, 5, b'a', b'b']), &[Connection(COMPRESSION)]),
        row(
            "4.3",
            "a literal whose name is an index behind the tables",
            raw(&[0x7f, 0xff, 0x7f, 0]),
            &[Connection(COMPRESSION)],
        ),
        row(
            "4.3",
            "a table above what was agreed on",
            frame(HEADERS, WHOLE, 1, &[&[0x3f, 0xe2, 0x1f][..], &plain()].concat()),
            &[Connection(COMPRESSION)],
        ),
        row("4.3", "a table's size behind a field", raw(&[0x20]), &[Connection(COMPRESSION)]),
        row(
            "4.3",
            "EOS in a string",
            raw(&[0, 1, b'a', 0x84, 0xff, 0xff, 0xff, 0xff]),
            &[Connection(COMPRESSION)],
        ),
        row(
            "4.3",
            "padding of a string above 7 bits",
            raw(&[0, 1, b'a', 0x82, 0x07, 0xff]),
            &[Connection(COMPRESSION)],
        ),
        row(
            "4.3",
            "a table's size before the fields",
            frame(HEADERS, WHOLE, 1, &[&[0x20][..], &plain()].concat()),
            &[Status(200)],
        ),
        row(
            "4.3",
            "a block in three frames",
            [
                frame(HEADERS, END_STREAM, 1, &plain()[..3]),
                frame(CONTINUATION, 0, 1, &plain()[3..9]),
                frame(CONTINUATION, END_HEADERS, 1, &plain()[9..]),
            ],
            &[Status(200)],
        ),
    ]
}

/// §5: streams.
pub(crate) fn streams() -> Vec<Row> {
    let done = || get(1, "/");
    vec![
        row("5.1", "DATA on an idle stream", data(1, 0, b"x"), &[Connection(PROTOCOL)]),
        row("5.1", "RST_STREAM on an idle stream", reset(1, 8), &[Connection(PROTOCOL)]),
        row("5.1", "WINDOW_UPDATE on an idle stream", window(1, 1), &[Connection(PROTOCOL)]),
        row(
            "5.1",
            "CONTINUATION on an idle stream",
            frame(CONTINUATION, 4, 1, &plain()),
            &[Connection(PROTOCOL)],
        ),
        row(
            "5.1",
            "PRIORITY on an idle stream",
            [frame(PRIORITY_FRAME, 0, 3, &[0, 0, 0, 0, 1]), get(1, "/")],
            &[Status(200)],
        ),
        row(
            "5.1",
            "DATA behind the end of a stream",
            [done(), data(1, 0, b"x")],
            &[Stream(CLOSED), Connection(CLOSED)],
        ),
        row(
            "5.1",
            "HEADERS behind the end of a stream",
            [done(), get(1, "/")],
            &[Stream(CLOSED), Connection(CLOSED)],
        ),
        row(
            "5.1",
            "DATA behind the client's own reset",
            [post(1, "/", &[]), reset(1, 8), data(1, 0, b"x")],
            &[Stream(CLOSED), Connection(CLOSED)],
        ),
        row(
            "5.1",
            "HEADERS behind the client's own reset",
            [post(1, "/", &[]), reset(1, 8), get(1, "/")],
            &[Stream(CLOSED), Connection(CLOSED)],
        ),
        row(
            "5.1",
            "WINDOW_UPDATE and RST_STREAM behind the client's own reset",
            [post(1, "/", &[]), reset(1, 8), window(1, 1), reset(1, 8)],
            &[Nothing],
        ),
    ]
}

/// §5.1.1 to §5.3: their numbers, how many there may be, what they depend on.
pub(crate) fn numbers() -> Vec<Row> {
    let own = [1_u32.to_be_bytes().to_vec(), vec![15]].concat();
    vec![
        row("5.1.1", "an even stream", get(2, "/"), &[Connection(PROTOCOL)]),
        row(
            "5.1.1",
            "a stream below one that was opened",
            [get(5, "/"), get(3, "/")],
            &[Connection(PROTOCOL), Connection(CLOSED)],
        ),
        row("5.1.1", "a stream that leaves others out", get(77, "/"), &[Status(200)]).on(77),
        row(
            "5.1.2",
            "more streams than were agreed on",
            [frame(SETTINGS, ACK, 0, &[]), (0..101).flat_map(|n| post(1 + 2 * n, "/", &[])).collect()],
            &[Stream(REFUSED), Stream(PROTOCOL)],
        )
        .on(201),
        row("5.3", "a stream that depends on itself", frame(PRIORITY_FRAME, 0, 1, &own), &[Nothing]),
        row(
            "5.3",
            "a request that depends on itself",
            frame(HEADERS, WHOLE | PRIORITY, 1, &[&own[..], &plain()].concat()),
            &[Status(200), Stream(PROTOCOL)],
        ),
    ]
}

/// §6.1 to §6.4: DATA, HEADERS, PRIORITY, RST_STREAM.
pub(crate) fn of_streams() -> Vec<Row> {
    let padded = |pad: u8, rest: &[u8]| frame(HEADERS, WHOLE | PADDED, 1, &[&[pad][..], rest].concat());
    let open = || post(1, "/", &[]);
    vec![
        row("6.1", "DATA on no stream", frame(DATA, 0, 0, b"x"), &[Connection(PROTOCOL)]),
        row(
            "6.1",
            "DATA with as much padding as payload",
            [open(), data(1, PADDED, &[3, 0, 0])],
            &[Connection(PROTOCOL)],
        ),
        row(
            "6.1",
            "DATA that is padded and empty",
            [open(), data(1, PADDED, &[])],
            &[Connection(FRAME_SIZE)],
        ),
        row(
            "6.1",
            "DATA with padding",
            [open(), data(1, PADDED | END_STREAM, &[2, b'x', 0, 0])],
            &[Status(200)],
        ),
        row("6.2", "HEADERS on no stream", frame(HEADERS, WHOLE, 0, &plain()), &[Connection(PROTOCOL)]),
        row("6.2", "HEADERS with more padding than payload", padded(255, &plain()), &[Connection(PROTOCOL)]),
        row("6.2", "HEADERS with padding", padded(2, &[&plain()[..], &[0, 0]].concat()), &[Status(200)]),
        row(
            "6.2",
            "HEADERS with priority",
            frame(HEADERS, WHOLE | PRIORITY, 1, &[&[0, 0, 0, 0, 9][..], &plain()].concat()),
            &[Status(200)],
        ),
        row(
            "6.2",
            "HEADERS with half a priority",
            frame(HEADERS, WHOLE | PRIORITY, 1, &[0, 0, 0]),
            &[Connection(FRAME_SIZE)],
        ),
        row(
            "6.3",
            "PRIORITY on no stream",
            frame(PRIORITY_FRAME, 0, 0, &[0, 0, 0, 1, 1]),
            &[Connection(PROTOCOL)],
        ),
        row(
            "6.3",
            "PRIORITY of 4 bytes",
            [open(), frame(PRIORITY_FRAME, 0, 1, &[0; 4])],
            &[Stream(FRAME_SIZE), Connection(FRAME_SIZE)],
        ),
        row("6.4", "RST_STREAM on no stream", reset(0, 8), &[Connection(PROTOCOL)]),
        row(
            "6.4",
            "RST_STREAM of 3 bytes",
            [open(), frame(RST_STREAM, 0, 1, &[0; 3])],
            &[Connection(FRAME_SIZE)],
        ),
        row("6.4", "RST_STREAM with no known code", [open(), reset(1, 0xdead)], &[Nothing]),
    ]
}

/// §6.5 to §6.9: what concerns the connection.
pub(crate) fn of_connections() -> Vec<Row> {
    let setting = |name, value| settings(&[(name, value)]);
    vec![
        row("6.5", "SETTINGS on a stream", frame(SETTINGS, 0, 1, &[]), &[Connection(PROTOCOL)]),
        row("6.5", "SETTINGS of 5 bytes", frame(SETTINGS, 0, 0, &[0; 5]), &[Connection(FRAME_SIZE)]),
        row(
            "6.5",
            "an acknowledgement with something in it",
            frame(SETTINGS, ACK, 0, &[0; 6]),
            &[Connection(FRAME_SIZE)],
        ),
        row("6.5.2", "ENABLE_PUSH of 2", setting(2, 2), &[Connection(PROTOCOL)]),
        row("6.5.2", "INITIAL_WINDOW_SIZE above 2^31-1", setting(4, 1 << 31), &[Connection(FLOW_CONTROL)]),
        row("6.5.2", "MAX_FRAME_SIZE below 2^14", setting(5, 16_383), &[Connection(PROTOCOL)]),
        row("6.5.2", "MAX_FRAME_SIZE above 2^24-1", setting(5, 1 << 24), &[Connection(PROTOCOL)]),
        row("6.5.2", "a setting of no known meaning", [setting(0xff00, 7), get(1, "/")], &[Status(200)]),
        row("6.5.2", "a setting twice", [settings(&[(4, 10), (4, 70_000)]), get(1, "/")], &[Status(200)]),
        row(
            "6.6",
            "PUSH_PROMISE of a client",
            [get(1, "/"), frame(PUSH_PROMISE, 4, 1, &[&[0, 0, 0, 2][..], &plain()].concat())],
            &[Connection(PROTOCOL)],
        ),
        row("6.7", "PING on a stream", frame(PING, 0, 1, &[0; 8]), &[Connection(PROTOCOL)]),
        row("6.7", "PING of 7 bytes", frame(PING, 0, 0, &[0; 7]), &[Connection(FRAME_SIZE)]),
        row("6.7", "an answer to a PING that nobody sent", frame(PING, ACK, 0, b"whatever"), &[Nothing]),
        row("6.8", "GOAWAY on a stream", frame(GOAWAY, 0, 1, &[0; 8]), &[Connection(PROTOCOL)]),
        row("6.8", "GOAWAY of 7 bytes", frame(GOAWAY, 0, 0, &[0; 7]), &[Connection(FRAME_SIZE)]),
        row(
            "6.9",
            "WINDOW_UPDATE of 3 bytes",
            frame(WINDOW_UPDATE, 0, 0, &[0; 3]),
            &[Connection(FRAME_SIZE)],
        ),
        row("6.9", "WINDOW_UPDATE of 0 for the connection", window(0, 0), &[Connection(PROTOCOL)]),
        row("6.9", "WINDOW_UPDATE of 0 for a stream", [post(1, "/", &[]), window(1, 0)], &[Stream(PROTOCOL)]),
        row(
            "6.9.1",
            "a window of the connection above 2^31-1",
            window(0, (1 << 31) - 1),
            &[Connection(FLOW_CONTROL)],
        ),
        row(
            "6.9.1",
            "a window of a stream above 2^31-1",
            [post(1, "/", &[]), window(1, (1 << 31) - 1)],
            &[Stream(FLOW_CONTROL)],
        ),
        row(
            "6.9.2",
            "windows of streams above 2^31-1 by a setting",
            [post(1, "/", &[]), window(1, 65_535), setting(4, (1 << 31) - 1)],
            &[Connection(FLOW_CONTROL), Stream(FLOW_CONTROL)],
        ),
    ]
}

/// §6.10: what may not stand between the frames of a block.
pub(crate) fn of_blocks() -> Vec<Row> {
    let begun = || frame(HEADERS, END_STREAM, 1, &plain()[..5]);
    let rest = |stream| frame(CONTINUATION, END_HEADERS, stream, &plain()[5..]);
    vec![
        row("6.10", "CONTINUATION behind a whole block", [get(1, "/"), rest(1)], &[Connection(PROTOCOL)]),
        row("6.10", "CONTINUATION for another stream", [begun(), rest(3)], &[Connection(PROTOCOL)]),
        row("6.10", "CONTINUATION on no stream", [begun(), rest(0)], &[Connection(PROTOCOL)]),
        row("6.10", "HEADERS within a block", [begun(), get(3, "/")], &[Connection(PROTOCOL)]),
        row("6.10", "DATA within a block", [begun(), data(1, 0, b"x")], &[Connection(PROTOCOL)]),
        row("6.10", "PING within a block", [begun(), frame(PING, 0, 0, &[0; 8])], &[Connection(PROTOCOL)]),
        row("6.10", "SETTINGS within a block", [begun(), settings(&[])], &[Connection(PROTOCOL)]),
        row(
            "6.10",
            "a frame of no known type within a block",
            [begun(), frame(0xf7, 0, 0, b"x")],
            &[Connection(PROTOCOL)],
        ),
    ]
}

/// A request with fields of its own.
pub(crate) fn with(more: &[(&str, &str)]) -> Vec<u8> {
    headers(1, WHOLE, &request("GET", "/", more))
}
