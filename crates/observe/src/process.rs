//! The kernel's figures of this process: CPU time, memory, descriptors, start.
//!
//! Read when somebody asks, never on a worker. Each figure is optional: a hardened system may hide `/proc`,
//! and a missing figure is left out instead of told as zero.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// The figures of this process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessFigures {
    /// CPU time so far, user and system, of all threads.
    pub cpu: Option<Duration>,
    /// Resident memory, in bytes.
    pub resident_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// The most descriptors that may be open: the soft limit. Absent where there is none.
    pub max_fds: Option<u64>,
    /// When the process started, in Unix time, exact to a clock tick (10 ms).
    pub started: Option<Duration>,
}

impl ProcessFigures {
    /// Reads them from the kernel.
    #[must_use]
    pub fn read() -> Self {
        Self {
            cpu: cpu_time(),
            resident_bytes: resident_bytes(),
            open_fds: open_fds(),
            max_fds: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
            started: started(),
        }
    }
}

fn cpu_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// Resident memory, in bytes: the second figure of `statm`, in pages.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Since Linux 6.2 the size of the directory is the number of descriptors; before, it is zero and they are
/// counted, which takes a while when there are many.
fn open_fds() -> Option<u64> {
    match fs::metadata("/proc/self/fd").ok()?.size() {
        // The directory itself was open while it was read.
        0 => Some((fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1)),
        size => Some(size),
    }
}

/// Start time in ticks after boot, plus the time of boot.
fn started() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in parentheses and may hold spaces; starttime is field 22,
    // the twentieth after it (proc_pid_stat(5)).
    let ticks: u64 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot = system.lines().find_map(|line| line.strip_prefix("btime "))?;
    let per_second = rustix::param::clock_ticks_per_second();
    let after_boot = Duration::from_millis(ticks.saturating_mul(1000).checked_div(per_second)?);
    Some(Duration::from_secs(boot.trim().parse().ok()?) + after_boot)
}

#[cfg(test)]
mod tests {
    use super::ProcessFigures;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    #[test]
    fn the_figures_are_plausible() {
        let figures = ProcessFigures::read();
        assert!(figures.cpu.unwrap() < Duration::from_secs(3600));
        assert!((1 << 18..1 << 34).contains(&figures.resident_bytes.unwrap()));
        let open = figures.open_fds.unwrap();
        assert!(open >= 3 && figures.max_fds.is_none_or(|max| open <= max));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        // btime is cut to seconds and shifts with the clock, so allow some slack.
        assert!(now.abs_diff(figures.started.unwrap()) < Duration::from_secs(3600));
    }
}
