//! What happens to the process as a whole, for those who watch it: the latest of each kind, bounded.
//!
//! The log has all of it too. Who reads too seldom misses the oldest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::{LogField, Value};

/// Notices of a kind that are kept.
const KEPT: usize = 100;
/// The longest text of a field that is kept, in characters.
const LONGEST: usize = 4096;

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// Another process takes the place of this one, or does not.
    Upgrade,
    /// The process drains and ends.
    Stop,
    /// A change waits to be confirmed, or does not any more.
    Confirm,
    /// A limit refuses clients, or has accepting pause: at most one a minute of each limit.
    Limit,
    /// A worker's event loop is late: at most one a minute of each worker.
    Late,
}

impl NoticeKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Upgrade, Self::Stop, Self::Confirm, Self::Limit, Self::Late];

    /// The name, in lower case.
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

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its number among those of its kind since the start.
    pub number: u64,
    /// When.
    pub at: SystemTime,
    /// What, in one word.
    pub what: &'static str,
    /// Details, by their names.
    pub fields: Vec<(&'static str, Detail)>,
}

/// A detail of a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A number.
    Count(u64),
    /// True or false.
    Flag(bool),
    /// Text; of a long one the beginning.
    Text(String),
}

impl Detail {
    fn of(value: &Value<'_>) -> Self {
        match value {
            Value::Count(count) => Self::Count(*count),
            Value::Flag(flag) => Self::Flag(*flag),
            Value::Number(_) | Value::Text(_) | Value::Shown(_) => {
                let mut kept = String::new();
                value.with_text(|text| kept.extend(text.chars().take(LONGEST)));
                Self::Text(kept)
            }
        }
    }
}

/// The latest notices. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    lists: [VecDeque<Notice>; NoticeKind::ALL.len()],
    /// Whether another process tells from now on.
    ended: bool,
}

impl Notices {
    /// Takes note of something that happens now.
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

    /// Those of a kind that are kept and came after the one of this number, the oldest first.
    #[must_use]
    pub fn since(&self, kind: NoticeKind, number: u64) -> Vec<Notice> {
        self.kept().lists[kind as usize].iter().filter(|notice| notice.number > number).cloned().collect()
    }

    /// Takes note of nothing more: another process tells from now on.
    pub fn end(&self) {
        self.kept().ended = true;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing in here panics with the lock held.
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
