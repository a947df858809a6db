//! The order of events of a comparison: both sides are asked in turn, and once more where they differ.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use tokio::time::{MissedTickBehavior, interval};

use super::answer::SideAnswer;
use super::client::{NoAnswer, SideClient};
use super::difference::{
    AnswerDifference, DifferenceKind, DifferingPart, PlacedAnswer, differences, lasting, slower,
};
use super::report::{CompareReport, ComparisonCounts};
use super::request::ReplayRequest;
use super::source::GatheredRequests;
use super::{certificate, curl, redact};
use crate::failure::Failure;
use crate::flags::compare::{RuleOptions, SideOptions};
use crate::surroundings::{is_watched, say_over};

/// A comparison that runs.
pub(super) struct Comparison {
    clients: Vec<SideClient>,
    options: SideOptions,
    /// The host of requests that have none.
    authority: String,
    slower: Duration,
    /// Hosts with TLS that was looked at.
    looked: BTreeSet<String>,
    /// Requests in a row that a side did not answer.
    silent: [u32; 2],
    report: CompareReport,
}

/// The outcome for one request.
struct ComparedRequest {
    differences: Vec<AnswerDifference>,
    varying: BTreeSet<DifferingPart>,
}

impl Comparison {
    pub(super) fn new(
        clients: Vec<SideClient>,
        options: SideOptions,
        authority: String,
        ignored: Vec<String>,
        rules: &RuleOptions,
    ) -> Self {
        let urls = [0, 1].map(|side: usize| clients[side].side.url.clone());
        let report = CompareReport { urls, ignored, ..CompareReport::default() };
        let (looked, silent) = (BTreeSet::new(), [0; 2]);
        Self { clients, options, authority, slower: rules.slower, looked, silent, report }
    }

    /// Asks both sides for everything, at most `rate` requests a second each.
    ///
    /// # Errors
    /// A side cannot be reached at all, or its certificate is not trusted.
    pub(super) async fn run(
        mut self,
        gathered: GatheredRequests,
        rate: u16,
    ) -> Result<CompareReport, Failure> {
        let GatheredRequests { chosen, skipped, notes } = gathered;
        let (usable, count) = (chosen.usable, chosen.requests.len());
        self.report.counts = ComparisonCounts { usable, chosen: count as u64, ..ComparisonCounts::default() };
        (self.report.skipped, self.report.notes) = (skipped, notes);
        self.note(&chosen.requests, chosen.is_partial);
        if let Some(first) = chosen.requests.first() {
            self.begin(&self.authority_of(first)).await?;
        }
        let mut pace = interval(Duration::from_secs(1) / u32::from(rate));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for (at, request) in chosen.requests.iter().enumerate() {
            if is_watched() {
                say_over(&format!("request {} of {count}", at + 1));
            }
            pace.tick().await;
            let authority = self.authority_of(request);
            self.look(&authority).await;
            if let Some(outcome) = self.ask(request, &authority, &mut pace).await {
                self.add(request, &authority, outcome);
            }
            if let Some(side) = self.silent.iter().position(|silent| *silent >= SILENT) {
                let word = self.clients[side].side.name.word();
                let left = count - at - 1;
                self.report.stopped = Some(format!(
                    "{word} did not answer {SILENT} requests in a row; {left} requests were not sent"
                ));
                break;
            }
        }
        if is_watched() {
            say_over("");
        }
        Ok(self.report)
    }

    fn authority_of(&self, request: &ReplayRequest) -> String {
        request.host.clone().unwrap_or_else(|| self.authority.clone())
    }

    fn note(&mut self, requests: &[ReplayRequest], is_partial: bool) {
        let notes = &mut self.report.notes;
        let escaped = requests.iter().filter(|request| request.is_escaped).count();
        if escaped > 0 {
            notes.push(format!("{escaped} paths had bytes that no URL has; they were sent as %XX"));
        }
        if is_partial {
            notes.push("a sample: --most sends more".to_owned());
        }
        if requests.iter().any(|request| {
            request.body.is_empty() && !matches!(request.method.as_str(), "GET" | "HEAD" | "OPTIONS")
        }) {
            notes.push(
                "requests of other methods were sent without a body where the source has none".to_owned(),
            );
        }
        if self.clients[0].side.is_tls != self.clients[1].side.is_tls {
            notes.push("only one side speaks TLS, so certificates were not compared".to_owned());
        }
    }

    /// Reaches both sides, so that one that is not there is named once.
    async fn begin(&mut self, authority: &str) -> Result<(), Failure> {
        for client in &self.clients {
            let outcome = match client.side.is_tls {
                true => client.look(authority).await.map(drop),
                false => client.reach().await,
            };
            let (word, url) = (client.side.name.word(), &client.side.url);
            outcome.map_err(|why| {
                let advice = match why {
                    NoAnswer::Untrusted(_) => {
                        "Name its authority with --ca FILE, or go on with --insecure".to_owned()
                    }
                    _ => format!("Start it first; `curl` must get an answer from {url}"),
                };
                Failure::usage(format_args!("error: {word} ({url}) does not answer: {why}\n{advice}"))
            })?;
        }
        Ok(())
    }

    /// Compares the TLS of both sides for a host, once.
    async fn look(&mut self, authority: &str) {
        let is_tls = self.clients.iter().all(|client| client.side.is_tls);
        if !is_tls || self.looked.len() >= MOST_HOSTS || !self.looked.insert(authority.to_owned()) {
            return;
        }
        // A side without a handshake gives no answer to the request, either.
        let (Ok(old), Ok(new)) =
            (self.clients[0].look(authority).await, self.clients[1].look(authority).await)
        else {
            return;
        };
        let found = certificate::differences(&old, &new, SystemTime::now());
        self.report.counts.tls += u64::from(!found.is_empty());
        let root = ReplayRequest {
            method: hyper::Method::GET,
            host: None,
            target: "/".to_owned(),
            is_escaped: false,
            fields: Vec::new(),
            body: hyper::body::Bytes::new(),
        };
        for difference in found {
            let curl = self.curl(&root, authority);
            self.report.groups.add(difference, || (format!("TLS for {authority}"), curl));
        }
    }

    /// Asks both; `None` if neither answered.
    async fn ask(
        &mut self,
        request: &ReplayRequest,
        authority: &str,
        pace: &mut tokio::time::Interval,
    ) -> Option<ComparedRequest> {
        let first = [self.one(0, request, authority).await, self.one(1, request, authority).await];
        let is_head = request.method == hyper::Method::HEAD;
        match &first {
            [Err(_), Err(_)] => {
                self.report.counts.unanswered += 1;
                return None;
            }
            [Ok(old), Ok(new)] => {
                let found = self.differences([(0, old), (1, new)], request, authority, is_head);
                if found.is_empty() && new.time <= old.time.saturating_add(self.slower) {
                    return Some(ComparedRequest { differences: found, varying: BTreeSet::new() });
                }
            }
            _ => {}
        }
        pace.tick().await;
        let second = [self.one(0, request, authority).await, self.one(1, request, authority).await];
        let [Ok(old), Ok(new)] = &first else { return Some(of_silence(&first, &second)) };
        let [Ok(old_again), Ok(new_again)] = &second else { return Some(of_silence(&first, &second)) };
        let between = |a, b| self.differences([a, b], request, authority, is_head);
        let found = between((0, old), (1, new));
        let again = between((0, old_again), (1, new_again));
        let mut alone = between((0, old), (0, old_again));
        alone.extend(between((1, new), (1, new_again)));
        let all: BTreeSet<DifferingPart> =
            found.iter().chain(&again).chain(&alone).map(|one| one.part.clone()).collect();
        let mut left = lasting(found, &again, &alone);
        let kept: BTreeSet<DifferingPart> = left.iter().map(|one| one.part.clone()).collect();
        let varying = all.difference(&kept).cloned().collect();
        left.extend(slower([old.time, old_again.time], [new.time, new_again.time], self.slower));
        Some(ComparedRequest { differences: left, varying })
    }

    fn differences(
        &self,
        of: [(usize, &SideAnswer); 2],
        request: &ReplayRequest,
        authority: &str,
        is_head: bool,
    ) -> Vec<AnswerDifference> {
        let places = of.map(|(side, _)| self.clients[side].side.place(request, authority));
        let [old, new] = [0, 1].map(|at: usize| PlacedAnswer { answer: of[at].1, place: &places[at] });
        differences(old, new, is_head, &self.report.ignored)
    }

    async fn one(
        &mut self,
        side: usize,
        request: &ReplayRequest,
        authority: &str,
    ) -> Result<SideAnswer, NoAnswer> {
        let outcome = self.clients[side].ask(request, authority).await;
        match &outcome {
            Ok(answer) => {
                self.silent[side] = 0;
                self.report.times[side].push(answer.time);
            }
            Err(NoAnswer::Unreachable(_) | NoAnswer::Late(_)) => self.silent[side] += 1,
            Err(NoAnswer::Broken(_) | NoAnswer::Untrusted(_)) => {}
        }
        outcome
    }

    fn add(&mut self, request: &ReplayRequest, authority: &str, outcome: ComparedRequest) {
        for part in outcome.varying {
            *self.report.varying.entry(part).or_default() += 1;
        }
        if outcome.differences.is_empty() {
            self.report.counts.same += 1;
            return;
        }
        self.report.counts.different += 1;
        for difference in outcome.differences {
            let curl = self.curl(request, authority);
            let shown = format!("{} {authority}{}", request.method, redact::target(&request.target));
            self.report.groups.add(difference, || (shown, curl));
        }
    }

    fn curl(&self, request: &ReplayRequest, authority: &str) -> [String; 2] {
        [0, 1].map(|at: usize| curl::line(&self.clients[at].side, request, authority, &self.options))
    }
}

/// The difference of two sides of which one did not answer, at least once.
fn of_silence(
    first: &[Result<SideAnswer, NoAnswer>; 2],
    second: &[Result<SideAnswer, NoAnswer>; 2],
) -> ComparedRequest {
    let failure = |side: usize| first[side].as_ref().err().or(second[side].as_ref().err());
    let [old, new] = [0, 1].map(|side: usize| match (failure(side), &first[side], &second[side]) {
        (Some(why), Err(_), Err(_)) => redact::value(&why.to_string()),
        (Some(why), ..) => redact::value(&format!("of two requests one failed: {why}")),
        (None, Ok(answer), _) => format!("answers {}", answer.status),
        (None, Err(_), _) => String::new(),
    });
    let is_untrusted = [0, 1].iter().any(|side| matches!(failure(*side), Some(NoAnswer::Untrusted(_))));
    let (kind, name) =
        if is_untrusted { (DifferenceKind::Certificate, "trust") } else { (DifferenceKind::NoAnswer, "") };
    ComparedRequest {
        differences: vec![AnswerDifference::new(kind, name, old, new)],
        varying: BTreeSet::new(),
    }
}

/// Requests in a row without an answer after which a side is given up.
const SILENT: u32 = 5;
/// Maximum number of hosts with TLS that is looked at: it bounds handshakes and the report.
const MOST_HOSTS: usize = 50;
