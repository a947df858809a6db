use std::collections::HashMap;
use std::net::Ipv4Addr;

use super::*;

const MS: u64 = 1_000_000;
/// Default cost of a step.
const STEP: u64 = MS / 2;

/// A line with a clock of its own.
#[derive(Default)]
struct Rig {
    line: HandshakeBacklog<()>,
    now: u64,
}

impl Rig {
    fn enter(&mut self, client: u32, resumes: bool) -> u64 {
        self.try_enter(client, resumes, None).unwrap()
    }

    fn try_enter(&mut self, client: u32, resumes: bool, patience: Option<u64>) -> Option<u64> {
        let client = Ipv4Addr::from_bits(client).into();
        self.line.enter(TurnRequest { client, resumes, patience }, self.now, ())
    }

    /// Serves the chosen handshake, which takes `cost` nanoseconds; returns the client.
    fn serve(&mut self, cost: impl Fn(u32) -> u64) -> (u32, bool) {
        let number = self.line.chosen().unwrap();
        let waiter = &self.line.waiting[&number];
        let (address, resumes, charged) = (waiter.client, waiter.resumes, waiter.cost);
        let IpAddr::V4(client) = address else { unreachable!("clients have IPv4 here") };
        self.line.leave(number, true, self.now);
        self.line.charge(address, resumes, charged, cost(client.to_bits()));
        self.now += cost(client.to_bits());
        (client.to_bits(), resumes)
    }

    fn serve_many(&mut self, count: usize) -> Vec<(u32, bool)> {
        (0..count).map(|_| self.serve(|_| STEP)).collect()
    }

    /// Lets the first handshake wait for too long.
    fn wait(&mut self) {
        self.now += PATIENCE + 1;
    }
}

#[test]
fn a_short_line_is_first_come_first_served() {
    let mut rig = Rig::default();
    let came: Vec<_> = (0..90).map(|n| (n / 30, n % 2 == 0)).collect();
    came.iter().for_each(|(client, resumes)| _ = rig.enter(*client, *resumes));
    // After 45 ms.
    assert_eq!(rig.serve_many(90), came);
    assert!(rig.line.is_empty() && rig.line.chosen().is_none());
}

#[test]
fn one_handshake_passes_the_flood_of_another_client() {
    let mut rig = Rig::default();
    (0..10_000).for_each(|_| _ = rig.enter(1, false));
    rig.wait();
    rig.serve_many(100);
    for newcomer in 2..20 {
        rig.enter(newcomer, false);
        let served = rig.serve_many(3);
        assert!(served.contains(&(newcomer, false)), "{newcomer}: {served:?}");
    }
}

#[test]
fn resumptions_go_first_except_one_step_in_four() {
    let mut rig = Rig::default();
    (0..1000).for_each(|n| _ = rig.enter(n, false));
    rig.wait();
    (0..1000).for_each(|n| _ = rig.enter(2000 + n, true));
    let served = rig.serve_many(401);
    for row in served[1..].chunks(4) {
        assert_eq!(row.iter().filter(|(_, resumed)| *resumed).count(), 3, "{row:?}");
    }
    // Without resumptions, all steps go to the rest.
    let rest = rig.serve_many(1599);
    assert!(rig.line.is_empty());
    assert!(rest[1000..].iter().all(|(_, resumed)| !resumed));
}

#[test]
fn an_endless_flood_of_tickets_does_not_starve_others() {
    let mut rig = Rig::default();
    (0..500).for_each(|_| _ = rig.enter(1, true));
    (2..52).for_each(|client| _ = rig.enter(client, false));
    rig.wait();
    let mut full = 0;
    for _ in 0..220 {
        rig.enter(1, true);
        full += usize::from(!rig.serve(|_| STEP).1);
    }
    assert_eq!(full, 50);
}

#[test]
fn two_hundred_clients_get_equal_shares() {
    let mut rig = Rig::default();
    // The client with the highest usage came first.
    for client in 0..200 {
        (0..200 - client / 2).for_each(|_| _ = rig.enter(client, false));
    }
    rig.wait();
    let mut counts: HashMap<u32, usize> = HashMap::new();
    rig.serve_many(4000).into_iter().for_each(|(client, _)| *counts.entry(client).or_default() += 1);
    assert_eq!(counts.len(), 200);
    assert!(counts.values().all(|count| (19..=21).contains(count)), "{counts:?}");
}

#[test]
fn shares_are_measured_in_time() {
    let mut rig = Rig::default();
    let cost = |client| if client == 1 { 8 * STEP } else { STEP };
    for client in 1..=2 {
        (0..20).for_each(|_| _ = rig.enter(client, false));
    }
    rig.wait();
    let mut used = [0; 3];
    for _ in 0..3000 {
        let client = rig.serve(cost).0;
        used[client as usize] += cost(client);
        rig.enter(client, false);
    }
    let ratio = used[1] as f64 / used[2] as f64;
    assert!((0.8..1.25).contains(&ratio), "{used:?}");
}

#[test]
fn late_handshakes_of_heavy_clients_are_rejected_at_once() {
    let mut rig = Rig::default();
    const DEADLINE: u64 = 1000 * MS;
    (0..200).for_each(|_| _ = rig.enter(1, false));
    rig.wait();
    rig.serve_many(100);
    // The pace follows the steps with a small error.
    let entered = (0..10_000).filter(|_| rig.try_enter(1, false, Some(DEADLINE)).is_some()).count();
    assert!((1500..3000).contains(&entered), "{entered}");
    let newcomers = (2..5000).filter(|client| rig.try_enter(*client, false, Some(DEADLINE)).is_some());
    assert_eq!(newcomers.count(), 4998);
    // A rejected handshake is not charged.
    let waiting = rig.line.len();
    assert!((0..100).all(|_| rig.try_enter(1, false, Some(0)).is_none()));
    assert_eq!(rig.line.len(), waiting);
}

#[test]
fn a_short_line_rejects_none() {
    let mut rig = Rig::default();
    assert!((0..10_000).all(|_| rig.try_enter(1, false, Some(0)).is_some()));
}

/// Whichever handshakes leave, the chosen one is always among those that wait.
#[test]
fn the_line_never_stops() {
    let mut rig = Rig::default();
    let mut dice = 0x1234_5678_9abc_def1_u64;
    let mut random = |below: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % below
    };
    let mut numbers = Vec::new();
    for _ in 0..20_000 {
        rig.now += random(MS);
        match random(5) {
            0 | 1 => numbers.push(rig.enter(random(7) as u32, random(2) == 0)),
            2 if !numbers.is_empty() => {
                let number = numbers.swap_remove(random(numbers.len() as u64) as usize);
                rig.line.leave(number, false, rig.now);
            }
            _ if !rig.line.is_empty() => {
                let chosen = rig.line.chosen().unwrap();
                numbers.retain(|number| *number != chosen);
                rig.serve(|_| STEP);
            }
            _ => {}
        }
        assert_eq!(rig.line.len(), numbers.len());
        assert_eq!(rig.line.chosen().is_some(), !numbers.is_empty());
        assert!(rig.line.chosen().is_none_or(|chosen| numbers.contains(&chosen)));
        assert_eq!(rig.line.classes.iter().map(|class| class.order.len()).sum::<usize>(), numbers.len());
    }
    assert!(size_of::<QueueEntry<std::task::Waker>>() <= 72, "{}", size_of::<QueueEntry<std::task::Waker>>());
}
