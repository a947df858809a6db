//! Figures of this process from the kernel: CPU time, memory, descriptors, start time.
//!
//! Read on demand, never on a worker. Each figure is optional: hardened systems may hide `/proc`, and a
//! missing figure is left out instead of reported as zero.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// The figures of this process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessFigures {
    /// CPU time so far, user and system, of all threads.
    pub cpu: Option<Duration>,
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
    /// The number of open file descriptors.
    pub open_fds: Option<u64>,
    /// The soft limit of open descriptors; absent if unlimited.
    pub max_fds: Option<u64>,
    /// The start of the process in Unix time, exact to a clock tick (10 ms).
    pub started: Option<Duration>,
}

impl ProcessFigures {
    /// Reads the figures from `/proc`.
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

/// CPU time of the threads of this process, by their names; empty where the kernel does not tell it.
#[must_use]
pub fn thread_cpu_times() -> HashMap<String, Duration> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let time = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        // Nanoseconds on a CPU, and two other figures (sched-stats.rst of the kernel).
        let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let nanos = stat.split_ascii_whitespace().next()?.parse().ok()?;
        Some((name.trim_end().to_owned(), Duration::from_nanos(nanos)))
    };
    tasks.filter_map(time).collect()
}

fn cpu_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// Resident memory in bytes: the second field of `statm`, in pages.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Counts open descriptors. Since Linux 6.2 the size of the directory is their number; before, it is zero and
/// they are counted one by one.
fn open_fds() -> Option<u64> {
    match fs::metadata("/proc/self/fd").ok()?.size() {
        // Excludes the descriptor of the directory itself.
        0 => Some((fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1)),
        size => Some(size),
    }
}

/// The start time in ticks after boot, plus the time of boot.
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
    use super::{ProcessFigures, thread_cpu_times};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    #[test]
    fn threads_have_their_own_time() {
        let thread = std::thread::Builder::new().name("counts-alone".to_owned());
        let work = || {
            let mut sum = 0_u64;
            loop {
                (0..100_000_u64).for_each(|number| sum = std::hint::black_box(sum ^ number));
                if let Some(time) = thread_cpu_times().get("counts-alone").filter(|time| !time.is_zero()) {
                    break *time;
                }
            }
        };
        let time = thread.spawn(work).unwrap().join().unwrap();
        assert!(time < Duration::from_secs(600));
        assert!(!thread_cpu_times().contains_key("counts-alone"), "it has ended");
    }

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
