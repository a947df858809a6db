//! Holding a run against bounds that are written down in `bench/gates.toml`.
//!
//! A gate whose case was not part of the run is left out and said so; one whose case ran without Offramp
//! finishing it is missed.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::metrics::{self, Better};
use crate::report::markdown::number;
use crate::report::{OFFRAMP, Summary};

/// The file of gates.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gates {
    gate: Vec<Gate>,
}

/// One bound.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gate {
    /// A case, as the report names it.
    case: String,
    /// A figure, as the raw data names it.
    metric: String,
    /// The value is Offramp's over the best of these peers, pair by pair; empty: Offramp's own value.
    #[serde(default)]
    peers: Vec<String>,
    /// The value is this case's over that one's, both Offramp's.
    over: Option<String>,
    /// The bound: at most, or at least where more is better.
    strict: f64,
    /// The bound for short runs on busy machines; absent: not held there.
    generous: Option<f64>,
    /// Not held on machines with fewer cores.
    #[serde(default)]
    cores: usize,
}

/// How strictly to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Strictness {
    Strict,
    Generous,
}

/// What became of one gate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Held {
        name: String,
        value: String,
        bound: String,
    },
    Missed {
        name: String,
        value: String,
        bound: String,
        /// The cases that have to be measured to judge it again.
        cases: Vec<String>,
    },
    /// With the reason.
    LeftOut {
        name: String,
        why: String,
    },
}

impl Verdict {
    fn name(&self) -> &str {
        match self {
            Self::Held { name, .. } | Self::Missed { name, .. } | Self::LeftOut { name, .. } => name,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { name, value, bound } => write!(f, "held     {name}: {value} (bound {bound})"),
            Self::Missed { name, value, bound, .. } => write!(f, "MISSED   {name}: {value} (bound {bound})"),
            Self::LeftOut { name, why } => write!(f, "left out {name}: {why}"),
        }
    }
}

impl Gates {
    /// Parses the file's text.
    ///
    /// # Errors
    /// When it is not TOML of the right form, or names an unknown figure.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let gates: Self = toml::from_str(text).map_err(|e| Error::Usage(format!("gates: {e}")))?;
        for gate in &gates.gate {
            if metrics::better(&gate.metric) == Better::Neutral {
                let case = &gate.case;
                return Err(Error::Usage(format!("gates: {case}: no bound can be set on {:?}", gate.metric)));
            }
        }
        Ok(gates)
    }

    /// Judges a run.
    pub(crate) fn judge(&self, run: &Summary, strictness: Strictness) -> Vec<Verdict> {
        self.gate.iter().filter_map(|gate| gate.judge(run, strictness)).collect()
    }
}

/// The names of the cases that have to be measured to judge again what was missed.
pub(crate) fn missed(verdicts: &[Verdict]) -> BTreeSet<String> {
    let cases = |verdict: &Verdict| match verdict {
        Verdict::Missed { cases, .. } => cases.clone(),
        Verdict::Held { .. } | Verdict::LeftOut { .. } => Vec::new(),
    };
    verdicts.iter().flat_map(cases).collect()
}

/// Takes what another run of the missed cases says in the place of the misses.
pub(crate) fn judged_again(verdicts: &mut [Verdict], again: Vec<Verdict>) {
    for other in again {
        let same = |verdict: &&mut Verdict| {
            matches!(verdict, Verdict::Missed { .. }) && verdict.name() == other.name()
        };
        // What this run had no part of was not judged by it.
        if !matches!(other, Verdict::LeftOut { .. })
            && let Some(verdict) = verdicts.iter_mut().find(same)
        {
            *verdict = other;
        }
    }
}

/// Prints the verdicts.
///
/// # Errors
/// `Gate` when at least one was missed.
pub(crate) fn conclude(verdicts: &[Verdict]) -> Result<()> {
    for verdict in verdicts {
        println!("{verdict}");
    }
    match verdicts.iter().filter(|v| matches!(v, Verdict::Missed { .. })).count() {
        0 => Ok(()),
        misses => Err(Error::Gate(misses)),
    }
}

impl Gate {
    /// None where this strictness has no bound.
    fn judge(&self, run: &Summary, strictness: Strictness) -> Option<Verdict> {
        let bound = match strictness {
            Strictness::Strict => self.strict,
            Strictness::Generous => self.generous?,
        };
        let name = self.name();
        if run.machine.cores < self.cores {
            let why = format!("needs {} cores, the machine has {}", self.cores, run.machine.cores);
            return Some(Verdict::LeftOut { name, why });
        }
        if !run.cases.iter().any(|c| c.info.name == self.case) {
            return Some(Verdict::LeftOut { name, why: "not part of this run".into() });
        }
        let (value, bound_text) = match self.value(run) {
            Ok(value) => (value, self.show(bound)),
            Err(Absent::Peers) => {
                return Some(Verdict::LeftOut { name, why: "none of the peers was measured".into() });
            }
            Err(Absent::Ours) => {
                let value = "offramp has no figure".into();
                return Some(Verdict::Missed { name, value, bound: self.show(bound), cases: self.cases() });
            }
        };
        let held = match metrics::better(&self.metric) {
            Better::Higher => value >= bound,
            Better::Lower | Better::Neutral => value <= bound,
        };
        let value = self.show(value);
        Some(if held {
            Verdict::Held { name, value, bound: bound_text }
        } else {
            Verdict::Missed { name, value, bound: bound_text, cases: self.cases() }
        })
    }

    fn cases(&self) -> Vec<String> {
        std::iter::once(&self.case).chain(&self.over).cloned().collect()
    }

    fn name(&self) -> String {
        let what = format!("{} {}", self.case, self.metric);
        match &self.over {
            Some(other) => format!("{what} over {other}"),
            None if self.peers.is_empty() => what,
            None => format!("{what} over the best of {}", self.peers.join(", ")),
        }
    }

    fn show(&self, value: f64) -> String {
        if self.peers.is_empty() && self.over.is_none() {
            number(&self.metric, value)
        } else {
            format!("{value:.2}")
        }
    }

    fn value(&self, run: &Summary) -> Result<f64, Absent> {
        let own = |case: &str| {
            let row = run.row(case, OFFRAMP)?;
            Some(row.metrics.get(&self.metric)?.median)
        };
        let ours = own(&self.case).ok_or(Absent::Ours)?;
        if let Some(other) = &self.over {
            return Ok(ours / own(other).ok_or(Absent::Ours)?);
        }
        if self.peers.is_empty() {
            return Ok(ours);
        }
        if run.reference != OFFRAMP {
            return Err(Absent::Ours);
        }
        let ratios =
            self.peers.iter().filter_map(|peer| run.row(&self.case, peer)?.ratios.get(&self.metric).copied());
        // The best peer is the one that leaves Offramp looking worst.
        match metrics::better(&self.metric) {
            Better::Higher => ratios.reduce(f64::min),
            Better::Lower | Better::Neutral => ratios.reduce(f64::max),
        }
        .ok_or(Absent::Peers)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Absent {
    Ours,
    Peers,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::peers::peer;
    use crate::machine::Machine;
    use crate::report::raw::Sample;
    use crate::report::{CaseInfo, Heading};
    use crate::scenario::{Breadth, HEADLINES, Pace, SCENARIOS};

    fn run(figures: &[(&str, &str, &str, f64)]) -> Summary {
        let mut cases: Vec<CaseInfo> = Vec::new();
        let mut samples = Vec::new();
        for &(case, contestant, metric, value) in figures {
            if cases.iter().all(|c| c.name != case) {
                let text = String::new;
                let info = CaseInfo {
                    scenario: text(),
                    what: text(),
                    unit: text(),
                    figure: metric.into(),
                    reference: None,
                    name: case.into(),
                };
                cases.push(info);
            }
            samples.push(Sample {
                scenario: String::new(),
                case: case.into(),
                contestant: contestant.into(),
                round: 0,
                metric: metric.into(),
                value,
            });
        }
        let machine = Machine { cores: 2, ..Machine::default() };
        let heading = Heading { date: String::new(), transport: "tcp", machine, contestants: &[] };
        Summary::build(heading, &cases, &samples, Vec::new(), false)
    }

    fn judge(gates: &str, run: &Summary) -> Vec<Verdict> {
        Gates::parse(gates).unwrap().judge(run, Strictness::Strict)
    }

    #[test]
    fn the_best_peer_is_the_one_that_counts() {
        let run = run(&[
            ("relay", "offramp", "cpu_us", 8.0),
            ("relay", "nginx", "cpu_us", 20.0),
            ("relay", "hitch", "cpu_us", 10.0),
        ]);
        let gate = |bound: f64| {
            format!("[[gate]]\ncase='relay'\nmetric='cpu_us'\npeers=['nginx','hitch']\nstrict={bound:?}")
        };
        assert!(matches!(judge(&gate(0.8), &run)[0], Verdict::Held { .. }));
        assert!(matches!(judge(&gate(0.79), &run)[0], Verdict::Missed { .. }));
    }

    #[test]
    fn a_gate_against_the_next_debian_is_judged_where_one_of_its_peers_took_part() {
        let gates = Gates::parse(include_str!("../../../bench/gates.toml")).unwrap();
        let verdict = |figures: &[(&str, &str, &str, f64)]| {
            let verdicts = gates.judge(&run(figures), Strictness::Strict);
            verdicts
                .into_iter()
                .find(|v| v.to_string().contains("handshake-full cpu_us over the best of nginx-next"))
        };
        let (ours, todays) =
            (("handshake-full", "offramp", "cpu_us", 10.0), ("handshake-full", "nginx", "cpu_us", 11.0));
        let next = |cpu| ("handshake-full", "hitch-next", "cpu_us", cpu);
        assert!(matches!(verdict(&[ours, todays]), Some(Verdict::LeftOut { .. })));
        assert!(matches!(verdict(&[ours, todays, next(40.0)]), Some(Verdict::Held { .. })));
        assert!(matches!(verdict(&[ours, todays, next(15.0)]), Some(Verdict::Missed { .. })));
    }

    #[test]
    fn what_was_not_run_is_left_out_and_what_failed_is_missed() {
        let run = run(&[("relay", "nginx", "cpu_us", 20.0)]);
        let gates = "[[gate]]\ncase='idle'\nmetric='connection_bytes'\nstrict=1\n\
            [[gate]]\ncase='relay'\nmetric='cpu_us'\nstrict=1\n\
            [[gate]]\ncase='relay'\nmetric='per_second'\nover='other'\ncores=4\nstrict=1.8";
        let verdicts = judge(gates, &run);
        assert!(matches!(verdicts[0], Verdict::LeftOut { .. }));
        assert!(matches!(verdicts[1], Verdict::Missed { .. }));
        assert!(matches!(verdicts[2], Verdict::LeftOut { .. }));
    }

    #[test]
    fn what_holds_when_it_is_measured_again_is_no_miss() {
        let gates = "[[gate]]\ncase='a'\nmetric='cpu_us'\nstrict=2\n\
            [[gate]]\ncase='b'\nmetric='cpu_us'\nover='c'\nstrict=2\n\
            [[gate]]\ncase='d'\nmetric='cpu_us'\nstrict=2";
        let figure = |case, value| (case, "offramp", "cpu_us", value);
        let first = [figure("a", 3.0), figure("b", 9.0), figure("c", 1.0), figure("d", 1.0)];
        let mut verdicts = judge(gates, &run(&first));
        let names: Vec<String> = missed(&verdicts).into_iter().collect();
        assert_eq!(names, ["a", "b", "c"]);
        // One holds now, the other is missed again; what held and was not measured again still holds.
        let second = [figure("a", 2.0), figure("b", 8.0), figure("c", 1.0)];
        judged_again(&mut verdicts, judge(gates, &run(&second)));
        let names: Vec<String> = missed(&verdicts).into_iter().collect();
        assert_eq!(names, ["b", "c"]);
        assert!(conclude(&verdicts).is_err());
        assert!(matches!(&verdicts[2], Verdict::Held { .. }));
        // A third time, b is not measured, because it failed: it is missed still.
        judged_again(&mut verdicts, judge(gates, &run(&[figure("a", 9.0)])));
        assert_eq!(missed(&verdicts).len(), 2);
        judged_again(&mut verdicts, judge(gates, &run(&second[1..])));
        assert!(conclude(&verdicts).is_err());
    }

    #[test]
    fn where_more_is_better_the_bound_is_the_least() {
        let run = run(&[("s/1", "offramp", "per_second", 10.0), ("s/2", "offramp", "per_second", 19.0)]);
        let gate = "[[gate]]\ncase='s/2'\nmetric='per_second'\nover='s/1'\nstrict=1.8";
        assert!(matches!(judge(gate, &run)[0], Verdict::Held { .. }));
    }

    #[test]
    fn typing_errors_are_refused() {
        assert!(Gates::parse("[[gate]]\ncase='a'\nmetric='cpu_us'\nstrickt=1").is_err());
        assert!(Gates::parse("[[gate]]\ncase='a'\nmetric='cpu'\nstrict=1").is_err());
    }

    /// Whether a case is asked for by its scenario's name, and not part of the selection.
    fn is_named(case: &str) -> bool {
        case.starts_with("sparse/") || case.starts_with("files/") || NAMED.contains(&case)
    }

    /// Cases of bounds that only runs of named scenarios have.
    const NAMED: [&str; 4] = ["http1/small-sparse", "http1/1m-up", "grpc/unary", "relay-small-sparse"];

    #[test]
    fn named_scenarios_have_the_cases_that_the_selection_leaves_out() {
        let cases = |breadth| {
            let pace = Pace { seconds: 1.0, breadth, cores: 2 };
            SCENARIOS.iter().flat_map(|s| s.cases(pace)).collect::<Vec<_>>()
        };
        let named = cases(Breadth::Named);
        for name in NAMED {
            let case = named.iter().find(|case| case.name == name).unwrap();
            assert_eq!(case.shared, name.ends_with("-sparse"), "{name}");
        }
        assert!(!cases(Breadth::Selection).iter().any(|case| case.name.starts_with("http1/1m-")));
    }

    #[test]
    fn the_selection_has_every_case_with_a_bound() {
        let gates = Gates::parse(include_str!("../../../bench/gates.toml")).unwrap();
        for cores in [2, 4] {
            let pace = Pace { seconds: 1.0, breadth: Breadth::Selection, cores };
            let cases: Vec<String> =
                SCENARIOS.iter().filter(|s| s.short).flat_map(|s| s.cases(pace)).map(|c| c.name).collect();
            // The full run alone tells how workers scale.
            let aside = |gate: &Gate| gate.case == "scaling/2" || is_named(&gate.case);
            for gate in gates.gate.iter().filter(|gate| gate.cores <= cores && !aside(gate)) {
                assert!(cases.contains(&gate.case), "{}", gate.case);
            }
        }
    }

    #[test]
    fn the_projects_own_gates_are_valid_and_name_real_cases() {
        let gates = Gates::parse(include_str!("../../../bench/gates.toml")).unwrap();
        let pace = Pace { seconds: 1.0, breadth: Breadth::Full, cores: 2 };
        let known: Vec<String> = SCENARIOS.iter().flat_map(|s| s.cases(pace)).map(|c| c.name).collect();
        for gate in &gates.gate {
            assert!(known.contains(&gate.case), "{}", gate.case);
            assert!(gate.generous.is_none_or(|g| g >= gate.strict) || gate.over.is_some());
            // Those that stand aside are measured in the headlines of the selection, and in what is asked for by name.
            let measured = HEADLINES.contains(&gate.case.as_str()) || is_named(&gate.case);
            let takes_part = |name: &String| peer(name).is_some_and(|peer| !peer.aside || measured);
            assert!(gate.peers.iter().all(takes_part), "{}", gate.case);
        }
    }
}
