//! A run: the cases one after the other, the contestants of a case interleaved round by round, so that
//! whatever else the machine does hits them all alike.
//!
//! A contestant that fails leaves a note and the rest goes on.

pub(crate) mod apps;
pub(crate) mod measure;
mod site;

use std::path::{Path, PathBuf};

use crate::campaign::apps::Stage;
use crate::campaign::measure::{Bench, Figures};
use crate::contestant::{Contestant, Mode, Running, Site};
use crate::error::{Error, Result, make_dir};
use crate::helper::Helper;
use crate::machine::Cores;
use crate::pki;
use crate::process::usable_cores;
use crate::progress::Progress;
use crate::protocol::{BackendSpec, Found, Place};
use crate::report::raw::{Raw, Sample};
use crate::report::{CaseInfo, Note};
use crate::scenario::apps::Served;
use crate::scenario::{Case, Method};

/// What a run is to do.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) cases: Vec<Case>,
    pub(crate) contestants: Vec<Contestant>,
    /// Rounds of every case; none: as many as each wants.
    pub(crate) rounds: Option<usize>,
    /// Whether those take part everywhere that no bound refers to.
    pub(crate) everyone: bool,
    /// Whether the proxies reach the backend over a Unix socket.
    pub(crate) unix: bool,
    /// Where results go; exists.
    pub(crate) dir: PathBuf,
}

impl Plan {
    fn rounds(&self, case: &Case) -> usize {
        self.rounds.unwrap_or_else(|| case.rounds())
    }

    fn steps(&self, case: &Case) -> usize {
        case.entrants(&self.contestants, self.everyone) * self.rounds(case)
    }
}

/// A run under way, and what it has found so far.
#[derive(Debug)]
pub(crate) struct Campaign {
    plan: Plan,
    raw: Raw,
    work: PathBuf,
    capacity: Option<f64>,
    /// Cases that were begun, in order.
    pub(crate) cases: Vec<CaseInfo>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) notes: Vec<Note>,
}

impl Campaign {
    /// Prepares the directory and the raw file.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn new(plan: Plan) -> Result<Self> {
        let raw = Raw::create(&plan.dir.join("raw.csv"))?;
        let work = make_dir(&plan.dir.join("work"))?;
        let empty = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { plan, raw, work, capacity: None, cases: empty.0, samples: empty.1, notes: empty.2 })
    }

    /// Runs every case. May be dropped at any point: what was measured stays in `samples` and on disk, and
    /// everything started is stopped.
    ///
    /// # Errors
    /// Only what makes going on useless: results that cannot be written.
    pub(crate) async fn run(&mut self) -> Result<()> {
        let mut progress = Progress::new(self.plan.cases.iter().map(|case| self.plan.steps(case)).sum());
        for case in self.plan.cases.clone() {
            self.cases.push(CaseInfo::of(&case));
            let outcome = match case.method {
                Method::Served(served) => self.served(&case, served, &mut progress).await,
                _ => self.case(&case, &mut progress).await,
            };
            match outcome {
                Ok(()) => {}
                Err(error @ Error::Io { .. }) => return Err(error),
                Err(error) => self.note(&mut progress, &case, "", &error.to_string()),
            }
        }
        progress.end();
        Ok(())
    }

    async fn case(&mut self, case: &Case, progress: &mut Progress) -> Result<()> {
        let usable = usable_cores();
        let cores = Cores::divide(&usable, case.setup.workers);
        let cores = if case.shared { cores.together() } else { cores };
        let identity = pki::identity(&self.work, case.setup.key)?;
        let tls = case.setup.mode.has_tls_behind().then(|| identity.credentials());
        let unix = (self.plan.unix || case.unix) && tls.is_none();
        let place = if unix { Place::Unix(self.work.join("app.sock")) } else { Place::Tcp };
        let order = BackendSpec { place, service: case.service, tls };
        let (backend, found) = Helper::backend(&order, &self.work, &cores.backend).await?;
        let dir = self.work.clone();
        let clients = case.setup.clients.then(|| pki::clients(&self.work)).transpose()?;
        let root = dir.join("www");
        if case.setup.mode == Mode::Files {
            site::write(&root)?;
        }
        let site = Site {
            dir: &dir,
            root: &root,
            backend: &found,
            identity: &identity,
            clients: clients.as_ref(),
            setup: case.setup,
            cores: &cores.proxy,
        };
        let mut bench =
            Bench { case, site: &site, cores: &cores, backend: &backend, dir: &dir, rate: None, cold: true };
        let mut entrants = self.enter(case, &bench, progress).await;
        if let Method::Paced { share, .. } = case.method {
            bench.rate = self.rate(&mut entrants, &bench, share).await?;
        }
        for round in 0..self.plan.rounds(case) {
            bench.cold = round == 0;
            // Each round begins with another one, so that none always runs after the same neighbour.
            let (first, count) = (round % entrants.len().max(1), entrants.len());
            for entrant in (0..count).map(|turn| (first + turn) % count) {
                let entrant = &mut entrants[entrant];
                let name = entrant.contestant.peer.name;
                progress.step(&case.name, &format!("{name}, round {}", round + 1));
                if entrant.out {
                    continue;
                }
                match bench.measure(&entrant.contestant, &mut entrant.running).await {
                    Ok(figures) => self.keep(case, name, round, figures)?,
                    Err(error) => {
                        entrant.out = true;
                        self.note(progress, case, name, &error.to_string());
                    }
                }
            }
        }
        for entrant in entrants {
            if let Some(running) = entrant.running {
                running.process.stop().await;
            }
        }
        drop(backend);
        remove_socket(&found);
        Ok(())
    }

    /// A case whose contestants are arrangements of one application.
    async fn served(&mut self, case: &Case, served: Served, progress: &mut Progress) -> Result<()> {
        let cores = Cores::divide(&usable_cores(), case.setup.workers);
        let identity = pki::identity(&self.work, case.setup.key)?;
        let (dir, contestants) = (self.work.clone(), self.plan.contestants.clone());
        let stage =
            Stage { case, served, dir: &dir, identity: &identity, cores: &cores, contestants: &contestants };
        let mut stacks = Vec::new();
        for &arrangement in served.arrangements {
            match stage.start(arrangement).await {
                Ok(stack) => stacks.push(stack),
                Err(error) => {
                    progress.skip(self.plan.rounds(case));
                    self.note(progress, case, arrangement.name(), &error.to_string());
                }
            }
        }
        for round in 0..self.plan.rounds(case) {
            let (first, count) = (round % stacks.len().max(1), stacks.len());
            for turn in 0..count {
                let stack = &stacks[(first + turn) % count];
                let name = stack.arrangement.name();
                progress.step(&case.name, &format!("{name}, round {}", round + 1));
                match stage.measure(stack).await {
                    Ok(figures) => self.keep(case, name, round, figures)?,
                    Err(error) => self.note(progress, case, name, &error.to_string()),
                }
            }
        }
        for stack in stacks {
            stack.stop().await;
        }
        Ok(())
    }

    /// Starts the contestants that can do this case.
    async fn enter(&mut self, case: &Case, bench: &Bench<'_>, progress: &mut Progress) -> Vec<Entrant> {
        let mut entrants = Vec::new();
        let (all, rounds) = (self.plan.contestants.clone(), self.plan.rounds(case));
        let everyone = self.plan.everyone;
        for contestant in all.into_iter().filter(|c| case.takes(c.peer, everyone)) {
            let name = contestant.peer.name;
            if let Some(why) = contestant.lacks(case.setup) {
                progress.skip(rounds);
                self.note(progress, case, name, why);
                continue;
            }
            // These are started anew for each round: memory of a program that has worked is another thing.
            let fresh = matches!(case.method, Method::Idle { .. } | Method::Start);
            let running = if fresh { None } else { Some(contestant.start(bench.site).await) };
            match running.transpose() {
                Ok(running) => entrants.push(Entrant { contestant, running, out: false }),
                Err(error) => {
                    progress.skip(rounds);
                    self.note(progress, case, name, &error.to_string());
                }
            }
        }
        entrants
    }

    /// The rate for a share of the capacity of the slowest contestant, which is found once per run.
    async fn rate(&mut self, entrants: &mut [Entrant], bench: &Bench<'_>, share: f64) -> Result<Option<f64>> {
        if self.capacity.is_none() {
            let mut slowest = f64::INFINITY;
            for running in entrants.iter_mut().filter_map(|e| e.running.as_ref()) {
                slowest = slowest.min(bench.capacity(running).await?);
            }
            self.capacity = Some(slowest).filter(|s| s.is_finite());
        }
        Ok(self.capacity.map(|capacity| capacity * share))
    }

    fn keep(&mut self, case: &Case, contestant: &str, round: usize, figures: Figures) -> Result<()> {
        for (metric, value) in figures {
            let sample = Sample {
                scenario: case.scenario.to_owned(),
                case: case.name.clone(),
                contestant: contestant.to_owned(),
                round,
                metric,
                value,
            };
            self.raw.write(&sample)?;
            self.samples.push(sample);
        }
        self.raw.flush()
    }

    fn note(&mut self, progress: &mut Progress, case: &Case, contestant: &str, text: &str) {
        let note = Note { case: case.name.clone(), contestant: contestant.to_owned(), text: text.to_owned() };
        if !self.notes.contains(&note) {
            progress.note(&note.to_string());
            self.notes.push(note);
        }
    }
}

/// A contestant in a case.
#[derive(Debug)]
struct Entrant {
    contestant: Contestant,
    running: Option<Running>,
    /// Failed in an earlier round; its figures so far count.
    out: bool,
}

fn remove_socket(found: &Found) {
    if let Found::Unix(path) = found {
        let path: &Path = path;
        let _ = std::fs::remove_file(path);
    }
}
