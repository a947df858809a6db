//! Upkeep by the writer: rolls up past hours, and removes data past its retention.

use std::time::{Duration, SystemTime};

use super::{LONGEST_WRITE, Options, Writer, limit};
use crate::error::Error;
use crate::rollup;
use crate::time::micros;
use crate::upkeep::{self, Retention, Upkeep};

/// The treatment of hours and days that may still get requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Eager {
    Yes,
    No,
}

/// The commits without a touch after which an hour is rolled up, so that logs that jump between hours do not
/// cause it again and again; or the time without any commit, in microseconds.
const QUIET_COMMITS: u64 = 2;
const IDLE_US: i64 = 60_000_000;

/// The time limit that a server has for statements of upkeep, which read whole hours.
const LONGEST_UPKEEP: Duration = Duration::from_secs(600);

impl Writer {
    /// Does upkeep in one small step: rolls up past hours, and removes data past its retention. To be called
    /// now and then, and at the end of an import until it returns [`Upkeep::Done`].
    ///
    /// # Errors
    /// The store refused; a retry is harmless.
    pub fn upkeep(&mut self, now: SystemTime) -> Result<Upkeep, Error> {
        self.commit()?;
        self.upkeep_when(now, Eager::No)
    }

    pub(super) fn upkeep_when(&mut self, now: SystemTime, eager: Eager) -> Result<Upkeep, Error> {
        let now_us = micros(now);
        let is_idle = self.is_idle(now_us) || eager == Eager::Yes;
        limit(self.engine.as_mut(), LONGEST_UPKEEP)?;
        let step = match self.hour_to_roll(now_us, is_idle) {
            Some(hour) => self.roll(hour).map(|()| Upkeep::More),
            None => {
                let open_day = if is_idle { i64::MAX } else { self.newest_hour.div_euclid(24) };
                let Options { retention, rollup_retention, .. } = self.options;
                let retention = Retention { requests: retention, rollups: rollup_retention };
                upkeep::step(self.engine.as_mut(), retention, now_us, open_day)
            }
        };
        limit(self.engine.as_mut(), LONGEST_WRITE)?;
        let step = step?;
        self.look_for_sweeps()?;
        Ok(step)
    }

    /// Commits and does all upkeep, after an import.
    ///
    /// # Errors
    /// Like [`Writer::add`].
    pub fn finish(&mut self, now: SystemTime) -> Result<(), Error> {
        self.commit()?;
        while self.upkeep_when(now, Eager::Yes)? == Upkeep::More {}
        Ok(())
    }

    /// Returns `true` if nothing has been committed for a while.
    const fn is_idle(&mut self, now_us: i64) -> bool {
        if self.idle.0 != self.commits || self.idle.1 > now_us {
            self.idle = (self.commits, now_us);
        }
        now_us - self.idle.1 >= IDLE_US
    }

    /// The first past hour that is not rolled up and gets no more requests for now.
    fn hour_to_roll(&self, now_us: i64, is_idle: bool) -> Option<i64> {
        let over = self.pending.range(..now_us / rollup::HOUR_US);
        over.into_iter()
            .find(|(_, touched)| is_idle || **touched + QUIET_COMMITS <= self.commits)
            .map(|(hour, _)| *hour)
    }

    fn roll(&mut self, hour: i64) -> Result<(), Error> {
        self.engine.whole(|engine| rollup::roll_hour(engine, hour))?;
        self.pending.remove(&hour);
        Ok(())
    }
}
