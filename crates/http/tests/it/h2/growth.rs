//! Uploads over a path with a delay and a rate, in virtual time: windows grow with the path, as far as memory
//! permits, while the receiver keeps up.

use std::collections::VecDeque;

use bytes::Bytes;
use http::{Method, StatusCode};
use offramp_http::h2::{Config, Connection, Event, Handler};
use offramp_http::head::Fields;

use super::frames::{Came, output, request};

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;
/// Windows of a server, and their maximum growth.
const CONFIG: Config = Config {
    stream_window: 256 * KIB,
    connection_window: MIB,
    shared_window: true,
    growth: 8 * MIB - 256 * KIB,
    max_streams: 100,
    max_head: 2000,
};

/// Receiver of uploads.
struct User {
    /// Permitted growth of the windows, and the growth so far.
    room: usize,
    grown: usize,
    /// Received data, and the rate of consumption per millisecond.
    came: VecDeque<(u32, usize)>,
    takes: usize,
    ended: usize,
}

impl Handler<Came> for User {
    fn event(&mut self, id: u32, _: &mut Came, event: Event<'_>) {
        match event {
            Event::Data(data) => self.came.push_back((id, data.len())),
            Event::End(_) => self.ended += 1,
            Event::Request { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn grow(&mut self, more: usize) -> usize {
        let granted = more.min(self.room - self.grown);
        self.grown += granted;
        granted
    }
}

/// Both sides, and the bytes under way with their time of arrival.
struct World {
    client: Connection<Came>,
    server: Connection<Came>,
    user: User,
    delay: u64,
    rate: usize,
    up: VecDeque<(u64, Vec<u8>)>,
    down: VecDeque<(u64, Vec<u8>)>,
    left: Vec<(u32, usize)>,
    now: u64,
    pings: usize,
}

/// Takes the bytes that have arrived.
fn arrived(way: &mut VecDeque<(u64, Vec<u8>)>, now: u64) -> Option<Vec<u8>> {
    let (at, _) = way.front()?;
    (*at <= now).then(|| way.pop_front())?.map(|(_, bytes)| bytes)
}

impl World {
    /// A path with a round trip in milliseconds, and a rate in bytes per millisecond.
    fn new(round: u64, rate: usize, room: u32) -> Self {
        let room = room as usize;
        Self {
            client: Connection::client(CONFIG, 0),
            server: Connection::server(CONFIG, 0),
            user: User { room, grown: 0, came: VecDeque::new(), takes: usize::MAX, ended: 0 },
            delay: round / 2,
            rate,
            up: VecDeque::new(),
            down: VecDeque::new(),
            left: Vec::new(),
            now: 0,
            pings: 0,
        }
    }

    /// Starts an upload.
    fn post(&mut self, length: usize) {
        let id = self.client.open(Came::default(), &request(Method::POST, "/"), "https", None, false);
        self.left.push((id.unwrap(), length));
    }

    /// Advances the time by a millisecond.
    fn pass(&mut self) {
        self.now += 1;
        let mut budget = self.rate;
        while budget > 0 {
            let before = budget;
            for (id, left) in &mut self.left {
                let n = self.client.capacity(*id).min(*left).min(budget);
                if n > 0 {
                    *left -= n;
                    self.client.data(*id, Bytes::from(vec![1; n]), *left == 0);
                }
            }
            let bytes = output(&mut self.client, budget);
            budget -= bytes.len();
            if bytes.is_empty() {
                break;
            }
            self.up.push_back((self.now + self.delay, bytes));
            debug_assert!(budget < before);
        }
        while let Some(bytes) = arrived(&mut self.up, self.now) {
            self.server.receive_with(&bytes, self.now, &mut self.user).unwrap();
            self.count();
        }
        let mut takes = self.user.takes;
        while takes > 0
            && let Some((id, n)) = self.user.came.pop_front()
        {
            let taken = n.min(takes);
            takes -= taken;
            if n > taken {
                self.user.came.push_front((id, n - taken));
            }
            self.server.set_time(self.now);
            self.server.release(id, taken);
        }
        self.count();
        let bytes = output(&mut self.server, usize::MAX);
        if !bytes.is_empty() {
            self.pings += bytes.windows(4).filter(|head| *head == [8, 6, 0, 0]).count();
            self.down.push_back((self.now + self.delay, bytes));
        }
        while let Some(bytes) = arrived(&mut self.down, self.now) {
            self.client.receive(&bytes, self.now, &mut |_, _, _| ()).unwrap();
        }
    }

    /// Received bytes are counted, and bounded.
    fn count(&self) {
        let held: usize = self.user.came.iter().map(|(_, n)| n).sum();
        // A frame whose header has arrived counts as a whole.
        assert!((held..=held + 16_384).contains(&self.server.unreleased()));
        assert!(self.server.claimed() >= held);
        assert!(self.server.claimed() <= (MIB + CONFIG.growth) as usize);
    }

    /// Runs until `ended` uploads have completed; returns the duration.
    fn until(&mut self, ended: usize) -> u64 {
        let begun = self.now;
        while self.user.ended < ended {
            self.pass();
            assert!(self.now - begun < 100_000, "it does not end");
        }
        self.now - begun
    }
}

#[test]
fn uploads_reach_the_rate_of_their_path() {
    for (round, rate, streams, length) in [
        (50, 125_000, 1, 20_000_000),
        (50, 12_500, 1, 20_000_000),
        (200, 12_500, 1, 20_000_000),
        (20, 125_000, 1, 20_000_000),
        (50, 125_000, 20, 1_000_000),
        (50, 125_000, 3, 7_000_000),
    ] {
        let mut world = World::new(round, rate, CONFIG.growth);
        (0..streams).for_each(|_| world.post(length));
        let took = world.until(streams);
        let ideal = (streams * length / rate) as u64 + round / 2;
        let fixed = (streams * length) as u64 / u64::from(if streams == 1 { 256 * KIB } else { MIB }) * round;
        println!(
            "{round} {rate} {streams}: {took} ms, {ideal} at best, {fixed} with fixed windows, {} PINGs",
            world.pings
        );
        assert!(took <= ideal + 7 * round, "{round} {rate} {streams}: {took} ms, {ideal} at best");
        assert!(world.pings < 30, "{}", world.pings);
    }
}

/// Without memory, or with a receiver that consumes nothing or little, windows do not grow.
#[test]
fn windows_do_not_grow_without_memory() {
    let mut world = World::new(50, 125_000, 0);
    world.post(4_000_000);
    let took = world.until(1);
    assert!((700..1600).contains(&took), "{took}");
    assert_eq!((world.user.grown, world.server.claimed()), (0, 0));

    for takes in [0, 500] {
        let mut world = World::new(50, 125_000, CONFIG.growth);
        world.user.takes = takes;
        (0..20).for_each(|_| world.post(4_000_000));
        (0..2000).for_each(|_| world.pass());
        assert!(world.server.unreleased() <= MIB as usize && world.user.grown == 0, "{takes}");
    }
    // A receiver that becomes slow keeps what was granted, and then loses it.
    let mut world = World::new(50, 125_000, CONFIG.growth);
    world.post(100_000_000);
    (0..500).for_each(|_| world.pass());
    let grown = world.user.grown;
    assert!(grown > 2 * MIB as usize, "{grown}");
    world.user.takes = 2000;
    (0..10_000).for_each(|_| world.pass());
    assert!(world.server.unreleased() <= 2 * MIB as usize, "{}", world.server.unreleased());
    assert!(world.server.claimed() <= 2 * MIB as usize, "{}", world.server.claimed());
}

/// A granted window stays with the peer, is used up by its data, and is granted again first.
#[test]
fn surplus_windows_are_used_up() {
    let mut world = World::new(50, 125_000, CONFIG.growth);
    world.post(20_000_000);
    world.until(1);
    let given = world.user.grown;
    let claimed = world.server.claimed();
    assert!(claimed <= given && claimed + 256 * 1024 >= given, "nobody has taken {claimed} of {given} back");
    world.post(20_000_000);
    world.until(2);
    assert!(world.user.grown <= given + MIB as usize, "{} and {given}", world.user.grown);
    // Small uploads use none of it.
    let mut ended = 2;
    while world.server.claimed() > 0 {
        world.post(100_000);
        ended += 1;
        world.until(ended);
        assert!(ended < 300);
    }
    // When memory is short, a running upload loses its growth.
    world.user.grown = 0;
    world.post(50_000_000);
    (0..400).for_each(|_| world.pass());
    assert!(world.server.claimed() > MIB as usize);
    world.user.room = world.user.grown;
    for _ in 0..1000 {
        world.server.shrink();
        world.pass();
    }
    assert!(world.server.claimed() <= 2 * MIB as usize, "{}", world.server.claimed());
}

/// Downloads over a path with a round trip of `round` milliseconds at `rate` bytes per millisecond, with a window
/// of 256 KiB and a caller that consumes `takes` bytes per millisecond. Returns the windows that it was told to
/// need, and the number of PINGs.
fn download(round: u64, rate: usize, takes: usize) -> (Vec<u32>, usize) {
    let config = Config { stream_window: 8 * KIB, shared_window: false, growth: u32::MAX >> 1, ..CONFIG };
    let mut client = Connection::client(config, 0);
    let mut server: Connection<Came> = Connection::server(CONFIG, 0);
    let (mut up, mut down) = (VecDeque::new(), VecDeque::new());
    let (mut stalls, mut held, mut pings) = (Vec::new(), 0, 0);
    let id = client.open(Came::default(), &request(Method::GET, "/"), "https", None, true).unwrap();
    for now in 1..1000 {
        let bytes = output(&mut client, usize::MAX);
        pings += bytes.windows(4).filter(|head| *head == [8, 6, 0, 0]).count();
        up.push_back((now + round / 2, bytes));
        while let Some(bytes) = arrived(&mut up, now) {
            server.receive(&bytes, now, &mut |_, _, _| ()).unwrap();
        }
        if server.stream(id).is_some() {
            if now == round / 2 + 1 {
                server.respond(id, StatusCode::OK, &Fields::new(), false);
            }
            while let n @ 1.. = server.capacity(id) {
                server.data(id, Bytes::from(vec![1; n]), false);
            }
        }
        down.push_back((now + round / 2, output(&mut server, rate)));
        while let Some(bytes) = arrived(&mut down, now) {
            let on = &mut |_, _: &mut Came, event: Event<'_>| match event {
                Event::Data(data) => held += data.len(),
                Event::Stalled(window) => stalls.push(window),
                _ => {}
            };
            client.receive(&bytes, now, on).unwrap();
        }
        client.set_time(now);
        let taken = held.min(takes);
        held -= taken;
        client.release(id, taken);
        client.set_window(id, 256 * KIB);
    }
    (stalls, pings)
}

/// The caller of a client is told what the path to its server needs, unless it is slow itself. Over a short path
/// nothing is measured.
#[test]
fn users_hear_what_the_path_to_a_server_needs() {
    let (stalls, pings) = download(50, 125_000, usize::MAX);
    assert!(
        stalls.len() > 5 && stalls.iter().all(|window| (512 * KIB..=4 * MIB).contains(window)),
        "{stalls:?}"
    );
    assert!(pings < 30, "{pings}");
    let (stalls, pings) = download(50, 125_000, 500);
    // The initial window limits every server, and its replacement counts only once data of it was consumed.
    assert!(stalls.is_empty(), "a slow caller: {stalls:?}");
    assert!(pings < 10, "{pings}");
    let (stalls, pings) = download(2, 125_000, usize::MAX);
    // One PING is sent before the length of the path is known.
    assert!(stalls.is_empty() && pings <= 1, "{stalls:?}, {pings} PINGs");
}
