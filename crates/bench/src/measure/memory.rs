//! Memory of a tree of processes.
//!
//! Figures: resident (what `top` shows, pages shared by fork counted in each process),
//! proportional (each shared page counted once over the tree) and two parts of the proportional one:
//! anonymous (heap, stacks and changed data) and what files back (pages of code). What is in neither is
//! shared memory. Memory that the kernel holds for sockets belongs to none, and is the same for every contestant.

use crate::error::{Error, Result};
use crate::measure::tree::with_descendants;

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Sum of the resident sizes.
    pub(crate) resident: u64,
    /// Sum of the proportional sizes.
    pub(crate) proportional: u64,
    /// Sum of the proportional sizes of what no file backs (`Pss_Anon`, Linux 5.9); 0 on older kernels.
    pub(crate) anonymous: u64,
    /// Sum of the proportional sizes of pages of files (`Pss_File`, Linux 5.9); 0 on older kernels.
    pub(crate) of_files: u64,
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
            sum.anonymous += one.anonymous;
            sum.of_files += one.of_files;
        }
        if sum.resident == 0 {
            return Err(Error::Measure(format!("the memory of process {root} cannot be read")));
        }
        Ok(sum)
    }

    /// Heap, stacks, changed data and shared memory: what a connection can hold. Code that the first of many connections runs
    /// is mapped 64 KiB at a time, and is no cost of each.
    pub(crate) fn without_files(self) -> u64 {
        self.proportional.saturating_sub(self.of_files)
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
        Self {
            resident: bytes("Rss:"),
            proportional: bytes("Pss:"),
            anonymous: bytes("Pss_Anon:"),
            of_files: bytes("Pss_File:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollup_is_parsed() {
        let text = "55d0-7ffd ---p 00000000 00:00 0 [rollup]\nRss:    1024 kB\nPss:     512 kB\n\
            Pss_Dirty: 9 kB\nPss_Anon: 256 kB\nPss_File: 128 kB\nPss_Shmem: 128 kB\nAnonymous: 300 kB\n";
        let expected =
            Memory { resident: 1 << 20, proportional: 1 << 19, anonymous: 1 << 18, of_files: 1 << 17 };
        assert_eq!(Memory::parse(text), expected);
        assert_eq!(expected.without_files(), 384 << 10);
    }

    #[test]
    fn this_process_has_some() {
        let own = Memory::of_tree(std::process::id()).unwrap();
        assert!(own.resident >= own.proportional && own.proportional > own.anonymous, "{own:?}");
    }
}
