//! Every type of frame in every state of its stream, in both roles (RFC 9113 §5.1).

use http::{Method, StatusCode};
use offramp_http::h2::{Code, Connection, Kind, PREFACE, Role, flag};
use offramp_http::head::Fields;

use super::frames::{CONFIG, Came, content, frame, headers, receive, request, resets, sent};

const REQUEST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "a.test")];
const OK: (&str, &str) = (":status", "200");
const TYPES: [&str; 12] = [
    "DATA",
    "HEADERS",
    "PRIORITY",
    "RST_STREAM",
    "SETTINGS",
    "PUSH_PROMISE",
    "PING",
    "GOAWAY",
    "WINDOW_UPDATE",
    "CONTINUATION",
    "PRIORITY_UPDATE",
    "unknown",
];

/// Rows are states, columns are [`TYPES`]. `ok`: processed. `-`: no effect. `~`: no effect, but a fault. `s` and `c`: an error
/// of the stream or of the connection, with its code.
const SERVER: &str = "
    idle            c1  ok  -   c1  c1  c1  c1  c1  c1  c1  c1  -
    open            ok  ok  -   ok  c1  c1  c1  c1  ok  c1  c1  -
    half-local      ok  ok  -   ok  c1  c1  c1  c1  ok  c1  c1  -
    half-remote     s5  s5  -   ok  c1  c1  c1  c1  ok  c1  c1  -
    ended           s5  s5  -   ok  c1  c1  c1  c1  -   c1  c1  -
    reset-by-us     -   -   -   -   c1  c1  c1  c1  -   c1  c1  -
    reset-by-peer   s5  c5  -   -   c1  c1  c1  c1  -   c1  c1  -
    unprocessed     -   -   -   -   c1  c1  c1  c1  -   c1  c1  -
    forgotten       s5  c5  -   -   c1  c1  c1  c1  -   c1  c1  -
    skipped         s5  c5  -   -   c1  c1  c1  c1  -   c1  c1  -
    forgotten-reset -   -   -   -   c1  c1  c1  c1  -   c1  c1  -";

const CLIENT: &str = "
    idle            c1  c1  -   c1  c1  c1  c1  c1  c1  c1  c1  -
    open            ok  ok  -   ok  c1  c1  c1  c1  ok  c1  c1  -
    half-local      ok  ok  -   ok  c1  c1  c1  c1  ok  c1  c1  -
    half-remote     s5  s5  -   ok  c1  c1  c1  c1  ok  c1  c1  -
    ended           s5  s5  -   ok  c1  c1  c1  c1  -   c1  c1  -
    reset-by-us     -   -   -   -   c1  c1  c1  c1  -   c1  c1  -
    reset-by-peer   ~   ~   -   -   c1  c1  c1  c1  -   c1  c1  -
    unprocessed     -   -   -   -   c1  c1  c1  c1  -   c1  c1  -
    forgotten       ~   ~   -   -   c1  c1  c1  c1  -   c1  c1  -
    forgotten-reset -   -   -   -   c1  c1  c1  c1  -   c1  c1  -";

/// A connection whose peer gives 100 bytes of window to each stream.
fn connection(role: Role) -> Connection<Came> {
    let window = frame(Kind::Settings, 0, 0, &[0, 4, 0, 0, 0, 100]);
    let (mut made, preface) = match role {
        Role::Client => (Connection::client(CONFIG, 0), &[][..]),
        Role::Server => (Connection::server(CONFIG, 0), &PREFACE[..]),
    };
    receive(&mut made, &[preface, &window, &frame(Kind::Settings, flag::ACK, 0, &[])].concat()).unwrap();
    made
}

/// Opens a stream; each side has sent END_STREAM where `ours` or `theirs` is set. A response has begun.
fn opened(role: Role, id: u32, ours: bool, theirs: bool) -> Connection<Came> {
    let mut made = connection(role);
    match role {
        Role::Server => {
            receive(&mut made, &headers(id, u8::from(theirs), &REQUEST)).unwrap();
            made.respond(id, StatusCode::OK, &Fields::new(), ours);
        }
        Role::Client => {
            let request = request(Method::POST, "/");
            for _ in 0..=id / 2 {
                made.open(Came::default(), &request, "https", None, ours).unwrap();
            }
            receive(&mut made, &headers(id, u8::from(theirs), &[OK])).unwrap();
        }
    }
    made
}

/// A connection, and the number of a stream in the state of this name.
fn in_state(role: Role, state: &str) -> (Connection<Came>, u32) {
    let reset = |id| frame(Kind::ResetStream, 0, id, &[0, 0, 0, 8]);
    let (ours, theirs) = match state {
        "half-local" => (true, false),
        "half-remote" => (false, true),
        "ended" | "forgotten" => (true, true),
        _ => (false, false),
    };
    let mut made = opened(role, 3, ours, theirs);
    match state {
        "idle" => return (made, 5),
        "skipped" => return (made, 1),
        "reset-by-us" => made.reset(3, Code::CANCEL),
        "reset-by-peer" => {
            receive(&mut made, &reset(3)).unwrap();
        }
        "forgotten" => assert!(made.forget(3, Code::CANCEL)),
        "forgotten-reset" => {
            made.reset(3, Code::CANCEL);
            assert!(made.forget(3, Code::CANCEL));
        }
        "unprocessed" if role == Role::Server => {
            made.drain();
            made.stop();
            receive(&mut made, &headers(5, 0, &REQUEST)).unwrap();
            return (made, 5);
        }
        "unprocessed" => {
            receive(&mut made, &frame(Kind::GoAway, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])).unwrap();
        }
        _ => {}
    }
    (made, 3)
}

/// A frame of this type that is valid in itself.
fn typed(name: &str, id: u32, state: &str) -> Vec<u8> {
    match name {
        "DATA" => frame(Kind::Data, 0, id, b"x"),
        "HEADERS" if state == "idle" => headers(id, 0, &REQUEST),
        "HEADERS" => headers(id, flag::END_STREAM, &[("a", "b")]),
        "PRIORITY" => frame(Kind::Priority, 0, id, &[0, 0, 0, 0, 1]),
        "RST_STREAM" => frame(Kind::ResetStream, 0, id, &[0, 0, 0, 8]),
        "SETTINGS" => frame(Kind::Settings, 0, id, &[]),
        "PUSH_PROMISE" => frame(Kind::PushPromise, flag::END_HEADERS, id, &[0, 0, 0, 2, 0x82]),
        "PING" => frame(Kind::Ping, 0, id, &[0; 8]),
        "GOAWAY" => frame(Kind::GoAway, 0, id, &[0; 8]),
        "WINDOW_UPDATE" => frame(Kind::WindowUpdate, 0, id, &[0, 0, 0, 1]),
        "CONTINUATION" => frame(Kind::Continuation, flag::END_HEADERS, id, &[]),
        "PRIORITY_UPDATE" => frame(Kind::PriorityUpdate, 0, id, &[&id.to_be_bytes()[..], b"u=1"].concat()),
        _ => [&[0, 0, 1, 0xf7, 0][..], &id.to_be_bytes(), b"x"].concat(),
    }
}

/// Cell of the table that a connection shows.
fn outcome(made: &mut Connection<Came>, id: u32, bytes: &[u8]) -> String {
    let look = |made: &mut Connection<Came>| {
        (format!("{:?}", made.stream_ref(id)), made.window(id), made.known_streams())
    };
    sent(made);
    let (before, faults) = (look(made), made.faults().count);
    if let Err(violation) = receive(made, bytes) {
        return format!("c{}", violation.code.0);
    }
    let (after, faults) = (look(made), made.faults().count - faults);
    let (frames, held) = (sent(made), made.unreleased());
    match resets(&frames)[..] {
        [(of, code)] if of == id && faults == 1 => format!("s{}", code.0),
        [] if before != after && faults == 0 => "ok".to_owned(),
        // Data without a reader is returned to the window of the connection.
        [] if before == after && held == 0 => ["-", "~"][faults as usize].to_owned(),
        _ => format!("{before:?} {after:?} {frames:?} {faults} {held}"),
    }
}

#[test]
fn each_frame_in_each_state() {
    for (role, table) in [(Role::Server, SERVER), (Role::Client, CLIENT)] {
        for row in table.lines().skip(1) {
            let mut cells = row.split_whitespace();
            let state = cells.next().unwrap();
            let cells: Vec<_> = cells.collect();
            assert_eq!(cells.len(), TYPES.len(), "{state}");
            for (name, wanted) in TYPES.iter().zip(cells) {
                let (mut made, id) = in_state(role, state);
                let got = outcome(&mut made, id, &typed(name, id, state));
                assert_eq!(got, wanted, "{name} on a stream that is {state}, {role:?}");
            }
        }
    }
}

/// Frames of a stream whose state does not permit them are dropped when they are written.
#[test]
fn frames_are_sent_only_where_the_state_permits_them() {
    for role in [Role::Server, Role::Client] {
        for row in SERVER.lines().skip(1) {
            let state = row.split_whitespace().next().unwrap();
            if role == Role::Client && state == "skipped" {
                continue;
            }
            let sends = matches!(state, "open" | "half-remote");
            let (mut made, id) = in_state(role, state);
            sent(&mut made);
            let room = made.capacity(id);
            assert!(!sends || room == 100, "{state}, {role:?}");
            assert_eq!(made.data(id, content(0), false), sends, "{state}, {role:?}");
            assert_eq!(made.has_sent_all(id), !sends, "{state}, {role:?}");
            made.trailers(id, [].into_iter());
            let kinds: Vec<_> = sent(&mut made).into_iter().map(|(kind, ..)| kind).collect();
            assert_eq!(
                kinds,
                if sends { vec![Kind::Data, Kind::Headers] } else { vec![] },
                "{state}, {role:?}"
            );
            let (mut made, id) = in_state(role, state);
            sent(&mut made);
            let open = made.open_streams();
            made.reset(id, Code::CANCEL);
            let is_open = sends || state == "half-local";
            let wanted = if is_open { vec![(id, Code::CANCEL)] } else { vec![] };
            assert_eq!(resets(&sent(&mut made)), wanted, "{state}, {role:?}");
            assert_eq!(open - made.open_streams(), usize::from(is_open), "{state}, {role:?}");
        }
    }
}
