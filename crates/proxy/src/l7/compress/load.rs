//! How busy a worker is, and what that means for the level.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

/// The least time between two looks at it.
const LOOK: Duration = Duration::from_millis(250);

/// The share of the time that the loop of a worker works, measured when it is asked for.
#[derive(Default)]
pub(super) struct Load {
    looked: Cell<Option<(Instant, Duration)>>,
    share: Cell<u32>,
}

impl Load {
    /// In percent, of the last quarter of a second or of the time since it was last asked.
    pub(super) fn share(&self) -> u32 {
        let now = Instant::now();
        let known = self.looked.get();
        if known.is_some_and(|(looked, _)| now - looked < LOOK) {
            return self.share.get();
        }
        let busy = Handle::current().metrics().worker_total_busy_duration(0);
        self.looked.set(Some((now, busy)));
        if let Some((looked, before)) = known {
            let percent = busy.saturating_sub(before).as_micros() * 100 / (now - looked).as_micros().max(1);
            self.share.set(u32::try_from(percent).unwrap_or(u32::MAX).min(100));
        }
        self.share.get()
    }
}

/// The level of a response that begins while the worker is so busy, in percent.
pub(super) fn eased(level: u8, share: u32) -> u8 {
    match share {
        0..75 => level,
        75..90 => level.min(2),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::eased;

    #[test]
    fn the_level_falls_when_the_worker_is_busy() {
        for (level, share, expected) in
            [(6, 0, 6), (6, 74, 6), (6, 75, 2), (1, 80, 1), (9, 89, 2), (9, 90, 1), (5, 100, 1)]
        {
            assert_eq!(eased(level, share), expected, "{level} at {share} %");
        }
    }
}
