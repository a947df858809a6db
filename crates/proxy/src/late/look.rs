//! What the thread that asks knows of each worker. Time is an argument.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use offramp_observe::{Log, NoticeKind, Notices};

use super::{Doing, LATE, LOOK, Place, Pulse};

/// The shortest time between two lines about a worker.
const SILENCE: Duration = Duration::from_secs(60);
/// A loop that does not come round at all is reported after this time.
const STUCK: Duration = Duration::from_secs(1);

/// The looks so far.
#[derive(Debug, Default)]
pub(super) struct LagProbe {
    last: Option<Instant>,
    workers: Vec<WorkerState>,
    all_slept: bool,
}

/// The state of a worker, as far as it is known.
#[derive(Debug, Default)]
struct WorkerState {
    /// The question that was not answered when it was looked at last.
    open: Option<Question>,
    /// The CPU time of its thread when it answered the question before.
    cpu: u64,
    said: Option<Instant>,
}

#[derive(Debug)]
struct Question {
    number: u64,
    /// Time of the question; later by the time in which no worker could answer.
    at: Instant,
    /// The step that the worker had begun last when the answer was late.
    begun: Option<Begun>,
    /// The lateness when it was reported, in nanoseconds.
    reported: u64,
}

/// A step that a worker has begun, its client and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) step: Doing,
    pub(super) client: Option<IpAddr>,
    pub(super) place: Option<Place>,
}

/// A loop is late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LagReport {
    pub(super) worker: usize,
    /// The lateness, or so far.
    pub(super) late: Duration,
    /// The part of it that was not reported, in nanoseconds.
    pub(super) more: u64,
    /// It was not reported before.
    pub(super) is_new: bool,
    /// The loop is still late.
    pub(super) is_stuck: bool,
    /// CPU time of the thread since the answer before; unknown where it is stuck.
    pub(super) cpu: Option<Duration>,
    pub(super) begun: Begun,
    at: Instant,
}

impl LagProbe {
    /// Looks at all workers, and asks those that are awake. `place` says what those work for that are late.
    pub(super) fn look(
        &mut self,
        now: Instant,
        workers: &[Arc<Pulse>],
        place: impl Fn(Doing) -> Option<Place>,
    ) -> Vec<LagReport> {
        // The time in which this thread did not run either.
        let lost = self.last.replace(now).map_or(Duration::ZERO, |last| {
            let since = now.saturating_duration_since(last);
            if since > LATE { since - LOOK } else { Duration::ZERO }
        });
        self.workers.resize_with(workers.len().max(self.workers.len()), WorkerState::default);
        self.all_slept = true;
        let mut reports = Vec::new();
        for (index, (known, pulse)) in self.workers.iter_mut().zip(workers).enumerate() {
            if let Some(question) = &mut known.open {
                question.at += lost;
                reports.extend(known.examine(index, now, pulse, &place));
            }
            let asleep = pulse.asleep.load(Ordering::Relaxed);
            self.all_slept &= asleep && known.open.is_none();
            if known.open.is_none() && !asleep {
                let number = pulse.asked.load(Ordering::Relaxed) + 1;
                pulse.asked.store(number, Ordering::Relaxed);
                known.open = Some(Question { number, at: now, begun: None, reported: 0 });
                pulse.bell.notify_one();
            }
        }
        reports
    }

    /// No worker had anything to do.
    pub(super) fn all_slept(&self) -> bool {
        self.all_slept
    }

    /// After a pause that was meant.
    pub(super) fn rested(self) -> Self {
        Self { last: None, ..self }
    }

    /// Says so, unless something was said of the worker within the last minute.
    pub(super) fn say(
        &mut self,
        report: &LagReport,
        log: &Log,
        notices: &Notices,
        shown: impl Fn(Option<IpAddr>) -> String,
    ) {
        let known = &mut self.workers[report.worker];
        if known.said.is_some_and(|said| report.at.saturating_duration_since(said) < SILENCE) {
            return;
        }
        known.said = Some(report.at);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let Begun { step, client, place } = &report.begun;
        let client = client.map(|client| shown(Some(client)));
        let mut fields = vec![
            ("worker", report.worker.into()),
            ("late_ms", millis(report.late).into()),
            ("began_last", step.name().into()),
        ];
        fields.extend(place.as_ref().map(|(what, name)| (*what, (&**name).into())));
        fields.extend(client.as_ref().map(|client| ("client", client.into())));
        fields.extend(report.cpu.map(|cpu| ("cpu_ms", millis(cpu).into())));
        let (message, what) = if report.is_stuck {
            ("a worker's loop does not come round", "stuck")
        } else {
            ("a worker's loop was late", "late")
        };
        log.warn(message, &fields);
        notices.note(NoticeKind::Late, what, &fields);
    }
}

impl WorkerState {
    /// Looks at the open question.
    fn examine(
        &mut self,
        worker: usize,
        now: Instant,
        pulse: &Pulse,
        place: impl Fn(Doing) -> Option<Place>,
    ) -> Option<LagReport> {
        let question = self.open.as_mut()?;
        let is_stuck = pulse.answered.load(Ordering::Acquire) < question.number;
        let until = match is_stuck {
            true => now,
            false => pulse.begun + Duration::from_nanos(pulse.answered_at.load(Ordering::Relaxed)),
        };
        let late = until.saturating_duration_since(question.at);
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        if late > LATE && question.begun.is_none() {
            // At once: it may go on, and a snapshot that it followed be freed.
            let (step, client) = pulse.doing();
            question.begun = Some(Begun { step, client, place: place(step) });
        }
        if is_stuck && (late <= STUCK || question.reported > 0) {
            return None;
        }
        let (more, is_new) = (nanos.saturating_sub(question.reported), question.reported == 0);
        let cpu = if is_stuck {
            question.reported = nanos;
            None
        } else {
            let cpu = pulse.cpu.load(Ordering::Relaxed);
            let used = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu));
            Some(Duration::from_nanos(used))
        };
        // It was not late where it was not seen.
        let begun = question.begun.clone();
        if !is_stuck {
            self.open = None;
        }
        Some(LagReport { worker, late, more, is_new, is_stuck, cpu, begun: begun?, at: now })
    }
}
