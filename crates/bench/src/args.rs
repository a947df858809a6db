//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::gate::Strictness;
use crate::network;
use crate::scenario::Breadth;

/// Measures Offramp beside nginx, HAProxy, hitch, stunnel, Caddy and Sōzu on this machine.
///
/// Every program is pinned: the proxy to the first core, load and backend to the others. Contestants take
/// turns, round by round. Reported are CPU time per unit of work of the proxy's whole process tree,
/// throughput, latency, memory and system calls, as medians with their spread, and the ratio to Offramp
/// within the same rounds.
#[derive(Debug, Parser)]
#[command(name = "offramp-bench", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run scenarios and report.
    Run(RunArgs),
    /// Show two runs side by side.
    Compare {
        /// The directory of the first run.
        a: PathBuf,
        /// The directory of the second run.
        b: PathBuf,
    },
    /// Hold a run against bounds; exit 1 naming each miss.
    Gate {
        /// The directory of the run [default: the latest below target/bench].
        #[arg(long, value_name = "DIR")]
        run: Option<PathBuf>,
        /// The bounds.
        #[arg(long, value_name = "FILE", default_value = "bench/gates.toml")]
        gates: PathBuf,
        /// Which of the bounds.
        #[arg(long, value_enum, default_value_t = Strictness::Strict)]
        bounds: Strictness,
    },
    /// List scenarios and contestants, and what is installed.
    List,
    /// Prepares the network namespace that it was started in, and becomes a program; started by `run`.
    #[command(hide = true)]
    Enter {
        /// The congestion control to set.
        #[arg(long)]
        congestion: String,
        /// Settings of the machine, as FILE=VALUE below /proc/sys/net.
        #[arg(long)]
        keep: Vec<String>,
        /// The program and its arguments; without them, the preparation is only tried.
        #[arg(last = true)]
        program: Vec<OsString>,
    },
    /// The helper that plays the application; started by `run`.
    #[command(hide = true)]
    Backend,
    /// The helper that plays the clients; started by `run`.
    #[command(hide = true)]
    Load,
}

/// Where `make bench-peers` puts the next Debian.
pub(crate) const NEXT: &str = "target/next-debian";

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Scenarios, comma separated; default: a selection of less than ten minutes.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) scenarios: Vec<String>,
    /// Contestants, comma separated; default: all that are installed, stunnel and Caddy in few cases of the
    /// selection.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) contestants: Vec<String>,
    /// Every scenario in every variant.
    #[arg(long)]
    pub(crate) full: bool,
    /// Rounds per case [default: 5, and 3 for memory and system calls, which hardly vary].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: Option<u16>,
    /// Seconds per window; whole ones for HTTP, and a third for system calls.
    #[arg(long, default_value_t = 1.2, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// How the proxies reach the application.
    #[arg(long, value_enum, default_value_t = Transport::Tcp)]
    pub(crate) transport: Transport,
    /// TCP congestion control, in a network namespace of the run's own where the machine has another (takes
    /// root); `system` leaves the machine's network as it is [default: cubic, or the machine's where it cannot
    /// be had].
    #[arg(long, value_name = "NAME", value_parser = network::name)]
    pub(crate) congestion: Option<String>,
    /// The machine's own congestion control, which the harness tells itself inside a namespace.
    #[arg(long, hide = true)]
    pub(crate) machine_congestion: Option<String>,
    /// The Offramp to measure [default: target/release/offramp, else the one in PATH].
    #[arg(long, value_name = "FILE")]
    pub(crate) offramp: Option<PathBuf>,
    /// Another build of Offramp, measured beside the first in the same rounds under this name; may be repeated.
    #[arg(long, value_name = "NAME=FILE", value_parser = named_build)]
    pub(crate) beside: Vec<NamedBuild>,
    /// The folder with the next Debian, whose programs run by chroot (takes root); `scripts/next-debian` makes one.
    #[arg(long, value_name = "DIR", default_value = NEXT)]
    pub(crate) next: PathBuf,
    /// Hold the result against these bounds; exit 1 naming each miss.
    #[arg(long, value_enum, value_name = "BOUNDS")]
    pub(crate) gate: Option<Strictness>,
    /// The file of bounds.
    #[arg(long, value_name = "FILE", default_value = "bench/gates.toml")]
    pub(crate) gates: PathBuf,
    /// How many times a case is measured until it holds its bounds. One that misses them every time is a miss; one
    /// that missed them while the machine did something else is not.
    #[arg(long, default_value_t = 1, requires = "gate", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(crate) tries: u8,
    /// Priority of everything that is started, as for nice(1); below 0 keeps other work of the machine out
    /// of the figures.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i32).range(-20..=19), allow_negative_numbers = true)]
    pub(crate) nice: i32,
    /// Where results go [default: target/bench/DATE].
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    Tcp,
    Unix,
}

impl RunArgs {
    /// How much is asked for.
    pub(crate) fn breadth(&self) -> Breadth {
        match (self.full, self.scenarios.is_empty()) {
            (true, _) => Breadth::Full,
            (false, true) => Breadth::Selection,
            (false, false) => Breadth::Named,
        }
    }
}

/// A build of Offramp with its name in tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedBuild {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
}

/// The name becomes that of a folder.
fn named_build(text: &str) -> Result<NamedBuild, String> {
    let (name, program) = text.split_once('=').ok_or("it has the form NAME=FILE")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(format!("{name:?} is no name: letters, digits and `-`"));
    }
    Ok(NamedBuild { name: name.to_owned(), program: program.into() })
}

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if (0.05..=600.0).contains(&value) { Ok(value) } else { Err("between 0.05 and 600 seconds".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_has_a_name_and_a_file() {
        let build = named_build("static=target/a=b").unwrap();
        assert_eq!((build.name.as_str(), build.program), ("static", PathBuf::from("target/a=b")));
        for wrong in ["target/offramp", "=target/offramp", "../up=target/offramp"] {
            assert!(named_build(wrong).is_err(), "{wrong}");
        }
    }
}
