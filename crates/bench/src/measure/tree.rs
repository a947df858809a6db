//! The tree of processes under one root, read from `/proc`.
//!
//! Peers fork masters, workers and helpers; a figure that leaves one of them out would be a lie.

use std::collections::HashMap;

/// The root and everything below it that is alive now, the root first.
pub(crate) fn with_descendants(root: u32) -> Vec<u32> {
    let mut all = vec![root];
    all.extend(descendants(root));
    all
}

/// Everything below the root that is alive now, parents before children.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in processes() {
        if let Some(parent) = Stat::read(pid).map(|s| s.parent) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for &child in children.get(&parent).map(Vec::as_slice).unwrap_or_default() {
            found.push(child);
            next.push(child);
        }
    }
    found
}

fn processes() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The fields of `/proc/<pid>/stat` that matter here; times in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) parent: u32,
    pub(crate) user: u64,
    pub(crate) system: u64,
    /// Of children that ended and were waited for.
    pub(crate) children_user: u64,
    pub(crate) children_system: u64,
}

impl Stat {
    pub(crate) fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses proc(5) `stat`. The name may hold spaces and parentheses, so fields count from the last `)`.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            user: number(11)?,
            system: number(12)?,
            children_user: number(13)?,
            children_system: number(14)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_with_a_hostile_name_is_parsed() {
        let line = "42 (a b) c) (d) S 7 42 42 0 -1 4194304 1 2 3 4 11 12 13 14 20 0 1 0 5 6 7";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(stat, Stat { parent: 7, user: 11, system: 12, children_user: 13, children_system: 14 });
    }

    #[test]
    fn a_child_is_found_below_this_process() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(descendants(std::process::id()).contains(&child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
