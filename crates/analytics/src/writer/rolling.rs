//! Upkeep by the one that writes: rolls up hours that are over, and removes what is older than its retention.

use std::time::{Duration, SystemTime};

use super::{LONGEST_WRITE, Writer, limit, micros};
use crate::error::Error;
use crate::rollup;
use crate::upkeep::{self, Upkeep};

/// Whether hours and days are rolled up that may still get requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Eager {
    Yes,
    No,
}

/// An hour is rolled up when so many commits have not touched it, so that logs that jump between hours do not
/// cause it again and again; or when there was none for so long.
const QUIET_COMMITS: u64 = 2;
const IDLE_US: i64 = 60_000_000;

/// A server ends statements of upkeep, which read whole hours, after this time.
const LONGEST_UPKEEP: Duration = Duration::from_secs(600);

impl Writer {
    /// Does upkeep in one small step: rolls up hours that are over, and removes what is older than its retention.
    /// Call it now and then, and at the end of an import until it returns [`Upkeep::Done`].
    ///
    /// # Errors
    /// The store refused; trying again later is harmless.
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
                upkeep::step(self.engine.as_mut(), &self.options, now_us, open_day)
            }
        };
        limit(self.engine.as_mut(), LONGEST_WRITE)?;
        let step = step?;
        self.look_for_sweeps()?;
        Ok(step)
    }

    /// Commits and does all upkeep: after an import.
    ///
    /// # Errors
    /// As [`Writer::add`].
    pub fn finish(&mut self, now: SystemTime) -> Result<(), Error> {
        self.commit()?;
        while self.upkeep_when(now, Eager::Yes)? == Upkeep::More {}
        Ok(())
    }

    /// Whether nothing has been committed for a while.
    const fn is_idle(&mut self, now_us: i64) -> bool {
        if self.idle.0 != self.commits || self.idle.1 > now_us {
            self.idle = (self.commits, now_us);
        }
        now_us - self.idle.1 >= IDLE_US
    }

    /// The first hour that is over, is not rolled up, and gets no more requests for now.
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
