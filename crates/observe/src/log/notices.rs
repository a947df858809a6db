//! Notices of process-wide events for subscribers: the latest of each kind, in bounded memory.
//!
//! The log has all of them too. A subscriber that reads too seldom misses the oldest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::{LogField, LogValue};

/// Notices kept per kind.
const KEPT: usize = 100;
/// The maximum length of a text field, in characters.
const LONGEST: usize = 4096;

/// The subject of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// An upgrade: a successor process takes over, or fails to.
    Upgrade,
    /// The shutdown: the process drains and ends.
    Stop,
    /// A change that awaits confirmation, or stopped to.
    Confirm,
    /// A limit that refuses clients or pauses accepting: at most one per minute and limit.
    Limit,
    /// An event loop that is late: at most one per minute and worker.
    Late,
}

impl NoticeKind {
    /// Every kind, in the order of the discriminants.
    pub const ALL: [Self; 5] = [Self::Upgrade, Self::Stop, Self::Confirm, Self::Limit, Self::Late];

    /// The name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Upgrade => "upgrade",
            Self::Stop => "stop",
            Self::Confirm => "confirm",
            Self::Limit => "limit",
            Self::Late => "late",
        }
    }
}

/// One notice, as subscribers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The sequence number among notices of this kind since the start.
    pub number: u64,
    /// The time of the event.
    pub at: SystemTime,
    /// The event in one word.
    pub what: &'static str,
    /// Details of the event by name.
    pub fields: Vec<(&'static str, Detail)>,
}

/// The value of a detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// An unsigned number, such as a count.
    Count(u64),
    /// A yes-or-no detail.
    Flag(bool),
    /// Text, truncated if long.
    Text(String),
}

impl Detail {
    fn of(value: &LogValue<'_>) -> Self {
        match value {
            LogValue::Count(count) => Self::Count(*count),
            LogValue::Flag(flag) => Self::Flag(*flag),
            LogValue::Number(_) | LogValue::Text(_) | LogValue::Shown(_) => {
                let mut kept = String::new();
                value.with_text(|text| kept.extend(text.chars().take(LONGEST)));
                Self::Text(kept)
            }
        }
    }
}

/// The latest notices. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Mutex<NoticeLists>>);

#[derive(Debug, Default)]
struct NoticeLists {
    lists: [VecDeque<Notice>; NoticeKind::ALL.len()],
    /// Set once another process publishes notices.
    ended: bool,
}

impl Notices {
    /// Records an event as of now.
    pub fn note(&self, kind: NoticeKind, what: &'static str, fields: &[LogField<'_>]) {
        let fields = fields.iter().map(|(name, value)| (*name, Detail::of(value))).collect();
        let mut kept = self.kept();
        if kept.ended {
            return;
        }
        let list = &mut kept.lists[kind as usize];
        let number = list.back().map_or(1, |last| last.number + 1);
        if list.len() == KEPT {
            list.pop_front();
        }
        list.push_back(Notice { number, at: SystemTime::now(), what, fields });
    }

    /// The kept notices of a kind with a higher number than `number`, oldest first.
    #[must_use]
    pub fn since(&self, kind: NoticeKind, number: u64) -> Vec<Notice> {
        self.kept().lists[kind as usize].iter().filter(|notice| notice.number > number).cloned().collect()
    }

    /// Records nothing more: another process publishes notices from now on.
    pub fn end(&self) {
        self.kept().ended = true;
    }

    fn kept(&self) -> MutexGuard<'_, NoticeLists> {
        // No code panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_hundred_of_each_kind_are_kept_and_long_texts_are_cut() {
        let notices = Notices::default();
        let long = "é".repeat(LONGEST + 1);
        for at in 0..150_u64 {
            notices.note(NoticeKind::Limit, "refused", &[("refused", at.into()), ("client", (&long).into())]);
        }
        notices.note(NoticeKind::Stop, "begun", &[("hurried", true.into())]);
        let all = notices.since(NoticeKind::Limit, 0);
        assert_eq!((all.len(), all[0].number, all[KEPT - 1].number), (KEPT, 51, 150));
        assert_eq!(all[0].fields[0], ("refused", Detail::Count(50)));
        assert_eq!(all[0].fields[1], ("client", Detail::Text("é".repeat(LONGEST))));
        assert_eq!(notices.since(NoticeKind::Limit, 149).len(), 1);
        assert_eq!(notices.since(NoticeKind::Limit, 150), []);
        assert_eq!(notices.since(NoticeKind::Stop, 0)[0].fields, [("hurried", Detail::Flag(true))]);
        notices.end();
        notices.note(NoticeKind::Stop, "begun", &[]);
        assert_eq!(notices.since(NoticeKind::Stop, 0).len(), 1);
        let names: Vec<_> = NoticeKind::ALL.iter().map(|kind| (*kind as usize, kind.name())).collect();
        assert_eq!(names, [(0, "upgrade"), (1, "stop"), (2, "confirm"), (3, "limit"), (4, "late")]);
    }
}
