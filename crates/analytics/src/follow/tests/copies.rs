//! Copies of the log that nobody could see are told of, and nothing else is taken for one.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};

use super::super::Follower;
use super::super::watch::Woken;
use super::deeds::{Haste, hastes};
use super::rig::Rig;
use crate::follow::StartAt;
use crate::ingest::tests::{Memory, ingest};

/// Something that happens to a log and what lies beside it.
type Act = fn(&mut Rig);

/// Has a reader that waits for changes look after each of these, and gives what came of it.
fn followed<A: Fn(&mut Rig)>(acts: &[A]) -> Rig {
    let mut rig = Rig::new();
    rig.lines(20);
    let mut ingest = ingest(Memory::default());
    let stop = ingest.stop().clone();
    let mut follower = Follower::new(&mut ingest, &rig.log).unwrap();
    follower.quiet = Duration::ZERO;
    assert!(follower.resume(StartAt::Beginning).and_then(|()| follower.note_beside()).is_ok());
    assert!(follower.pass().is_ok());
    for act in acts {
        act(&mut rig);
        while follower.watch.wait(&stop, Duration::ZERO).unwrap() == Woken::Names {
            follower.neighbours.renamed = true;
        }
        assert!(follower.pass().is_ok());
    }
    let (store, report, _) = ingest.finish();
    rig.store = store;
    (rig.gaps, rig.rejected) = (report.gaps, report.rejected);
    rig
}

/// Without copies that are lost every line is there, and nobody says that one is missing.
fn assert_nothing_is_missing(acts: &[Act]) {
    followed(acts).assert_sorted();
}

/// Lines are lost, and somebody says so.
fn assert_is_told(rig: &Rig) {
    let (doubled, lost) = rig.doubled_and_lost();
    assert!(doubled == 0 && lost > 0 && rig.gaps > 0, "{doubled} doubled, {lost} lost, {} told", rig.gaps);
}

fn copy(rig: &mut Rig) {
    rig.lines(5);
    rig.copy_and_truncate();
    rig.lines(5);
}

/// Only the last copy is kept.
fn remove(rig: &mut Rig) {
    (2..20).for_each(|number| drop(fs::remove_file(rig.past(number))));
}

#[test]
fn a_copy_is_no_gap_and_one_that_nobody_saw_is() {
    assert_nothing_is_missing(&[copy, copy]);
    let twice: Act = |rig| {
        copy(rig);
        copy(rig);
        remove(rig);
    };
    assert_is_told(&followed(&[twice]));
}

/// As Debian's `savelog` does it.
#[test]
fn a_second_name_of_the_log_is_no_copy() {
    let link: Act = |rig| {
        rig.lines(5);
        fs::hard_link(&rig.log, rig.past(0)).unwrap();
        let new = rig.folder.path().join("access.log.new");
        fs::write(&new, "").unwrap();
        fs::rename(new, &rig.log).unwrap();
        rig.lines(5);
    };
    let shift: Act = |rig| {
        fs::rename(rig.past(0), rig.past(1)).unwrap();
        rig.lines(5);
    };
    assert_nothing_is_missing(&[link, shift, link]);
}

#[test]
fn another_log_of_such_a_name_is_no_copy() {
    assert_nothing_is_missing(&[|rig| {
        fs::write(rig.folder.path().join("access.2.log"), "lines of another server\n").unwrap();
        rig.lines(5);
    }]);
}

#[test]
fn links_and_folders_are_no_copies() {
    assert_nothing_is_missing(&[|rig| {
        symlink(&rig.log, rig.past(7)).unwrap();
        fs::create_dir(rig.past(8)).unwrap();
        rig.lines(5);
    }]);
}

/// The file system gives the next copy the inode of the one that was removed.
#[test]
fn a_copy_that_has_an_inode_again_is_found() {
    let acts: Vec<Act> = (0..12).flat_map(|_| [copy as Act, remove]).collect();
    assert_nothing_is_missing(&acts);
}

/// What came by a rename was not made there. It must not be set off against a copy that is lost.
#[test]
fn a_file_that_came_in_another_way_makes_up_for_no_copy() {
    let come: Act = |rig| {
        let (from, to) = (rig.folder.path().join("other"), rig.past(9));
        fs::write(&from, "").unwrap();
        fs::rename(from, to).unwrap();
        rig.lines(1);
    };
    let twice: Act = |rig| {
        copy(rig);
        copy(rig);
        remove(rig);
    };
    assert_is_told(&followed(&[come, come, |rig| rig.lines(1), copy, twice]));
}

/// Two copies between two looks have the same name one after the other. That the second is read already says nothing of
/// the first.
#[test]
fn a_copy_that_is_read_makes_up_for_no_other() {
    let two: Act = |rig| [Haste::Copy(1), Haste::Copy(2)].iter().for_each(|haste| haste.happen(rig));
    let lost: Act = |rig| {
        [Haste::Lines(1), Haste::Copy(1), Haste::Copy(1)].iter().for_each(|haste| haste.happen(rig));
    };
    assert_is_told(&followed(&[two, lost, |_| (), |_| ()]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The same as `what_is_lost_is_said`, for a reader that lives through all of it.
    #[test]
    fn what_is_lost_is_said_while_it_happens(hastes in hastes()) {
        let parts: Vec<&[Haste]> = hastes.split(|haste| matches!(haste, Haste::Look)).chain([&[][..]; 2]).collect();
        let acts: Vec<_> =
            parts.iter().map(|part| |rig: &mut Rig| part.iter().for_each(|haste| haste.happen(rig))).collect();
        let rig = followed(&acts);
        let (doubled, lost) = rig.doubled_and_lost();
        prop_assert_eq!(doubled, 0, "lines are doubled");
        prop_assert!(lost == 0 || rig.gaps > 0, "{} of {} lines are lost, and not a word", lost, rig.written);
    }

    /// One copy at a time, with a look at each, is the life of most logs: nobody misses anything.
    #[test]
    fn copies_with_a_look_at_each_are_no_gaps(rounds in proptest::collection::vec((1..4_u64, 1..3_u64, 0..3_u64), 1..8)) {
        let acts: Vec<_> = rounds.iter().map(|&(before, kept, after)| move |rig: &mut Rig| {
            rig.lines(before);
            Haste::Copy(kept).happen(rig);
            if after > 0 {
                rig.lines(after);
            }
        }).collect();
        let rig = followed(&acts);
        prop_assert_eq!((rig.doubled_and_lost(), rig.gaps), ((0, 0), 0));
    }
}
