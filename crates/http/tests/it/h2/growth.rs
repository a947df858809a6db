//! Uploads over a path with a delay and a rate, in virtual time: windows grow with the path, as far as there is room, for
//! users who take what comes.

use std::collections::VecDeque;

use bytes::Bytes;
use http::Method;
use offramp_http::h2::{Config, Connection, Event, Handler};

use super::frames::{Came, output, request};

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;
/// The windows of a server, and what they may grow by.
const CONFIG: Config = Config {
    stream_window: 256 * KIB,
    connection_window: MIB,
    shared_window: true,
    growth: 8 * MIB - 256 * KIB,
    max_streams: 100,
    max_head: 2000,
};

/// Who takes uploads.
struct User {
    /// How much larger windows may become, and have become.
    room: usize,
    grown: usize,
    /// What came, and how much of it is taken per millisecond.
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

/// Both sides, and what is under way between them: when it arrives, and the bytes.
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

/// What has been on its way for long enough.
fn arrived(way: &mut VecDeque<(u64, Vec<u8>)>, now: u64) -> Option<Vec<u8>> {
    let (at, _) = way.front()?;
    (*at <= now).then(|| way.pop_front())?.map(|(_, bytes)| bytes)
}

impl World {
    /// A path with a round trip in milliseconds, and so many bytes per millisecond.
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

    /// The client begins an upload.
    fn post(&mut self, length: usize) {
        let id = self.client.open(Came::default(), &request(Method::POST, "/"), "https", None, false);
        self.left.push((id.unwrap(), length));
    }

    /// A millisecond passes.
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

    /// What may come is counted, and has its bound.
    fn count(&self) {
        let held: usize = self.user.came.iter().map(|(_, n)| n).sum();
        // A frame whose head has come counts as a whole.
        assert!((held..=held + 16_384).contains(&self.server.unreleased()));
        assert!(self.server.claimed() >= held);
        assert!(self.server.claimed() <= (MIB + CONFIG.growth) as usize);
    }

    /// Until so many uploads have come; gives how long that took.
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
fn an_upload_takes_as_long_as_its_path_needs() {
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
        assert!(took <= ideal + 10 * round, "{round} {rate} {streams}: {took} ms, {ideal} at best");
        assert!(world.pings < 100, "{}", world.pings);
    }
}

/// Without room, or with a user who takes nothing or little, nothing grows.
#[test]
fn windows_stay_where_there_is_no_room_for_more() {
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
    // Who becomes slow later has no more than was given, and that goes again.
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

/// What was given stays the peer's, is used up by what it sends, and is given again first.
#[test]
fn what_was_given_is_used_up() {
    let mut world = World::new(50, 125_000, CONFIG.growth);
    world.post(20_000_000);
    world.until(1);
    let given = world.user.grown;
    let claimed = world.server.claimed();
    assert!(claimed <= given && claimed + 256 * 1024 >= given, "nobody has taken {claimed} of {given} back");
    world.post(20_000_000);
    world.until(2);
    assert!(world.user.grown <= given + MIB as usize, "{} and {given}", world.user.grown);
    // Small uploads need none of it.
    let mut ended = 2;
    while world.server.claimed() > 0 {
        world.post(100_000);
        ended += 1;
        world.until(ended);
        assert!(ended < 300);
    }
    // Where memory is short, an upload that goes on loses what it has.
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
