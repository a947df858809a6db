//! Tests that this user or this machine cannot do. Each says so on standard error, past the capture of the harness, where
//! `scripts/test-as-user` counts: a run in which most was skipped proves nothing.

use std::io::Write as _;

/// Says that the test of this thread is skipped.
pub(crate) fn skipped(reason: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {reason}\n", thread.name().unwrap_or("a test"));
    // One write, so that lines of tests that run at once stay whole.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Set where this process is root. Says that the test is skipped where it is not: `why` only root can do it.
pub(crate) fn is_root_or_skipped(why: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skipped(why);
    }
    is_root
}

/// Set where this process sees the descriptors and the system calls of another that hides its memory, as Offramp does. Says
/// that the test is skipped otherwise.
pub(crate) fn sees_inside_or_skipped() -> bool {
    is_root_or_skipped("only root sees into a process that hides its memory")
}
