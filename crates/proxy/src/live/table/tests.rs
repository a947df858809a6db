use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use offramp_observe::{Cause, IdSource};

use super::*;

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn facts(ids: &mut IdSource) -> Box<ConnectionFacts> {
    let now = SystemTime::now();
    let client: std::net::SocketAddr = "192.0.2.1:7".parse().unwrap();
    Box::new(ConnectionFacts::new(ids.next(now), 0, "web".into(), now, client.into()))
}

fn query(from: u32, most: usize, action: QueryAction) -> ConnectionQuery {
    ConnectionQuery { filter: Arc::default(), from, most, action }
}

#[test]
fn a_walk_finds_each_that_stays_once_whatever_comes_and_goes() {
    let (live, mut ids) = (Live::default(), IdSource::new(0, 7));
    let enter = |ids: &mut IdSource| live.enter(facts(ids), Waker::noop().clone());
    let places: Vec<LiveSlotId> = (0..5000).map(|_| enter(&mut ids)).collect();
    let staying: HashSet<_> = places.iter().step_by(2).map(|place| live.facts(*place).id).collect();
    let mut leaving = places.iter().skip(1).step_by(2);
    let (mut seen, mut from, mut turns) = (HashSet::new(), 0, 0);
    loop {
        let reply = live.answer(&query(from, 300, QueryAction::List));
        assert!(reply.listed.len() <= 300);
        for told in &reply.listed {
            assert!(seen.insert(told.id), "{} is told twice", told.id);
        }
        turns += 1;
        for _ in 0..40 {
            assert!(live.leave(*leaving.next().unwrap()).is_some());
        }
        // They take the places of those that went.
        for _ in 0..20 {
            let _ = enter(&mut ids);
        }
        match reply.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert!(turns > 10, "{turns}");
    assert!(staying.is_subset(&seen));
}

#[test]
fn one_question_is_about_a_thousand_places_at_most() {
    let (live, mut ids) = (Live::default(), IdSource::new(0, 7));
    for _ in 0..2500 {
        let _ = live.enter(facts(&mut ids), Waker::noop().clone());
    }
    let ask = |from| {
        let reply = live.answer(&query(from, usize::MAX, QueryAction::Count));
        (reply.count, reply.next)
    };
    assert_eq!([ask(0), ask(1000), ask(2000)], [(1000, Some(1000)), (1000, Some(2000)), (500, None)]);
    assert_eq!([ask(2500), ask(u32::MAX)], [(0, None), (0, None)]);
}

#[test]
fn who_is_to_be_closed_is_woken_once_and_is_not_there_any_more() {
    let (live, mut ids) = (Live::default(), IdSource::new(0, 7));
    let bells: Vec<Arc<Bell>> = (0..3).map(|_| Arc::default()).collect();
    let places: Vec<LiveSlotId> =
        bells.iter().map(|bell| live.enter(facts(&mut ids), Arc::clone(bell).into())).collect();
    let id = live.facts(places[1]).id;
    let one = ConnectionQuery {
        filter: Arc::new(Filter { id: Some(id), ..Filter::default() }),
        ..query(0, usize::MAX, QueryAction::Close)
    };
    assert_eq!((live.answer(&one).count, live.answer(&one).count), (1, 0));
    let woken = bells.iter().map(|bell| bell.0.load(Ordering::Relaxed));
    assert_eq!(woken.collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(places.iter().map(|place| live.is_closing(*place)).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(live.answer(&query(0, 10, QueryAction::List)).listed.len(), 2);
    assert!(live.leave(places[1]).is_some());
    // Whoever gets the place is another.
    let next = live.enter(facts(&mut ids), Waker::noop().clone());
    assert_eq!((next, live.is_closing(next), live.closing.get()), (places[1], false, 0));
}

#[test]
fn what_requests_have_moved_is_not_part_of_the_facts() {
    let (live, mut ids) = (Live::default(), IdSource::new(0, 7));
    let place = live.enter(facts(&mut ids), Waker::noop().clone());
    live.speaks(place, ConnectionProtocol::Http1);
    let path = PathFacts { route: Some("shop".into()), ..PathFacts::default() };
    let traffic = ByteCounts { from_client: 1, to_client: 20 };
    live.requested(place, &path, traffic);
    live.requested(place, &path, traffic);
    let told = live.answer(&query(0, 1, QueryAction::List)).listed.remove(0);
    assert_eq!(told.traffic, ByteCounts { from_client: 2, to_client: 40 });
    assert_eq!(told.path.route.as_deref(), Some("shop"));
    let facts = live.leave(place).unwrap();
    assert_eq!((facts.path.route, facts.traffic), (None, ByteCounts::default()));
    assert_eq!(facts.close.cause, Cause::Internal);
    // Of a relay they are.
    let place = live.enter(self::facts(&mut ids), Waker::noop().clone());
    live.speaks(place, ConnectionProtocol::Tcp);
    live.moved(place, traffic);
    assert_eq!(live.leave(place).unwrap().traffic, traffic);
}
