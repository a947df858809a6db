//! The command `run`: from arguments to a report, interrupted or not.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{RunArgs, Transport};
use crate::campaign::{Campaign, Plan};
use crate::contestant::Contestant;
use crate::contestant::peers::{PEERS, another_build, peer};
use crate::error::{Error, Result, make_dir, read_text};
use crate::gate::{self, Gates, Strictness};
use crate::machine::{Cores, Machine};
use crate::network::Network;
use crate::process::usable_cores;
use crate::report::{Heading, Note, Summary, markdown};
use crate::scenario::{Breadth, Case, HEADLINES, Pace, select};

/// Runs and reports.
///
/// # Errors
/// Wrong arguments, nothing to measure, results that cannot be written, an interrupt.
pub(crate) async fn run(args: &RunArgs, network: Network) -> Result<()> {
    let gates = args.gate.map(|_| read_text(&args.gates).and_then(|text| Gates::parse(&text))).transpose()?;
    let (contestants, mut notes) = contestants(args)?;
    raise_descriptors();
    let breadth = args.breadth();
    let everyone = breadth != Breadth::Selection || !args.contestants.is_empty();
    if !everyone {
        notes.extend(contestants.iter().filter(|c| c.peer.aside).map(standing_aside));
    }
    let pace = Pace { seconds: args.seconds, breadth, cores: usable_cores().len() };
    let cases: Vec<_> = select(&args.scenarios, args.full)?.iter().flat_map(|s| s.cases(pace)).collect();
    let date = date();
    let dir = make_dir(&args.out.clone().unwrap_or_else(|| PathBuf::from("target/bench").join(&date)))?;
    prioritize(args.nice)?;
    let machine = Machine::here(network);
    warn(&machine);
    let run = Run { args, date, machine, contestants: &contestants, everyone };
    let summary = run.measure(cases.clone(), &dir, notes).await?;
    match gates.zip(args.gate) {
        Some((gates, strictness)) => run.hold(cases, &dir, &summary, &gates, strictness).await,
        None => Ok(()),
    }
}

/// What stays the same, however often cases are measured.
struct Run<'a> {
    args: &'a RunArgs,
    date: String,
    machine: Machine,
    contestants: &'a [Contestant],
    /// Whether those take part everywhere that no bound refers to.
    everyone: bool,
}

impl Run<'_> {
    /// Measures these cases, and writes and prints the report.
    async fn measure(&self, cases: Vec<Case>, dir: &Path, mut notes: Vec<Note>) -> Result<Summary> {
        let unix = self.args.transport == Transport::Unix;
        let plan = Plan {
            cases,
            contestants: self.contestants.to_vec(),
            rounds: self.args.rounds.map(usize::from),
            everyone: self.everyone,
            unix,
            dir: dir.to_owned(),
        };
        let mut campaign = Campaign::new(plan)?;
        let outcome = tokio::select! {
            outcome = campaign.run() => outcome,
            () = interrupt() => Err(Error::Interrupted),
        };
        notes.append(&mut campaign.notes);
        let heading = Heading {
            date: self.date.clone(),
            transport: if unix { "unix" } else { "tcp" },
            machine: self.machine.clone(),
            contestants: self.contestants,
        };
        let summary = Summary::build(heading, &campaign.cases, &campaign.samples, notes, outcome.is_err());
        summary.write(&campaign.samples, dir)?;
        for case in &summary.cases {
            println!("{}", markdown::section(case, &summary.reference));
        }
        eprintln!("report: {}", dir.join("report.html").display());
        outcome.map(|()| summary)
    }

    /// Holds the run against its bounds. What misses one is measured again, as often as was asked for: another
    /// program on the machine spoils a run, and not each of several.
    async fn hold(
        &self,
        cases: Vec<Case>,
        dir: &Path,
        summary: &Summary,
        gates: &Gates,
        strictness: Strictness,
    ) -> Result<()> {
        let mut verdicts = gates.judge(summary, strictness);
        for again in 2..=self.args.tries {
            let missed = gate::missed(&verdicts);
            if missed.is_empty() {
                break;
            }
            let names: Vec<&str> = missed.iter().map(String::as_str).collect();
            eprintln!("measured again, because a bound was missed: {}", names.join(", "));
            let cases = cases.iter().filter(|case| missed.contains(&case.name)).cloned().collect();
            let dir = make_dir(&dir.join(format!("again-{again}")))?;
            let summary = self.measure(cases, &dir, Vec::new()).await?;
            gate::judged_again(&mut verdicts, gates.judge(&summary, strictness));
        }
        gate::conclude(&verdicts)
    }
}

/// The latest run below `target/bench`.
///
/// # Errors
/// When there is none.
pub(crate) fn latest() -> Result<PathBuf> {
    let runs = std::fs::read_dir("target/bench").into_iter().flatten().flatten().map(|entry| entry.path());
    runs.filter(|dir| dir.join("summary.json").is_file())
        .max()
        .ok_or_else(|| Error::Usage("there is no run below target/bench; name one with --run".into()))
}

/// The contestants that were asked for and are installed; a note for each that is not.
fn contestants(args: &RunArgs) -> Result<(Vec<Contestant>, Vec<Note>)> {
    let wanted: Vec<_> = if args.contestants.is_empty() {
        PEERS.iter().collect()
    } else {
        let mut wanted = Vec::new();
        for name in &args.contestants {
            wanted.push(peer(name).ok_or_else(|| {
                let known: Vec<&str> = PEERS.iter().map(|p| p.name).collect();
                Error::Usage(format!("no contestant is called {name:?}; there are: {}", known.join(", ")))
            })?);
        }
        wanted
    };
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    for peer in wanted {
        let given = if peer.name == "offramp" { offramp(args.offramp.as_deref()) } else { None };
        match Contestant::find(peer, given.as_deref(), &args.next) {
            Ok(contestant) => found.push(contestant),
            Err(error) => {
                eprintln!("  skipped: {error}");
                notes.push(Note {
                    case: String::new(),
                    contestant: peer.name.into(),
                    text: error.to_string(),
                });
            }
        }
    }
    for build in &args.beside {
        if args.beside.iter().filter(|other| other.name == build.name).count() > 1 {
            return Err(Error::Usage(format!("--beside {}: the name is given twice", build.name)));
        }
        let peer = another_build(&build.name)?;
        found.push(Contestant::find(peer, Some(&build.program), &args.next)?);
    }
    if found.is_empty() {
        return Err(Error::Usage("no contestant is installed; `make bench-peers` installs them".into()));
    }
    Ok((found, notes))
}

/// Why a contestant is missing in most tables.
fn standing_aside(contestant: &Contestant) -> Note {
    let text = format!(
        "no bound refers to it, so that the selection measures it only in those of {} that it can do; --full, \
         --scenarios and --contestants measure it everywhere",
        HEADLINES.join(", ")
    );
    Note { case: String::new(), contestant: contestant.peer.name.into(), text }
}

/// The Offramp to measure: the given one, or the release build of this checkout.
pub(crate) fn offramp(given: Option<&Path>) -> Option<PathBuf> {
    let built = Path::new("target/release/offramp");
    given.map(Path::to_owned).or_else(|| built.is_file().then(|| built.to_owned()))
}

fn warn(machine: &Machine) {
    let usable = usable_cores();
    if let Some(caveat) = Cores::divide(&usable, 1).caveat {
        eprintln!("note: {} usable cores: {caveat}; compare CPU time per unit", usable.len());
    }
    if let Some(caveat) = machine.network.caveat() {
        eprintln!("note: {caveat}");
    }
    if machine.load_at_start > 0.5 {
        eprintln!("note: the load average is {:.1}: figures will be noisy", machine.load_at_start);
    }
}

/// Children inherit the priority.
fn prioritize(nice: i32) -> Result<()> {
    if nice == 0 {
        return Ok(());
    }
    setpriority_process(None, nice)
        .map_err(|e| Error::io(format!("setting the priority to {nice}"), e.into()))
}

/// Ten thousand connections need descriptors on both sides; where the limit stays lower, the case that
/// needs more says so itself.
fn raise_descriptors() {
    const WANTED: u64 = 50_000;
    let before = getrlimit(Resource::Nofile);
    let hard = before.maximum.unwrap_or(u64::MAX);
    let raised = Rlimit { current: Some(WANTED.max(hard)), maximum: Some(WANTED.max(hard)) };
    if setrlimit(Resource::Nofile, raised).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: Some(hard) });
    }
}

/// Completes at Ctrl-C or SIGTERM.
async fn interrupt() {
    let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
    }
}

/// `2026-11-21T21-30-00`, UTC: sorts, and is a file name.
fn date() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}-{:02}-{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// The civil date of a day since 1970-01-01, proleptic Gregorian, by counting from 1 March of year 0.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
    }
}
