//! The cores that the process may use, and what they have of their own.

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
    free(&[core])
}

/// Lets the calling thread run on any of these cores. A thread begins with the cores of the one that started it.
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

/// How large the second-level cache of a core is, in bytes; `None` where the kernel does not say.
#[must_use]
pub fn second_level_cache() -> Option<usize> {
    const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";
    let read =
        |index: usize, what: &str| std::fs::read_to_string(format!("{CACHES}/index{index}/{what}")).ok();
    let second = (0..8).find(|&index| read(index, "level").is_some_and(|level| level.trim() == "2"))?;
    bytes(read(second, "size")?.trim())
}

/// The size of a cache as the kernel writes it: `512K`.
fn bytes(size: &str) -> Option<usize> {
    size.strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_tied_can_be_freed() {
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
    fn sizes_of_caches_are_read() {
        assert_eq!(bytes("512K"), Some(512 * 1024));
        assert_eq!(["", "K", "512", "1x2K", "18446744073709551615K"].map(bytes), [None; 5]);
    }
}
