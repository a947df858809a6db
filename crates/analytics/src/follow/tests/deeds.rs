//! Every order of what a writer, a rotation and a reader can do: each line arrives once.

use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};
use proptest::{collection, prop_assert, prop_assert_eq};

use super::rig::{Rig, late};

#[derive(Clone, Debug)]
enum Deed {
    Lines(u64),
    Half,
    Rename,
    Late(u64),
    Copy,
    Compress,
    Read(usize),
    Kill(usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => (0u64..50).prop_map(Deed::Lines),
        1 => Just(Deed::Half),
        2 => Just(Deed::Rename),
        1 => (1u64..9).prop_map(Deed::Late),
        1 => Just(Deed::Compress),
        3 => (1usize..4).prop_map(Deed::Read),
        1 => (1usize..4).prop_map(Deed::Kill),
    ];
    collection::vec(deed, 1..25)
}

/// Copies that are truncated, each read at least once in between: what has no telling beginning has no copy either.
fn deeds_with_copies() -> impl Strategy<Value = Vec<Deed>> {
    let round = (1u64..50, 0u64..50, 0usize..4).prop_map(|(before, after, kill)| {
        let read = if kill == 0 { Deed::Read(2) } else { Deed::Kill(kill) };
        vec![Deed::Lines(before), Deed::Read(1), Deed::Lines(after), Deed::Copy, read, Deed::Read(2)]
    });
    collection::vec(round, 1..5).prop_map(|rounds| rounds.concat())
}

fn do_all(deeds: &[Deed]) -> Rig {
    let mut rig = Rig::new();
    for deed in deeds {
        match deed {
            Deed::Lines(count) => rig.lines(*count),
            Deed::Half => rig.half_a_line(),
            Deed::Rename => rig.rename(),
            // A reader without patience (`QUIET`) is done with a file to which others were preferred by their age.
            Deed::Late(count) if rig.is_youngest(1) => {
                let path = rig.past(1);
                late(&mut rig, &path, *count);
            }
            Deed::Late(_) => {}
            Deed::Copy => rig.copy_and_truncate(),
            Deed::Compress => rig.compress(1),
            Deed::Read(passes) => assert!(rig.read(*passes)),
            Deed::Kill(commit) => {
                rig.store.fails_at = Some(*commit);
                rig.read(2);
            }
        }
    }
    rig.lines(1);
    for _ in 0..3 {
        assert!(rig.read(3));
    }
    rig
}

proptest! {
    // Every case makes dozens of files.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_line_arrives_once(deeds in deeds()) {
        // A reader that never looked before the first rotation knows nothing of the past.
        let rig = do_all(&[&[Deed::Lines(1), Deed::Read(1)], &deeds[..]].concat());
        let mut stored = rig.stored();
        stored.sort_unstable();
        prop_assert_eq!(stored, (0..rig.written).collect::<Vec<_>>());
        prop_assert_eq!((rig.gaps, rig.rejected), (0, 0));
    }

    #[test]
    fn every_line_arrives_once_through_copies(deeds in deeds_with_copies()) {
        let rig = do_all(&deeds);
        prop_assert_eq!(rig.stored(), (0..rig.written).collect::<Vec<_>>());
        prop_assert_eq!((rig.gaps, rig.rejected), (0, 0));
    }
}

/// What may happen to a log that is copied and truncated more often than anybody looks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Haste {
    Lines(u64),
    /// Copies, truncates, and keeps so many copies.
    Copy(u64),
    Look,
}

impl Haste {
    /// Has it happen to the log; a look is the reader's.
    pub(super) fn happen(self, rig: &mut Rig) {
        match self {
            Self::Lines(count) => rig.lines(count),
            Self::Copy(kept) => {
                rig.copy_and_truncate();
                (kept + 1..20).for_each(|number| drop(std::fs::remove_file(rig.past(number))));
            }
            Self::Look => {}
        }
    }
}

pub(super) fn hastes() -> impl Strategy<Value = Vec<Haste>> {
    let one = prop_oneof![
        3 => (1..4_u64).prop_map(Haste::Lines),
        3 => (1..3_u64).prop_map(Haste::Copy),
        2 => Just(Haste::Look),
    ];
    collection::vec(one, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Copies that are removed before anybody saw them are lost, but never without a word: except where a look found the
    /// log empty, and the next one does too. What is found is stored once.
    #[test]
    fn what_is_lost_is_said(hastes in hastes()) {
        let mut rig = Rig::new();
        rig.lines(1);
        prop_assert!(rig.read(1));
        let (mut is_empty, mut was_empty, mut unsaid) = (false, false, 0);
        for haste in &hastes {
            match haste {
                Haste::Look => {
                    prop_assert!(rig.read(2));
                    was_empty = is_empty;
                }
                other => other.happen(&mut rig),
            }
            match haste {
                Haste::Lines(count) => {
                    is_empty = false;
                    unsaid += if was_empty { *count } else { 0 };
                }
                Haste::Copy(_) => is_empty = true,
                Haste::Look => {}
            }
        }
        prop_assert!(rig.read(3));
        let (doubled, lost) = rig.doubled_and_lost();
        prop_assert_eq!(doubled, 0, "lines are doubled");
        prop_assert!(lost <= unsaid || rig.gaps > 0, "{} of {} lines are lost, and not a word", lost, rig.written);
    }
}
