//! The conversation between a process and the one that takes its place.
//!
//! ```text
//! old → new   offramp-handover 1          with the memory of the state
//! old → new   sockets                     with descriptors, as often as there are more
//! new → old   left 3 7                    sets of sockets that its configuration does not want
//! new → old   ready                       it accepts connections
//!             refused REASON              or it does not, and ends
//! old → new   go                          the old process has given up what only one can have
//! ```
//!
//! Any other message ends the conversation. Then the old process serves on, and the new one ends.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use offramp_net::handover::{self, Channel, LONGEST_TEXT, MOST_DESCRIPTORS};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::inherited::{Inherited, Set, SocketCount};

const GREETING: &str = "offramp-handover ";
/// Both must have the same.
const VERSION: &str = "1";
const SOCKETS: &[u8] = b"sockets";
const LEFT: &str = "left";
const READY: &str = "ready";
const REFUSED: &str = "refused ";
const GO: &[u8] = b"go";
/// The numbers of sets in one message.
const NUMBERS: usize = 200;

/// Everything that the new process is to know: one object of JSON. A field that is not there has its default, and one that is
/// not known is skipped. So a field may be added without another version of the hand-over; a changed meaning needs another
/// version.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Handover<S> {
    /// The sockets, in the order of their descriptors.
    #[serde(default)]
    pub(super) sockets: Vec<SocketCount>,
    /// The state of the control plane, beside the sockets.
    #[serde(flatten)]
    pub(super) state: S,
}

/// An answer of the new process.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It does not want these sets of sockets.
    Left(Vec<usize>),
    /// It accepts connections.
    Ready,
    /// The reason why it cannot.
    Refused(String),
    /// A text that no version of this program sends that is known here.
    Unknown(String),
}

/// Sends everything.
pub(super) fn offer<S: Serialize>(
    channel: &Channel,
    handover: &Handover<S>,
    fds: &[OwnedFd],
    deadline: Instant,
) -> io::Result<()> {
    let memory = handover::memory(&serde_json::to_vec(handover)?)?;
    channel.send(format!("{GREETING}{VERSION}").as_bytes(), &[memory.as_fd()], deadline)?;
    for some in fds.chunks(MOST_DESCRIPTORS) {
        let some: Vec<_> = some.iter().map(OwnedFd::as_fd).collect();
        channel.send(SOCKETS, &some, deadline)?;
    }
    Ok(())
}

/// Receives everything.
///
/// # Errors
/// Why it is no hand-over that this program knows.
pub(super) fn accept<S: DeserializeOwned>(
    channel: &Channel,
    deadline: Instant,
) -> Result<(Handover<S>, Inherited), String> {
    let next = || match channel.receive(deadline) {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err("the process before has ended during the hand-over".to_owned()),
        Err(error) => Err(format!("the hand-over of the process before does not arrive: {error}")),
    };
    let mut first = next()?;
    let text = String::from_utf8_lossy(&first.text).into_owned();
    match text.strip_prefix(GREETING) {
        Some(VERSION) => {}
        Some(version) => {
            return Err(format!(
                "the hand-over has version {}, and this program knows {VERSION}; restart instead",
                printable(version)
            ));
        }
        None => return Err("what the process before says is no hand-over".to_owned()),
    }
    let memory = first.fds.pop().ok_or("the hand-over has no state")?;
    let bytes =
        handover::read_memory(memory).map_err(|error| format!("the hand-over cannot be read: {error}"))?;
    let handover: Handover<S> =
        serde_json::from_slice(&bytes).map_err(|error| format!("the hand-over cannot be read: {error}"))?;
    let mut sets = Vec::new();
    let mut fds = Vec::new().into_iter();
    for (number, SocketCount { label, count }) in handover.sockets.iter().enumerate() {
        let mut own = Vec::new();
        while own.len() < *count {
            match fds.next() {
                Some(fd) => own.push(fd),
                None => {
                    let more = next()?;
                    if more.text != SOCKETS || more.fds.is_empty() {
                        return Err("the hand-over has less sockets than it says".to_owned());
                    }
                    fds = more.fds.into_iter();
                }
            }
        }
        sets.push(Set { number, label: label.clone(), fds: own });
    }
    Ok((handover, Inherited::new(sets)))
}

/// Says that the new process accepts, and which sets it does not want.
pub(super) fn ready(channel: &Channel, left: &[usize], deadline: Instant) -> io::Result<()> {
    for some in left.chunks(NUMBERS) {
        let numbers: Vec<String> = some.iter().map(ToString::to_string).collect();
        channel.send(format!("{LEFT} {}", numbers.join(" ")).as_bytes(), &[], deadline)?;
    }
    channel.send(READY.as_bytes(), &[], deadline)
}

/// Says why there will be no new process.
pub(super) fn refuse(channel: &Channel, reason: &str, deadline: Instant) -> io::Result<()> {
    let lines: Vec<&str> = reason.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut text = format!("{REFUSED}{}", lines.join(" | "));
    let end = (0..=text.len().min(LONGEST_TEXT)).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    channel.send(text.as_bytes(), &[], deadline)
}

/// The answer in a message of the new process.
pub(super) fn answer(text: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(text);
    let numbers = |list: &str| {
        list.split(' ').skip(1).map(|number| number.parse().ok()).collect::<Option<Vec<usize>>>()
    };
    match &*text {
        READY => Answer::Ready,
        _ if text.starts_with(REFUSED) => Answer::Refused(printable(&text[REFUSED.len()..])),
        _ if text.starts_with(LEFT) => {
            numbers(&text).map_or_else(|| Answer::Unknown(printable(&text)), Answer::Left)
        }
        _ => Answer::Unknown(printable(&text)),
    }
}

/// Tells the new process that it is the only one now.
pub(super) fn go(channel: &Channel, deadline: Instant) -> io::Result<()> {
    channel.send(GO, &[], deadline)
}

/// Waits for that. Without the other process it is so in any case.
pub(super) fn wait_for_go(channel: &Channel, deadline: Instant) {
    while let Ok(Some(message)) = channel.receive(deadline) {
        if message.text == GO {
            return;
        }
    }
}

/// The text without what a terminal would obey.
fn printable(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use offramp_net::handover::within;

    use super::*;
    use crate::inherited::{Label, Purpose};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The state of a control plane; fields of it may be flattened too.
    #[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    struct Memory {
        names: Vec<(String, u64)>,
        #[serde(flatten)]
        more: Option<More>,
    }

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct More {
        text: String,
    }

    fn state(counts: &[usize]) -> Handover<Memory> {
        let sockets = counts.iter().enumerate().map(|(number, count)| SocketCount {
            label: Label {
                purpose: Purpose::Listener,
                name: format!("l{number}"),
                address: "127.0.0.1:0".to_owned(),
                foreign: false,
            },
            count: *count,
        });
        let more = Some(More { text: "as it is".to_owned() });
        let state = Memory { names: vec![("a.example".to_owned(), u64::MAX)], more };
        Handover { sockets: sockets.collect(), state }
    }

    fn descriptors(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| handover::memory(b"").unwrap()).collect()
    }

    #[test]
    fn a_hand_over_arrives_with_all_sockets() {
        let (old, new) = Channel::pair().unwrap();
        let offered = state(&[3, 250, 0, 1]);
        offer(&old, &offered, &descriptors(254), within(PATIENCE)).unwrap();
        let (arrived, inherited) = accept::<Memory>(&new, within(PATIENCE)).unwrap();
        assert_eq!((arrived.sockets.len(), arrived.state), (4, offered.state));
        assert_eq!(inherited.left().collect::<Vec<_>>(), [0, 1, 2, 3]);
        ready(&new, &(0..450).collect::<Vec<_>>(), within(PATIENCE)).unwrap();
        let mut left = Vec::new();
        loop {
            match answer(&old.receive(within(PATIENCE)).unwrap().unwrap().text) {
                Answer::Left(more) => left.extend(more),
                other => break assert_eq!(other, Answer::Ready),
            }
        }
        assert_eq!(left, (0..450).collect::<Vec<_>>());
        go(&old, within(PATIENCE)).unwrap();
        wait_for_go(&new, within(PATIENCE));
    }

    #[test]
    fn what_is_no_hand_over_is_refused_with_the_reason() {
        let refusal = |send: &dyn Fn(&Channel)| {
            let (old, new) = Channel::pair().unwrap();
            send(&old);
            drop(old);
            accept::<Memory>(&new, within(PATIENCE)).unwrap_err()
        };
        let memory = |bytes: &[u8]| handover::memory(bytes).unwrap();
        let greet = |old: &Channel, text: &str, bytes: &[u8]| {
            old.send(text.as_bytes(), &[memory(bytes).as_fd()], within(PATIENCE)).unwrap();
        };
        assert!(refusal(&|_| {}).contains("has ended"));
        assert!(refusal(&|old| greet(old, "offramp-handover 2", b"{}")).contains("version 2"));
        assert!(refusal(&|old| greet(old, "hello", b"{}")).contains("is no hand-over"));
        assert!(refusal(&|old| greet(old, "offramp-handover 1", b"{")).contains("cannot be read"));
        let bare = |old: &Channel| old.send(b"offramp-handover 1", &[], within(PATIENCE)).unwrap();
        assert!(refusal(&bare).contains("no state"));
        let short = |old: &Channel| offer(old, &state(&[2]), &descriptors(1), within(PATIENCE)).unwrap();
        assert!(refusal(&short).contains("has ended"));
        let empty = |old: &Channel| {
            greet(old, "offramp-handover 1", &serde_json::to_vec(&state(&[2])).unwrap());
            old.send(SOCKETS, &[], within(PATIENCE)).unwrap();
        };
        assert!(refusal(&empty).contains("less sockets"));
    }

    #[test]
    fn fields_that_are_not_there_or_not_known_are_no_error() {
        let (old, new) = Channel::pair().unwrap();
        let memory = handover::memory(br#"{"other":[1],"names":[]}"#).unwrap();
        old.send(b"offramp-handover 1", &[memory.as_fd()], within(PATIENCE)).unwrap();
        let (arrived, inherited) = accept::<Memory>(&new, within(PATIENCE)).unwrap();
        assert_eq!((arrived.state, inherited.left().count()), (Memory::default(), 0));
    }

    #[test]
    fn answers_that_are_unknown_are_shown_and_never_obeyed() {
        assert_eq!(answer(b"left 1 x"), Answer::Unknown("left 1 x".to_owned()));
        assert_eq!(answer(b"ready now"), Answer::Unknown("ready now".to_owned()));
        assert_eq!(answer(b"\x1b[2J"), Answer::Unknown("?[2J".to_owned()));
        let (old, new) = Channel::pair().unwrap();
        refuse(&new, &format!("one\n\n two\n{}", "é".repeat(LONGEST_TEXT)), within(PATIENCE)).unwrap();
        let Answer::Refused(reason) = answer(&old.receive(within(PATIENCE)).unwrap().unwrap().text) else {
            panic!("it was refused")
        };
        assert!(reason.starts_with("one | two | é"), "{reason}");
    }
}
