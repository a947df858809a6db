//! CPU affinity of the process, and the caches of its cores.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Cores that this process may run on (`taskset`, cgroup cpusets), at least one.
#[must_use]
pub fn usable() -> Vec<usize> {
    let cores: Vec<_> = sched_getaffinity(None)
        .map(|set| (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
        .unwrap_or_default();
    if cores.is_empty() { vec![0] } else { cores }
}

/// Pins the calling thread to one core.
///
/// # Errors
/// Errors of sched_setaffinity(2), such as a core that is offline; the affinity is unchanged then.
pub fn pin(core: usize) -> std::io::Result<()> {
    free(&[core])
}

/// Lets the calling thread run on any of these cores. A new thread inherits the affinity of its creator.
///
/// # Errors
/// As [`pin`].
pub fn free(cores: &[usize]) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Size of a core's second-level cache in bytes; `None` if the kernel does not report it.
#[must_use]
pub fn second_level_cache() -> Option<usize> {
    const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";
    let read =
        |index: usize, what: &str| std::fs::read_to_string(format!("{CACHES}/index{index}/{what}")).ok();
    let second = (0..8).find(|&index| read(index, "level").is_some_and(|level| level.trim() == "2"))?;
    bytes(read(second, "size")?.trim())
}

/// Parses a cache size as the kernel writes it: `512K`.
fn bytes(size: &str) -> Option<usize> {
    size.strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_can_be_freed() {
        let all = usable();
        let test = move || {
            pin(all[0]).unwrap();
            assert_eq!(usable(), [all[0]]);
            free(&all).unwrap();
            assert_eq!(usable(), all);
        };
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn cache_sizes_are_parsed() {
        assert_eq!(bytes("512K"), Some(512 * 1024));
        assert_eq!(["", "K", "512", "1x2K", "18446744073709551615K"].map(bytes), [None; 5]);
    }
}
