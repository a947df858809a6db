//! One client does not keep a worker from its other connections: whatever it sends, the work of a turn has a bound.
//!
//! Nothing here looks at the clock: what a client sends is counted, and so are the turns in which it was relayed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use offramp_observe::counters::Direction;
use offramp_testkit::server::{Listen, Server, Stream, apps};
use offramp_testkit::tls_client::wire::alert;
use offramp_testkit::tls_client::{Cipher, Client, Event, Options, Received, Seal, Suite, Version, wire};

use crate::test_proxy::{ListenerKind, NAME, PATIENCE, Setup, TestProxy, echo, shake};

const IN: Direction = Direction::ClientToServer;
/// The most of each within one turn, with some room above what `net::turn` allows.
const MOST_RECORDS: u64 = 2500;
const MOST_UPDATES: u64 = 100;
const MOST_BYTES: u64 = 2 << 20;

/// An echo for those who begin with an `e`; the others are swallowed.
fn echo_or_sink(mut stream: Stream) {
    let mut first = [0];
    match stream.read(&mut first) {
        Ok(1) if first == *b"e" => {
            if stream.write_all(&first).is_ok() {
                apps::echo(stream);
            }
        }
        _ => apps::sink(stream),
    }
}

type Hostile = Client<TcpStream>;

fn hostile(proxy: &TestProxy, version: Version) -> Hostile {
    let mut options = Options::new(Suite::new(version, Cipher::Aes128Gcm));
    options.server_name = Some(NAME.into());
    let mut client = Client::new(proxy.connect(ListenerKind::Tls), options).unwrap();
    client.handshake().unwrap();
    client
}

/// What a client sends: its name, and so many times what.
struct Row {
    name: &'static str,
    version: Version,
    times: u64,
    /// Records in each piece, and how many of them are key updates and bytes of data.
    records: u64,
    updates: u64,
    bytes: u64,
    piece: fn(&mut Hostile) -> Vec<u8>,
}

fn rows() -> Vec<Row> {
    let data = |client: &mut Hostile| client.seal(&Seal::data(b"x"));
    let mut rows = Vec::new();
    for version in [Version::Tls13, Version::Tls12] {
        let row = |name, times, records, bytes, piece| Row {
            name,
            version,
            times,
            records,
            updates: 0,
            bytes,
            piece,
        };
        rows.push(row("records of one byte", 40_000, 1, 1, data));
        rows.push(row("empty records and a byte", 1500, 32, 1, |client| {
            let mut piece: Vec<u8> = (0..31).flat_map(|_| client.seal(&Seal::data(b""))).collect();
            piece.extend(client.seal(&Seal::data(b"x")));
            piece
        }));
        rows.push(row("full records", 512, 1, 16_384, |client| client.seal(&Seal::data(&[0; 16_384]))));
    }
    let updating = |name, records, updates, bytes, piece| Row {
        name,
        version: Version::Tls13,
        times: 3000,
        records,
        updates,
        bytes,
        piece,
    };
    rows.push(updating("key updates and a byte", 2, 1, 1, |client| {
        [client.seal_key_update(0), client.seal(&Seal::data(b"x"))].concat()
    }));
    rows.push(updating("key updates to be answered", 2, 1, 1, |client| {
        [client.seal_key_update(1), client.seal(&Seal::data(b"x"))].concat()
    }));
    rows.push(updating("everything", 6, 2, 102, |client| {
        let mut piece = client.seal_key_update(0);
        piece.extend(client.seal(&Seal::data(b"")));
        piece.extend(client.seal(&Seal::data(b"x")));
        piece.extend(client.seal_key_update(0));
        piece.extend(client.seal(&Seal::data(&[1; 100])));
        piece.extend(client.seal(&Seal::data(b"y")));
        piece
    }));
    rows
}

#[test]
fn a_turn_of_a_client_has_a_bound_whatever_it_sends() {
    let app = Server::start(&Listen::Ipv4, echo_or_sink).unwrap();
    for row in rows() {
        let proxy = TestProxy::open(&[app.address()], &Setup::default());
        let mut honest = proxy.tls();
        echo(&mut honest, b"e");
        let mut client = hostile(&proxy, row.version);
        let mut all = client.seal(&Seal::data(b"s"));
        for _ in 0..row.times {
            all.extend((row.piece)(&mut client));
        }
        let relayed = row.times * row.bytes + 1;
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| client.write_raw(&all).unwrap());
            // Another connection of the same worker goes on meanwhile.
            let (mut echoed, deadline) = (1, Instant::now() + 6 * PATIENCE);
            while proxy.totals().bytes_relayed(IN) < relayed + echoed {
                assert!(Instant::now() < deadline, "{:?}: not everything was relayed", row.name);
                echo(&mut honest, b"hello");
                echoed += 5;
            }
            sending.join().unwrap();
        });
        let totals = proxy.totals();
        let turns = totals.turns();
        let name = (row.name, row.version);
        assert!(row.times * row.records <= turns * MOST_RECORDS, "{name:?}: {turns} turns");
        assert!(relayed <= turns * MOST_BYTES, "{name:?}: {turns} turns");
        assert_eq!(totals.key_updates(IN), row.times * row.updates, "{name:?}");
        assert!(row.times * row.updates <= turns * MOST_UPDATES, "{name:?}: {turns} turns");
        drop((client, honest));
        proxy.end();
    }
}

/// Without TLS of ours, and in the other direction, only bytes count.
#[test]
fn bulk_is_relayed_in_many_turns_through_every_listener() {
    const LENGTH: u64 = 32 << 20;
    let app = Server::start(&Listen::Ipv4, echo_or_sink).unwrap();
    let inner = TestProxy::open(&[app.address()], &Setup::default());
    let kind = offramp_testkit::server::Address::Tcp(inner.connect(ListenerKind::Tls).peer_addr().unwrap());
    let outer = TestProxy::open(&[&kind], &Setup::default());
    let plain = TestProxy::open(&[app.address()], &Setup::default());
    let chunk = vec![0; 1 << 20];
    let mut passing = shake(outer.connect(ListenerKind::Passthrough)).unwrap();
    let mut clear = plain.connect(ListenerKind::Plain);
    for _ in 0..LENGTH >> 20 {
        passing.write_all(&chunk).unwrap();
        clear.write_all(&chunk).unwrap();
    }
    for proxy in [&outer, &inner, &plain] {
        proxy.wait(|totals| totals.bytes_relayed(IN) >= LENGTH);
        let turns = proxy.totals().turns();
        assert!(turns >= LENGTH / MOST_BYTES, "{turns} turns");
    }
    drop((passing, clear));
    [outer, inner, plain].into_iter().for_each(|proxy| drop(proxy.end()));
}

#[test]
fn a_server_that_sends_in_bulk_has_many_turns() {
    const LENGTH: u64 = 64 << 20;
    let app = Server::start(&Listen::Ipv4, apps::source(3, LENGTH)).unwrap();
    for kind in [ListenerKind::Tls, ListenerKind::Plain] {
        let proxy = TestProxy::open(&[app.address()], &Setup::default());
        let mut client: Box<dyn Read> = match kind {
            ListenerKind::Tls => Box::new(proxy.tls()),
            _ => Box::new(proxy.connect(kind)),
        };
        let mut part = vec![0; 1 << 20];
        let mut got = 0;
        while got < LENGTH {
            got += client.read(&mut part).unwrap() as u64;
        }
        let turns = proxy.totals().turns();
        assert!(turns >= LENGTH / MOST_BYTES, "{kind:?}: {turns} turns");
        drop(client);
        proxy.end();
    }
}

/// What a client sends at once: a little more than the server's socket takes, so that the relay waits for the server, and
/// there is room for what comes next.
fn more_than_fits() -> usize {
    let room = std::fs::read_to_string("/proc/sys/net/core/wmem_default").unwrap();
    room.trim().parse::<usize>().unwrap() + 64 * 1024
}

/// What it sends afterwards, each alone.
const SEGMENTS: usize = 300;
const SEGMENT: &[u8] = b"and this";
/// How much a server reads at a time in the end.
const SIP: usize = 512;
/// How often the worker may fall asleep for all of that: for each packet up to where the relay waits, and for room.
const FEW: u64 = 60;

/// While the server takes nothing the worker is not woken for what the client sends, nor afterwards for each read of the
/// server. On a slow machine it falls asleep less often and not more: what comes meanwhile is taken at once.
#[test]
fn a_client_that_is_faster_than_its_server_wakes_little() {
    let directory = tempfile::tempdir().unwrap();
    let first = vec![0; more_than_fits()];
    let all = first.len() + SEGMENTS * SEGMENT.len();
    for (index, kind) in [(4001, ListenerKind::Plain), (4002, ListenerKind::Tls)] {
        let ((go, wait), (tell, done)) = (channel::<()>(), channel::<()>());
        let wait = Mutex::new(wait);
        let listen = Listen::Unix(directory.path().join(format!("{kind:?}")));
        let app = Server::start(&listen, move |mut stream: Stream| {
            let _ = wait.lock().unwrap().recv();
            let mut taken = 0;
            while taken < all {
                match stream.read(&mut [0; SIP]) {
                    Ok(n @ 1..) => taken += n,
                    _ => return,
                }
            }
            let _ = tell.send(());
        })
        .unwrap();
        let proxy = TestProxy::of_worker(index, &[app.address()], &Setup::default());
        let (mut tls, mut plain) = match kind {
            ListenerKind::Tls => (Some(proxy.tls()), None),
            _ => (None, Some(proxy.connect(kind))),
        };
        let socket = tls.as_ref().map_or_else(|| plain.as_ref().unwrap(), |tls| &tls.sock);
        socket.set_nodelay(true).unwrap();
        let mut send = |bytes: &[u8]| match (&mut tls, &mut plain) {
            (Some(tls), _) => tls.write_all(bytes).unwrap(),
            (_, plain) => plain.as_mut().unwrap().write_all(bytes).unwrap(),
        };
        let before = proxy.waits();
        send(&first);
        // These come behind what the server does not take.
        for _ in 0..SEGMENTS {
            send(SEGMENT);
            // Time for a worker that is woken to fall asleep again.
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let blocked = proxy.waits() - before;
        assert!(blocked <= FEW, "{kind:?}: it fell asleep {blocked} times for {SEGMENTS} packets");
        go.send(()).unwrap();
        done.recv_timeout(PATIENCE).unwrap();
        let waits = proxy.waits() - before;
        println!(
            "{kind:?}: it fell asleep {blocked} times while the server took nothing, {waits} times in all"
        );
        assert!(
            waits <= FEW,
            "{kind:?}: it fell asleep {waits} times, {blocked} of them before the server read"
        );
        drop((tls, plain));
        proxy.end();
    }
}

/// A client whose hello has `padding` more bytes, one in each record; what became of it.
fn fragmented(proxy: &TestProxy, padding: usize) -> (Hostile, Result<(), String>) {
    let mut options = Options::new(Suite::new(Version::Tls13, Cipher::Aes128Gcm));
    options.server_name = Some(NAME.into());
    options.padding = padding;
    let mut client = Client::new(proxy.connect(ListenerKind::Tls), options).unwrap();
    let records: Vec<u8> = client
        .hello()
        .chunks(1)
        .flat_map(|byte| wire::record(wire::content::HANDSHAKE, [3, 1], byte))
        .collect();
    let outcome = client.write_raw(&records).and_then(|()| {
        client.receive_server_flight()?;
        client.send_key_exchange()?;
        client.send_change_cipher_spec()?;
        let finished = client.finished();
        client.send(&Seal::handshake(&finished))?;
        client.complete(&finished)
    });
    (client, outcome.map_err(|error| error.to_string()))
}

#[test]
fn a_hello_in_thousands_of_records_is_served_or_refused_at_once() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let (mut served, outcome) = fragmented(&proxy, 2000);
    outcome.unwrap();
    served.send(&Seal::data(b"hello")).unwrap();
    loop {
        match served.receive().unwrap() {
            Received::Event(Event::Data(_)) => break,
            Received::Event(_) => {}
            other => panic!("{other:?}"),
        }
    }
    served.send(&Seal::alert(&[alert::WARNING, alert::CLOSE_NOTIFY])).unwrap();
    drop(served);
    proxy.wait(|totals| totals.active() == 0);
    let handshakes = proxy.totals().handshake_time().count();
    let (refused, outcome) = fragmented(&proxy, 5000);
    let error = outcome.unwrap_err();
    drop(refused);
    proxy.wait(|totals| totals.active() == 0);
    assert_eq!(proxy.totals().handshake_time().count(), handshakes, "it was refused before the handshake");
    let events = proxy.end();
    let [served, refused] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&served["cause"], &served["sni"]), (&"client_closed".into(), &NAME.into()), "{served}");
    assert_eq!(refused["cause"], "client_hello_too_large", "{refused} {error}");
    assert_eq!(refused["alert_sent"], "decode_error", "{refused}");
}
