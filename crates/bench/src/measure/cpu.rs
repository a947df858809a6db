//! CPU time of a tree of processes.
//!
//! The sum comes from each process's CPU clock, which counts nanoseconds and threads that have ended; the
//! split into user and system time comes from `/proc/<pid>/stat`, which counts clock ticks. Time of
//! children that ended between two readings is taken from their parent's account.

use nix::time::ClockId;
use nix::unistd::Pid;

use crate::measure::tree::{Stat, with_descendants};

/// CPU time since the processes began, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuTime {
    /// All of it, to the nanosecond.
    pub(crate) total: f64,
    /// The user part, to the clock tick.
    pub(crate) user: f64,
    /// The system part, to the clock tick.
    pub(crate) system: f64,
}

impl CpuTime {
    /// The time used so far by the process `root` and all below it.
    pub(crate) fn of_tree(root: u32) -> Self {
        with_descendants(root).into_iter().fold(Self::default(), |sum, pid| sum.plus(Self::of(pid)))
    }

    /// The seconds used by children of this process that have ended and been waited for.
    pub(crate) fn of_ended_children() -> f64 {
        Stat::read(std::process::id()).map_or(0.0, |s| ticks(s.children_user + s.children_system))
    }

    /// The time used since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            total: (self.total - earlier.total).max(0.0),
            user: (self.user - earlier.user).max(0.0),
            system: (self.system - earlier.system).max(0.0),
        }
    }

    /// The user part of `total`, in seconds, taken from the split in ticks.
    pub(crate) fn user_share(self) -> f64 {
        let split = self.user + self.system;
        if split > 0.0 { self.user / split } else { 0.0 }
    }

    /// The sum of two.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            total: self.total + other.total,
            user: self.user + other.user,
            system: self.system + other.system,
        }
    }

    fn of(pid: u32) -> Self {
        let Some(stat) = Stat::read(pid) else { return Self::default() };
        let children = ticks(stat.children_user + stat.children_system);
        let own = clock(pid).unwrap_or_else(|| ticks(stat.user + stat.system));
        Self {
            total: own + children,
            user: ticks(stat.user + stat.children_user),
            system: ticks(stat.system + stat.children_system),
        }
    }
}

/// The process's CPU clock in seconds: all its threads, those that ended included.
fn clock(pid: u32) -> Option<f64> {
    let pid = Pid::from_raw(pid.try_into().ok()?);
    let now = ClockId::pid_cpu_clock_id(pid).ok()?.now().ok()?;
    let seconds = now.tv_sec() as f64 + now.tv_nsec() as f64 / 1e9;
    Some(seconds)
}

/// Clock ticks in seconds.
fn ticks(count: u64) -> f64 {
    count as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_this_process_shows() {
        let before = CpuTime::of_tree(std::process::id());
        let mut sum = 0u64;
        while CpuTime::of(std::process::id()).total < before.total + 0.03 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        let used = CpuTime::of_tree(std::process::id()).since(before);
        assert!(used.total >= 0.03, "{used:?}");
    }

    #[test]
    fn time_of_an_ended_child_is_kept() {
        let before = CpuTime::of_tree(std::process::id());
        let done = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"])
            .status()
            .unwrap();
        assert!(done.success());
        let used = CpuTime::of_tree(std::process::id()).since(before);
        assert!(used.total > 0.01, "{used:?}");
    }
}
