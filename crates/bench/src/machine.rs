//! The machine that a run was made on, and what its number of cores makes of the figures.

use serde::{Deserialize, Serialize};

use crate::network::Network;
use crate::process::usable_cores;

/// What a reader must know of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// Load average over a minute when the run began: what else was going on.
    pub(crate) load_at_start: f64,
    #[serde(default)]
    pub(crate) network: Network,
}

impl Machine {
    pub(crate) fn here(network: Network) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|l| l.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = value(&read("/proc/meminfo"), "MemTotal")
            .and_then(|v| v.split(' ').next()?.parse::<u64>().ok())
            .unwrap_or_default();
        Self {
            cpu: value(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            cores: usable_cores().len(),
            memory_bytes: memory * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_at_start: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|v| v.parse().ok())
                .unwrap_or_default(),
            network,
        }
    }
}

/// Which cores a case uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) proxy: Vec<usize>,
    pub(crate) load: Vec<usize>,
    pub(crate) backend: Vec<usize>,
    /// What the reader must know about this division; empty when each has its own.
    pub(crate) caveat: Option<&'static str>,
}

impl Cores {
    /// Divides the usable cores: the first `workers` to the proxy; of the rest one to the backend and the
    /// others to the load, or the same one to both.
    pub(crate) fn divide(usable: &[usize], workers: usize) -> Self {
        let (proxy, rest) = usable.split_at(workers.min(usable.len()));
        match rest {
            [] => Self {
                proxy: proxy.to_vec(),
                load: usable.to_vec(),
                backend: usable.to_vec(),
                caveat: Some(
                    "load and backend share the proxy's cores: throughput and latency are not the proxy's",
                ),
            },
            [one] => Self {
                proxy: proxy.to_vec(),
                load: vec![*one],
                backend: vec![*one],
                caveat: Some("load and backend share one core"),
            },
            [backend, load @ ..] => {
                Self { proxy: proxy.to_vec(), load: load.to_vec(), backend: vec![*backend], caveat: None }
            }
        }
    }

    /// The same with one core for both load and backend, however many there are.
    pub(crate) fn together(self) -> Self {
        Self { load: self.backend.clone(), ..self }
    }

    /// How many cores the load and the backend have together.
    pub(crate) fn outside(&self) -> usize {
        let mut all = [self.load.as_slice(), &self.backend].concat();
        all.sort_unstable();
        all.dedup();
        all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_divided_as_far_as_they_go() {
        let four = Cores::divide(&[0, 1, 2, 3], 1);
        assert_eq!((four.proxy, four.backend, four.load), (vec![0], vec![1], vec![2, 3]));
        let two = Cores::divide(&[0, 1], 1);
        assert_eq!((two.outside(), two.proxy, two.load), (1, vec![0], vec![1]));
        let shared = Cores::divide(&[0, 1, 2, 3], 1).together();
        assert_eq!((shared.outside(), shared.proxy, shared.load), (1, vec![0], shared.backend));
        assert!(Cores::divide(&[0, 1], 2).caveat.is_some());
        assert_eq!(Cores::divide(&[5], 1).load, vec![5]);
    }
}
