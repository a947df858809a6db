//! CPU time of processes and what they have started (proc(5), `stat`).

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// CPU time of a process and of all below it, ended children included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessUsage {
    /// In clock ticks.
    ticks: u64,
}

impl ProcessUsage {
    pub(super) fn of_tree(root: u32) -> Self {
        let rows = rows();
        let mut below: HashMap<u32, Vec<u32>> = HashMap::new();
        for (pid, row) in &rows {
            below.entry(row.parent).or_default().push(*pid);
        }
        let mut ticks = 0;
        let mut next = vec![root];
        while let Some(pid) = next.pop() {
            ticks += rows.get(&pid).map_or(0, |row| row.ticks);
            next.extend(below.remove(&pid).unwrap_or_default());
        }
        Self { ticks }
    }

    /// Of this process alone.
    pub(super) fn of_this() -> Self {
        let row = fs::read_to_string("/proc/self/stat").ok().and_then(|text| UsageRow::parse(&text));
        // Children that ended belong to what is measured.
        Self { ticks: row.map_or(0, |row| row.own) }
    }

    /// The time used since `earlier`.
    pub(super) fn since(self, earlier: Self) -> Duration {
        let ticks = self.ticks.saturating_sub(earlier.ticks);
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }
}

/// A line of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UsageRow {
    parent: u32,
    /// User and system time of the process.
    own: u64,
    /// The same with children that ended and were waited for.
    ticks: u64,
}

impl UsageRow {
    /// The name may hold spaces and parentheses, so fields count from the last `)`.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let own = number(11)? + number(12)?;
        Some(Self { parent: number(1)?.try_into().ok()?, own, ticks: own + number(13)? + number(14)? })
    }
}

fn rows() -> HashMap<u32, UsageRow> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let rows = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, UsageRow::parse(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed_whatever_the_name_is() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194560 0 0 0 0 11 5 3 1 20 0 1 0 100 0 0";
        assert_eq!(UsageRow::parse(line), Some(UsageRow { parent: 7, own: 16, ticks: 20 }));
        assert_eq!(UsageRow::parse("42 (a)"), None);
        assert_eq!(UsageRow::parse(""), None);
    }

    #[test]
    fn work_of_this_process_shows() {
        let (this, tree) = (ProcessUsage::of_this(), ProcessUsage::of_tree(std::process::id()));
        let begun = std::time::Instant::now();
        let mut sum = 0_u64;
        while ProcessUsage::of_this().since(this) < Duration::from_millis(30) {
            sum = std::hint::black_box(sum + 1);
            assert!(begun.elapsed() < Duration::from_secs(60), "{sum}");
        }
        assert!(ProcessUsage::of_tree(std::process::id()).since(tree) >= Duration::from_millis(20));
    }
}
