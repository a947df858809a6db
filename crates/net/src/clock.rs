//! Clocks that are cheap enough to be read on every turn of a relay.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Maximum lag of [`coarse_ms`] behind the time, in milliseconds: the longest tick of a kernel.
pub const COARSE_MS: u64 = 10;

/// Milliseconds of a monotonic clock with the resolution of the kernel's tick (1 to 10 ms). Costs neither a
/// system call nor a read of the CPU's counter.
#[must_use]
pub fn coarse_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    // The monotonic clock starts at boot and is never negative.
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// The monotonic clock, read through the vDSO without a system call.
#[must_use]
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // Below a second, and never negative.
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// CPU time used by the calling thread. Costs a system call.
#[must_use]
pub fn thread_cpu() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    // Below a second, and never negative.
    let nanos = u32::try_from(used.tv_nsec).unwrap_or_default();
    Duration::new(used.tv_sec.unsigned_abs(), nanos)
}
