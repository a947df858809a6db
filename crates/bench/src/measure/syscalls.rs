//! System calls of a tree of processes, counted by `strace -c` while it is attached.
//!
//! strace slows the traced program by a factor; only counts are taken from such a window, never times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::error::{Error, Result, read_text};
use crate::measure::tree::with_descendants;
use crate::process::{Launch, Process, find_program};

/// A running count.
#[derive(Debug)]
pub(crate) struct Tracer {
    process: Process,
    output: PathBuf,
}

impl Tracer {
    /// Attaches to the whole tree under `root` and returns when strace has it.
    ///
    /// # Errors
    /// When strace is missing or may not attach.
    pub(crate) async fn attach(root: u32, dir: &Path, cores: &[usize]) -> Result<Self> {
        let program = find_program("strace")
            .ok_or_else(|| Error::Missing("strace is not installed (package strace)".into()))?;
        let output = dir.join("strace.out");
        let log = dir.join("strace.log");
        let pids = with_descendants(root);
        let mut args: Vec<std::ffi::OsString> = vec!["-c".into(), "-f".into(), "-o".into(), (&output).into()];
        for pid in &pids {
            args.extend(["-p".into(), pid.to_string().into()]);
        }
        let launch = Launch {
            name: "strace".into(),
            program,
            args,
            env: Vec::new(),
            cores: cores.to_vec(),
            log: log.clone(),
            piped: false,
        };
        let mut process = Process::start(&launch)?;
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let attached = read_text(&log)?.matches(" attached").count();
            if attached >= pids.len() {
                return Ok(Self { process, output });
            }
            if !process.alive() || Instant::now() > deadline {
                return Err(process.failed("could not attach"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Detaches and returns how often each call was made.
    ///
    /// # Errors
    /// When strace leaves no summary.
    pub(crate) async fn finish(mut self) -> Result<BTreeMap<String, u64>> {
        self.process.signal(Signal::INT);
        let _ = tokio::time::timeout(Duration::from_secs(5), self.process.child.wait()).await;
        let calls = parse(&read_text(&self.output)?);
        if calls.is_empty() {
            return Err(self.process.failed("left no summary"));
        }
        Ok(calls)
    }
}

/// Parses the table of `strace -c`: calls by name, the totals left out.
fn parse(table: &str) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for line in table.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (Some(name), Some(count)) = (fields.last(), fields.get(3)) else { continue };
        if let (Ok(count), false) = (count.parse::<u64>(), *name == "total") {
            *calls.entry((*name).to_owned()).or_default() += count;
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_parsed_with_and_without_errors() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n \
            60.00    0.000600           1       400           write\n \
            40.00    0.000400           2       200        12 read\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    0.001000           1       600        12 total\n";
        let calls = parse(table);
        assert_eq!(calls.get("write"), Some(&400));
        assert_eq!(calls.get("read"), Some(&200));
        assert_eq!(calls.len(), 2);
    }
}
