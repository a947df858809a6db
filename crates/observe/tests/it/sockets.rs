//! Syslog and journald, with receivers of our own that know them from their specifications.

use crate::samples;
use offramp_observe::facts::{Cause, Close, RequestFacts};
use offramp_observe::{
    Event, EventFormat, EventStyle, Flusher, FlusherSettings, IdSource, Level, Log, LogFormat, Output,
    SyslogTarget,
};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, IoSliceMut, Read, Seek};
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

struct Receiver {
    socket: UnixDatagram,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Receiver {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self { socket, path, _dir: dir }
    }

    fn syslog(&self) -> Output {
        Output::Syslog(SyslogTarget::Unix(self.path.clone()))
    }

    /// One datagram, or what is in the memory file that came instead.
    fn receive(&self) -> Vec<u8> {
        let mut message = vec![0; 1 << 20];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut message)];
        let length = recvmsg(&self.socket, &mut parts, &mut ancillary, RecvFlags::empty()).unwrap().bytes;
        message.truncate(length);
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = part {
                assert!(message.is_empty(), "an entry is either in the datagram or in a file");
                for fd in fds {
                    let seals = rustix::fs::fcntl_get_seals(&fd).unwrap();
                    let needed = rustix::fs::SealFlags::all();
                    assert!(seals.bits().count_ones() >= 4 && needed.contains(seals), "{seals:?}");
                    let mut file = File::from(fd);
                    file.rewind().unwrap();
                    file.read_to_end(&mut message).unwrap();
                }
            }
        }
        message
    }
}

fn flusher(output: Output, format: EventFormat) -> (Flusher, offramp_observe::EventSender) {
    let (flusher, mut senders) =
        Flusher::start(FlusherSettings::new(1, output, format, Log::silent())).unwrap();
    (flusher, senders.pop().unwrap())
}

fn line(format: EventFormat, event: impl Into<Event>) -> String {
    let mut out = Vec::new();
    EventStyle::from(format).write(&event.into(), &mut out);
    String::from_utf8(out).unwrap().trim_end().to_owned()
}

/// Waits for something that happens soon, and fails if it does not.
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < LIMIT, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// The parts of a message by RFC 5424 §6: priority, time, host, application, process, id, and message.
fn rfc5424(message: &[u8]) -> (u8, String, [String; 4], String) {
    let text = std::str::from_utf8(message).unwrap();
    let (priority, rest) = text.strip_prefix('<').unwrap().split_once('>').unwrap();
    let mut words = rest.strip_prefix("1 ").expect("version 1").splitn(7, ' ');
    let mut word = || words.next().unwrap().to_owned();
    let time = word();
    let parts = [word(), word(), word(), word()];
    assert_eq!(word(), "-", "no structured data");
    (priority.parse().unwrap(), time, parts, word())
}

/// The parts of a message by RFC 3164 §4.1, as syslog(3) writes it: priority, tag, and message.
fn rfc3164(message: &[u8]) -> (u8, String, String) {
    let text = std::str::from_utf8(message).unwrap();
    let (priority, rest) = text.strip_prefix('<').unwrap().split_once('>').unwrap();
    let (tag, message) = rest.split_once(": ").unwrap();
    (priority.parse().unwrap(), tag.to_owned(), message.to_owned())
}

#[test]
fn syslog_gets_a_message_per_event() {
    let receiver = Receiver::new();
    let (flusher, mut sender) = flusher(receiver.syslog(), EventFormat::Json);
    let mut failed = samples::request();
    (failed.status, failed.close) = (502, Close::from(Cause::BadResponse));
    sender.send(Box::new(samples::request()));
    sender.send(Box::new(failed));
    sender.send(Box::new(samples::ordinary()));
    let tag = format!("offramp[{}]", std::process::id());
    let expected = line(EventFormat::Json, Box::new(samples::request()));
    assert_eq!(rfc3164(&receiver.receive()), (16 * 8 + 6, tag.clone(), expected));
    assert_eq!(rfc3164(&receiver.receive()).0, 16 * 8 + 4, "a server failed");
    let expected = line(EventFormat::Json, Box::new(samples::ordinary()));
    assert_eq!(rfc3164(&receiver.receive()), (16 * 8 + 6, tag, expected));
    assert_eq!(flusher.stop(LIMIT).written, 3);
}

#[test]
fn syslog_over_udp() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let (flusher, mut sender) =
        flusher(Output::Syslog(SyslogTarget::Udp(address.into())), EventFormat::Vhost);
    sender.send(Box::new(samples::ordinary()));
    sender.send(Box::new(samples::request()));
    let mut message = vec![0; 65_536];
    let length = socket.recv(&mut message).unwrap();
    let (priority, time, [host, app, process, id], message) = rfc5424(&message[..length]);
    assert_eq!((priority, app.as_str()), (16 * 8 + 6, "offramp"));
    assert_eq!(process, std::process::id().to_string());
    assert!(!host.is_empty() && time.len() == 27 && time.ends_with('Z'));
    assert_eq!(id, "request", "a connection has no line in this format");
    assert_eq!(message, line(EventFormat::Vhost, Box::new(samples::request())));
    assert_eq!(flusher.stop(LIMIT).written, 2);
}

#[test]
fn syslog_over_a_stream() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let listener = UnixListener::bind(&path).unwrap();
    let (flusher, mut sender) = flusher(Output::Syslog(SyslogTarget::Unix(path)), EventFormat::Logfmt);
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut reader = BufReader::new(stream);
    for _ in 0..3 {
        sender.send(Box::new(samples::request()));
        let mut message = Vec::new();
        reader.read_until(0, &mut message).unwrap();
        assert_eq!(message.pop(), Some(0));
        assert_eq!(rfc3164(&message).2, line(EventFormat::Logfmt, Box::new(samples::request())));
    }
    assert_eq!(flusher.stop(LIMIT).written, 3);
}

#[test]
fn a_syslog_that_was_restarted_is_found_again() {
    let mut receiver = Receiver::new();
    let (flusher, mut sender) = flusher(receiver.syslog(), EventFormat::Json);
    let monitor = flusher.monitor();
    sender.send(Box::new(samples::request()));
    receiver.receive();
    until("the first event", || monitor.tally().written == 1);
    std::fs::remove_file(&receiver.path).unwrap();
    receiver.socket = UnixDatagram::unbound().unwrap();
    sender.send(Box::new(samples::request()));
    until("the second event to be lost", || monitor.tally().output_failed == 1);
    receiver.socket = UnixDatagram::bind(&receiver.path).unwrap();
    receiver.socket.set_read_timeout(Some(LIMIT)).unwrap();
    sender.send(Box::new(samples::request()));
    receiver.receive();
    let tally = flusher.stop(LIMIT);
    assert_eq!((tally.written, tally.output_failed), (2, 1));
}

#[test]
fn a_syslog_that_does_not_read_loses_events_and_holds_nobody_up() {
    let receiver = Receiver::new();
    let (flusher, mut sender) = flusher(receiver.syslog(), EventFormat::Json);
    let monitor = flusher.monitor();
    until("a message to be given up", || {
        sender.send(Box::new(samples::request()));
        monitor.tally().output_failed > 0
    });
    let start = Instant::now();
    let tally = flusher.stop(LIMIT);
    assert!(start.elapsed() < LIMIT / 2, "only the first batch is waited for");
    assert_eq!((tally.pending(), tally.queued), (0, tally.written + tally.output_failed));
}

#[test]
fn an_absent_receiver_is_an_error_at_start() {
    let path = PathBuf::from("/nonexistent/socket");
    for output in [Output::Syslog(SyslogTarget::Unix(path.clone())), Output::Journald(path.clone())] {
        let settings = FlusherSettings::new(1, output, EventFormat::Json, Log::silent());
        let error = Flusher::start(settings).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/socket"), "{error}");
    }
}

/// A reader of journald's native protocol.
fn entry(mut rest: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut fields = BTreeMap::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b'\n').expect("a field ends in a newline");
        let first = &rest[..end];
        rest = &rest[end + 1..];
        let (key, value) = match first.iter().position(|&byte| byte == b'=') {
            Some(at) => (&first[..at], first[at + 1..].to_vec()),
            None => {
                let (length, after) = rest.split_at(8);
                let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
                assert_eq!(after[length], b'\n');
                rest = &after[length + 1..];
                (first, after[..length].to_vec())
            }
        };
        let key = String::from_utf8(key.to_vec()).unwrap();
        // What journald takes: capitals, digits and underscores, at most 64, none of its own.
        assert!(key.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_'), "{key}");
        assert!(key.len() <= 64 && !key.starts_with('_'));
        assert!(fields.insert(key.clone(), value).is_none(), "{key} twice");
    }
    fields
}

fn text(fields: &BTreeMap<String, Vec<u8>>, key: &str) -> String {
    String::from_utf8(fields.get(key).unwrap_or_else(|| panic!("no {key}")).clone()).unwrap()
}

#[test]
fn journald_gets_one_field_per_fact() {
    let receiver = Receiver::new();
    let (flusher, mut sender) = flusher(Output::Journald(receiver.path.clone()), EventFormat::Text);
    sender.send(Box::new(samples::request()));
    let fields = entry(&receiver.receive());
    for (key, expected) in [
        ("PRIORITY", "6"),
        ("SYSLOG_IDENTIFIER", "offramp"),
        ("OFFRAMP_EVENT", "request"),
        ("OFFRAMP_SNI", "git.example.org"),
        ("OFFRAMP_HOST", "git.example.org"),
        ("OFFRAMP_STATUS", "200"),
        ("OFFRAMP_DURATION_US", "8402"),
        ("OFFRAMP_RESUMED", "false"),
        ("OFFRAMP_CLIENT", "192.0.2.1"),
        ("OFFRAMP_QUERY", "sort=newest&q=tls"),
        ("OFFRAMP_TIME", "2026-11-21T20:51:00.003734Z"),
    ] {
        assert_eq!(text(&fields, key), expected, "{key}");
    }
    let message = text(&fields, "MESSAGE");
    let whole = line(EventFormat::Text, Box::new(samples::request()));
    assert_eq!(whole.strip_prefix("2026-11-21T20:51:00.003734Z "), Some(message.as_str()));
    sender.send(Box::new(samples::mismatched()));
    let fields = entry(&receiver.receive());
    assert_eq!(text(&fields, "OFFRAMP_OFFERED_VERSIONS"), "TLSv1.1,TLSv1.0");
    assert_eq!(flusher.stop(LIMIT).written, 2);
}

#[test]
fn journald_gets_the_line_as_its_message() {
    let receiver = Receiver::new();
    let (flusher, mut sender) = flusher(Output::Journald(receiver.path.clone()), EventFormat::Combined);
    sender.send(Box::new(samples::request()));
    let message = line(EventFormat::Combined, Box::new(samples::request()));
    assert_eq!(text(&entry(&receiver.receive()), "MESSAGE"), message);
    sender.send(Box::new(samples::ordinary()));
    let message = text(&entry(&receiver.receive()), "MESSAGE");
    assert!(message.contains("client_closed"), "a connection, which has no line, has its text: {message}");
    assert_eq!(flusher.stop(LIMIT).written, 2);
}

#[test]
fn an_entry_too_large_for_a_datagram_comes_in_a_file() {
    let receiver = Receiver::new();
    let (flusher, mut sender) = flusher(Output::Journald(receiver.path.clone()), EventFormat::Text);
    let mut facts = samples::request();
    let agent = "x".repeat(400_000);
    facts.request.user_agent = Some(agent.as_bytes().into());
    sender.send(Box::new(facts.clone()));
    assert_eq!(text(&entry(&receiver.receive()), "OFFRAMP_USER_AGENT"), agent);
    assert_eq!(flusher.stop(LIMIT).written, 1);
}

#[test]
fn a_message_too_large_for_syslog_is_cut() {
    let receiver = Receiver::new();
    let (flusher, mut sender) = flusher(receiver.syslog(), EventFormat::Logfmt);
    let mut facts = samples::request();
    facts.request.target = format!("/{}", "ü".repeat(200_000)).into();
    sender.send(Box::new(facts));
    let message = receiver.receive();
    let told = std::str::from_utf8(&message).expect("not cut within a character");
    assert!(told.ends_with(" bytes]") && told.contains(" [cut, 40") && told.len() <= 8192, "{}", told.len());
    assert_eq!(flusher.stop(LIMIT).written, 1);
}

#[test]
fn the_log_of_the_program_goes_there_too() {
    let receiver = Receiver::new();
    let log = Log::open(receiver.syslog(), LogFormat::Text, Level::Info).unwrap();
    log.warn("not \"good\"", &[("workers", 2_usize.into())]);
    let (priority, tag, message) = rfc3164(&receiver.receive());
    assert_eq!((priority, tag), (3 * 8 + 4, format!("offramp[{}]", std::process::id())));
    assert_eq!(message, "not \"good\" workers=2");
    log.redirect(Output::Journald(receiver.path.clone()), LogFormat::Text).unwrap();
    log.error("line\nbreak", &[("path", "a\nb".into())]);
    let fields = entry(&receiver.receive());
    assert_eq!((text(&fields, "PRIORITY"), text(&fields, "OFFRAMP_PATH")), ("3".into(), "a\nb".into()));
    assert_eq!(text(&fields, "MESSAGE"), "line\\nbreak path=\"a\\nb\"");
    log.redirect(Output::Journald(receiver.path.clone()), LogFormat::Json).unwrap();
    log.info("hello", &[]);
    let message = text(&entry(&receiver.receive()), "MESSAGE");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&message).unwrap()["message"], "hello");
}

#[test]
fn ids_are_kept_apart_by_kind() {
    let mut ids = IdSource::new(0, 0);
    let event = Event::from(samples::bare(&mut ids));
    assert_eq!((event.kind(), event.severity()), ("connection", 4), "an end that nobody named is ours");
}

fn hostile_request() -> impl Strategy<Value = RequestFacts> {
    (vec(any::<u8>(), 0..40), vec(any::<char>(), 0..20)).prop_map(|(agent, target)| {
        let mut facts = samples::request();
        facts.request.user_agent = Some(agent.into());
        facts.request.target = format!("/{}", String::from_iter(target)).into();
        facts
    })
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn journald_gets_the_bytes_as_they_came(requests in vec(hostile_request(), 1..8)) {
        let receiver = Receiver::new();
        let (flusher, mut sender) = flusher(Output::Journald(receiver.path.clone()), EventFormat::Json);
        for facts in requests {
            sender.send(Box::new(facts.clone()));
            let fields = entry(&receiver.receive());
            prop_assert_eq!(fields.get("OFFRAMP_USER_AGENT").map(Vec::as_slice), facts.request.user_agent.as_deref());
            prop_assert_eq!(text(&fields, "OFFRAMP_PATH"), facts.request.path());
            prop_assert!(!fields["MESSAGE"].contains(&b'\n'));
        }
        prop_assert_eq!(flusher.stop(LIMIT).lost(), 0);
    }
}
