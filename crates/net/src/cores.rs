//! The cores that the process may use.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this process may run on (`taskset`, cgroup cpusets), at least one.
#[must_use]
pub fn usable() -> Vec<usize> {
    let cores: Vec<_> = sched_getaffinity(None)
        .map(|set| (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
        .unwrap_or_default();
    if cores.is_empty() { vec![0] } else { cores }
}

/// Ties the calling thread to one core.
///
/// # Errors
/// What the kernel says, such as a core that went offline; the thread then stays free.
pub fn pin(core: usize) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}
