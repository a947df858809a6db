//! Both roles exchange messages in memory, with any split of their bytes, any order of writing streams, and
//! until one side is lost.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, StatusCode};
use offramp_http::h2::{Code, Config, Connection, Role};
use offramp_http::head::Fields;
use proptest::prelude::*;

use super::frames::{Came, output, request};

/// One side, and its plan for each stream.
struct Side {
    role: Role,
    connection: Connection<Came>,
    plans: BTreeMap<u32, Plan>,
}

/// Data to be sent on a stream.
#[derive(Default)]
struct Plan {
    total: usize,
    sent: usize,
    trailers: bool,
    begun: bool,
    over: bool,
    /// Number of received bytes that were released.
    released: usize,
}

/// Next step of the simulation.
#[derive(Debug, Clone)]
enum Step {
    /// The client sends a request: lengths of both contents, and a flag for trailers.
    Ask { up: usize, down: usize, trailers: bool },
    /// Carries bytes to the server, or to the client, in pieces of this size.
    Carry { to_server: bool, bytes: usize, piece: usize },
    /// All streams of a side write in pieces of this size, beginning with this one.
    Write { client: bool, first: usize, piece: usize },
    /// One stream of a side releases its data.
    Release { client: bool, which: usize },
    /// One stream of a side gets another window.
    Window { client: bool, which: usize, target: u32 },
    /// A side resets a stream.
    Reset { client: bool, which: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0_usize..4000, 0_usize..4000, any::<bool>())
            .prop_map(|(up, down, trailers)| Step::Ask { up, down, trailers }),
        6 => (any::<bool>(), 1_usize..3000, 1_usize..400)
            .prop_map(|(to_server, bytes, piece)| Step::Carry { to_server, bytes, piece }),
        4 => (any::<bool>(), any::<usize>(), 1_usize..2000)
            .prop_map(|(client, first, piece)| Step::Write { client, first, piece }),
        3 => (any::<bool>(), any::<usize>()).prop_map(|(client, which)| Step::Release { client, which }),
        1 => (any::<bool>(), any::<usize>(), 0_u32..20_000)
            .prop_map(|(client, which, target)| Step::Window { client, which, target }),
        1 => (any::<bool>(), any::<usize>()).prop_map(|(client, which)| Step::Reset { client, which }),
    ]
}

/// The byte at `at` of the content that `role` sends on stream `id`.
fn byte(role: Role, id: u32, at: usize) -> u8 {
    (id as usize * 31 + at * 7 + at / 251 + usize::from(role == Role::Client)) as u8
}

impl Side {
    fn other(&self) -> Role {
        if self.role == Role::Client { Role::Server } else { Role::Client }
    }

    /// Processes bytes; requests get a plan from their path.
    fn receive(&mut self, bytes: &[u8]) {
        let (role, plans) = (self.other(), &mut self.plans);
        let took = self.connection.receive(bytes, 0, &mut |id, came, event| {
            if let offramp_http::h2::Event::Request { request, .. } = &event {
                let mut parts = request.path()[1..].split('/').map(|part| part.parse().unwrap());
                let (total, trailers) = (parts.next().unwrap(), parts.next() == Some(1));
                plans.insert(id, Plan { total, trailers, ..Plan::default() });
            }
            let before = came.data.len();
            came.put(event);
            for (at, got) in came.data.iter().enumerate().skip(before) {
                assert_eq!(*got, byte(role, id, at), "{id} {at}");
            }
        });
        took.unwrap();
    }

    /// Writes as much as possible on a stream, in pieces.
    fn write(&mut self, id: u32, piece: usize) {
        let Some(plan) = self.plans.get_mut(&id) else { return };
        let gone = self.connection.stream(id).is_none_or(|came| came.reset.is_some());
        if plan.over || gone {
            return;
        }
        if self.role == Role::Server && !plan.begun {
            plan.begun = true;
            let fields: Fields = [("content-length", plan.total.to_string())].into_iter().collect();
            self.connection.respond(id, StatusCode::OK, &fields, false);
        }
        while plan.sent < plan.total {
            let n = self.connection.capacity(id).min(plan.total - plan.sent).min(piece);
            if n == 0 {
                return;
            }
            let data: Bytes = (plan.sent..plan.sent + n).map(|at| byte(self.role, id, at)).collect();
            plan.sent += n;
            plan.over = plan.sent == plan.total && !plan.trailers;
            assert!(self.connection.data(id, data, plan.over));
        }
        if !plan.over {
            plan.over = true;
            match plan.trailers {
                true => self.connection.trailers(id, [(&b"x-end"[..], &b"1"[..])].into_iter()),
                false => assert!(self.connection.data(id, Bytes::new(), true)),
            }
        }
    }

    fn ids(&self) -> Vec<u32> {
        self.plans.keys().copied().collect()
    }

    fn which(&self, which: usize) -> Option<u32> {
        let ids = self.ids();
        (!ids.is_empty()).then(|| ids[which % ids.len()])
    }

    fn write_all(&mut self, first: usize, piece: usize) {
        let ids = self.ids();
        for at in 0..ids.len() {
            self.write(ids[(first % ids.len() + at) % ids.len()], piece);
        }
    }

    fn release(&mut self, id: u32) {
        let (Some(plan), Some(came)) = (self.plans.get_mut(&id), self.connection.stream(id)) else { return };
        let n = came.data.len() - plan.released;
        plan.released += n;
        self.connection.release(id, n);
    }
}

fn carry(from: &mut Side, to: &mut Side, most: usize, piece: usize) -> usize {
    let bytes = output(&mut from.connection, most);
    bytes.chunks(piece).for_each(|part| to.receive(part));
    bytes.len()
}

fn pair(config: Config) -> (Side, Side) {
    let side = |role, connection| Side { role, connection, plans: BTreeMap::new() };
    (side(Role::Client, Connection::client(config, 0)), side(Role::Server, Connection::server(config, 0)))
}

/// Runs the steps; returns the streams that were reset.
fn run(steps: &[Step], client: &mut Side, server: &mut Side) -> Vec<u32> {
    let mut resets = Vec::new();
    for step in steps {
        match *step {
            Step::Ask { up, down, trailers } => {
                if !client.connection.can_open() {
                    continue;
                }
                let head = request(Method::POST, &format!("/{down}/{}", u8::from(trailers)));
                let opened = client.connection.open(Came::default(), &head, "https", Some(up as u64), false);
                let plan = Plan { total: up, trailers, begun: true, ..Plan::default() };
                client.plans.insert(opened.unwrap(), plan);
            }
            Step::Carry { to_server: true, bytes, piece } => drop(carry(client, server, bytes, piece)),
            Step::Carry { to_server: false, bytes, piece } => drop(carry(server, client, bytes, piece)),
            Step::Write { client: true, first, piece } => client.write_all(first, piece),
            Step::Write { client: false, first, piece } => server.write_all(first, piece),
            Step::Release { client: of_client, which } => {
                let side = if of_client { &mut *client } else { &mut *server };
                if let Some(id) = side.which(which) {
                    side.release(id);
                }
            }
            Step::Window { client: of_client, which, target } => {
                let side = if of_client { &mut *client } else { &mut *server };
                if let Some(id) = side.which(which) {
                    side.connection.set_window(id, target);
                }
            }
            Step::Reset { client: of_client, which } => {
                let side = if of_client { &mut *client } else { &mut *server };
                if let Some(id) = side.which(which) {
                    side.connection.forget(id, Code::CANCEL);
                    side.plans.remove(&id);
                    resets.push(id);
                }
            }
        }
        assert!(client.connection.memory() < 200_000 && server.connection.memory() < 200_000);
    }
    resets
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// All content arrives in order and to its end, unless its stream was reset.
    #[test]
    fn messages_arrive_unchanged(
        steps in prop::collection::vec(step(), 0..80),
        window in 200_u32..5000,
        shared_window in any::<bool>(),
        piece in 1_usize..5000,
    ) {
        let config = Config {
            stream_window: window,
            connection_window: 65_535,
            shared_window,
            growth: 0,
            max_streams: 10,
            max_head: 4000,
        };
        let (mut client, mut server) = pair(config);
        let resets = run(&steps, &mut client, &mut server);
        // From here on both sides run to completion.
        let mut quiet = 0;
        for turn in 0..100_000 {
            let moved = carry(&mut client, &mut server, usize::MAX, piece)
                + carry(&mut server, &mut client, usize::MAX, piece);
            for side in [&mut client, &mut server] {
                side.ids().into_iter().for_each(|id| side.release(id));
                side.write_all(turn, piece);
            }
            quiet = if moved == 0 { quiet + 1 } else { 0 };
            if quiet > 2 {
                break;
            }
        }
        prop_assert!(quiet > 2, "it does not end");
        for id in client.ids() {
            let plan = &client.plans[&id];
            let came = client.connection.stream(id).unwrap();
            if resets.contains(&id) || came.reset.is_some() {
                continue;
            }
            prop_assert!(plan.over && came.end, "{} {:?}", id, came);
            prop_assert_eq!(came.data.len(), server.plans[&id].total);
            prop_assert_eq!(came.trailers.is_some(), server.plans[&id].trailers);
            let got = server.connection.stream(id).unwrap();
            prop_assert!(got.end && got.data.len() == plan.total && got.trailers.is_some() == plan.trailers);
        }
        for side in [&mut client, &mut server] {
            for id in side.ids() {
                side.connection.forget(id, Code::CANCEL);
            }
            prop_assert_eq!(side.connection.open_streams(), 0);
            side.connection.drain();
        }
        for _ in 0..4 {
            carry(&mut client, &mut server, usize::MAX, piece);
            carry(&mut server, &mut client, usize::MAX, piece);
        }
        prop_assert!(client.connection.is_over() && server.connection.is_over());
    }

    /// One side is gone, or its bytes are lost: the other one waits, holds little, and can be ended.
    #[test]
    fn the_loss_of_a_side_is_harmless(
        steps in prop::collection::vec(step(), 0..60),
        after in prop::collection::vec(step(), 0..60),
        lost_client in any::<bool>(),
    ) {
        let config = Config {
            stream_window: 1000,
            connection_window: 65_535,
            shared_window: true,
            growth: 0,
            max_streams: 10,
            max_head: 4000,
        };
        let (mut client, mut server) = pair(config);
        run(&steps, &mut client, &mut server);
        let (_, mut nobody) = pair(config);
        // Output goes nowhere, and no input arrives.
        let only = |step: &Step| !matches!(step, Step::Carry { .. });
        let after: Vec<_> = after.into_iter().filter(only).collect();
        let side = match lost_client {
            true => {
                let (mut gone, _) = pair(config);
                run(&after.into_iter().filter(|step| !matches!(step, Step::Ask { .. })).collect::<Vec<_>>(),
                    &mut gone, &mut server);
                &mut server
            }
            false => {
                run(&after, &mut client, &mut nobody);
                &mut client
            }
        };
        side.connection.close(Code::NO_ERROR);
        prop_assert!(side.connection.is_over() && !side.connection.can_open());
        for id in side.ids() {
            side.connection.forget(id, Code::CANCEL);
        }
        prop_assert_eq!(side.connection.open_streams(), 0);
        prop_assert!(side.connection.memory() < 200_000);
    }
}
