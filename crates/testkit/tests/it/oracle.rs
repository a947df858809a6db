//! The whole table of malformed input against plain rustls: the expectations and the notes hold.

use std::collections::BTreeSet;
use std::net::TcpStream;

use offramp_testkit::ca::{Ca, Key, Leaf};
use offramp_testkit::cases::{self, Target};
use offramp_testkit::oracle::Oracle;
use offramp_testkit::process::temp_dir;
use offramp_testkit::tls_client::End;

#[test]
fn rustls_does_what_the_table_says() {
    let directory = temp_dir();
    let ca = Ca::new(directory.path()).unwrap();
    let oracle =
        Oracle::start(&ca.issue("server", &Leaf::server(Key::P256, &["localhost"])).unwrap()).unwrap();
    let mut wrong = Vec::new();
    for case in cases::table() {
        for suite in case.suites() {
            let verdict = cases::run(&case, suite, Target::Oracle, || TcpStream::connect(oracle.address()));
            let expected = case.rustls.map_or(case.expect.clone(), |differs| vec![differs.outcome]);
            match verdict {
                Ok(verdict) if expected.contains(&verdict.outcome()) && verdict.end != End::Reset => {}
                Ok(verdict) => {
                    wrong.push(format!("{case:?} {suite:?}: {:?}, not {expected:?}", verdict.outcome()));
                }
                Err(error) => wrong.push(format!("{case:?} {suite:?}: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} of the table's rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_table_is_in_order() {
    let mut names = BTreeSet::new();
    for case in cases::table() {
        assert!(names.insert((case.name.clone(), case.rfc)), "twice in the table: {case:?}");
        assert!(case.rfc.starts_with("RFC "), "no clause: {case:?}");
        assert!(!case.expect.is_empty() && case.suites().next().is_some(), "empty: {case:?}");
        if let Some(differs) = case.rustls {
            assert!(!case.expect.contains(&differs.outcome), "a note without a difference: {case:?}");
        }
    }
}

#[test]
fn an_oracle_is_no_worse_than_itself() {
    let directory = temp_dir();
    let ca = Ca::new(directory.path()).unwrap();
    let files = ca.issue("server", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    let (subject, reference) = (Oracle::start(&files).unwrap(), Oracle::start(&files).unwrap());
    // Where rustls differs from the table it falls short of it too, and the comparison must say so.
    let (differing, agreeing): (Vec<_>, Vec<_>) =
        cases::table().into_iter().step_by(7).partition(|case| case.rustls.is_some());
    let found = cases::compare(&agreeing, subject.address(), reference.address());
    assert!(found.is_empty(), "{}", found.iter().map(|one| format!("{one}\n")).collect::<String>());
    let found = cases::compare(&differing, subject.address(), reference.address());
    assert_eq!(found.len(), differing.iter().map(|case| case.suites().count()).sum::<usize>());
}
