//! Memory of a tree of processes.
//!
//! Two figures: resident (what `top` shows, pages shared by fork counted in each process) and
//! proportional (each shared page counted once over the tree). Memory that the kernel holds for sockets
//! belongs to neither, and is the same for every contestant.

use crate::error::{Error, Result};
use crate::measure::tree::with_descendants;

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Sum of the resident sizes.
    pub(crate) resident: u64,
    /// Sum of the proportional sizes.
    pub(crate) proportional: u64,
}

impl Memory {
    /// The memory now held by the process `root` and all below it.
    ///
    /// # Errors
    /// When the kernel does not show it, which it does to the owner of the processes and to root.
    pub(crate) fn of_tree(root: u32) -> Result<Self> {
        let mut sum = Self::default();
        for pid in with_descendants(root) {
            // One that ended since it was listed holds nothing.
            let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else { continue };
            let one = Self::parse(&text);
            sum.resident += one.resident;
            sum.proportional += one.proportional;
        }
        if sum.resident == 0 {
            return Err(Error::Measure(format!("the memory of process {root} cannot be read")));
        }
        Ok(sum)
    }

    fn parse(rollup: &str) -> Self {
        let bytes = |key: &str| {
            rollup
                .lines()
                .find_map(|line| {
                    line.strip_prefix(key)?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
                })
                .map_or(0, |kilobytes| kilobytes * 1024)
        };
        Self { resident: bytes("Rss:"), proportional: bytes("Pss:") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollup_is_parsed() {
        let text =
            "55d0-7ffd ---p 00000000 00:00 0 [rollup]\nRss:    1024 kB\nPss:     512 kB\nPss_Dirty: 9 kB\n";
        assert_eq!(Memory::parse(text), Memory { resident: 1 << 20, proportional: 1 << 19 });
    }

    #[test]
    fn this_process_has_some() {
        let own = Memory::of_tree(std::process::id()).unwrap();
        assert!(own.resident >= own.proportional && own.proportional > 0, "{own:?}");
    }
}
