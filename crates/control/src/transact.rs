//! One change of the configuration, from the request to the report.
//!
//! [`draft`] reads what is asked for and changes nothing; it may be dropped. [`make`] prepares a [`Plan`], and commits it
//! unless it is a trial. Reloads by signals and by `watch` come this way too.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use offramp_observe::LogField;
use offramp_process::inherited::Inherited;
use offramp_process::{Error, descriptors, log_warnings, sandbox, supervise};

use crate::autosave::Autosave;
use crate::change::{Change, NotChanged, Report, Terms};
use crate::changes::Changes;
use crate::commit::{Sockets, commit};
use crate::config_file::{FileChange, FileRead, FileWritten};
use crate::confirmation::{Confirmation, Settled, WayBack};
use crate::draft::Draft;
use crate::history::{Kind, Requester};
use crate::ledger::{Entry, Recorded, Settlement};
use crate::notes;
use crate::plan::{Kept, Plan, Proposal};
use crate::request::ChangeRequest;
use crate::running::Running;
use crate::running_config::RunningConfig;
use crate::warnings::{self, Warnings};

/// Reads what is asked for; `None` for a confirmation and for a write to the file, which need nothing.
///
/// # Errors
/// The change may not be made now, or cannot be read.
pub(crate) async fn draft(running: &Running, request: &ChangeRequest) -> Result<Option<Draft>, NotChanged> {
    running.begin_phases(request.at.into_std());
    running.end_phase("wait_ms");
    if matches!(request.change, Change::Confirm { .. }) {
        running.ledger.expect(&request.terms)?;
        return Ok(None);
    }
    running.ledger.admit(&request.change, &request.terms)?;
    if matches!(request.change, Change::Persist) {
        return Ok(None);
    }
    if request.is_real_reload() {
        running.notifier.reloading();
    }
    Draft::read(running, &request.change, &request.terms, request.reply.is_some()).await.map(Some)
}

/// Makes the change of a draft, and reports to the requester. True if the file of the configuration was written.
pub(crate) async fn make(
    running: &mut Running,
    request: ChangeRequest,
    draft: Result<Option<Draft>, NotChanged>,
) -> bool {
    let is_reload = request.is_real_reload();
    let ChangeRequest { change, terms, by, reply, .. } = request;
    let kind = change.kind();
    let outcome = match draft {
        Ok(None) if matches!(change, Change::Persist) => persist(running, &terms, &by).await,
        Ok(None) => confirm(running, &by, !matches!(change, Change::Confirm { write: false })).await,
        Ok(Some(draft)) => carry_out(running, draft, &terms, by).await,
        Err(NotChanged::Invalid(error)) => Err(refuse(running, &error, kind, &terms, &by).into()),
        Err(refused) => Err(refused),
    };
    match &outcome {
        Ok(_) if is_reload => running.notifier.send("READY=1\nSTATUS=reloaded"),
        Err(NotChanged::Invalid(_)) if is_reload => {
            running.notifier.send("READY=1\nSTATUS=reload refused: the log says why");
        }
        _ => {}
    }
    let is_written = outcome.as_ref().is_ok_and(|report| report.persisted.is_some());
    let has_changed = outcome.is_ok();
    if let Some(reply) = reply {
        // The requester may be gone.
        let _ = reply.send(outcome);
    }
    if has_changed || is_reload {
        running.log_phases();
    }
    is_written
}

/// Logs and remembers an error, unless the change was a trial. Gives it with what the sandbox may have to do with it.
fn refuse(running: &mut Running, error: &Error, kind: Kind, terms: &Terms, by: &Requester) -> Error {
    let error = sandbox::explain(&running.confinement, error);
    if !terms.dry_run {
        let now = SystemTime::now();
        running.plane.reloads.note(false, now);
        running.services.acme.prompt();
        running.ledger.record_refused(&error, kind, by.clone(), now);
        running.publish();
        log_refused(running, &error, kind, by);
    }
    error
}

/// Prepares a proposal.
///
/// # Errors
/// Everything that is wrong with it.
async fn prepare(running: &Running, proposal: Proposal) -> Result<Plan, Error> {
    let plan = Plan::between(&running.services, proposal, &mut Inherited::default())?;
    running.end_phase("build_ms");
    plan.fetch(running.services.jwks.fetches(), &running.log).await;
    running.end_phase("names_ms");
    Ok(plan)
}

async fn carry_out(
    running: &mut Running,
    draft: Draft,
    terms: &Terms,
    by: Requester,
) -> Result<Report, NotChanged> {
    let Draft { proposal, text, read, mut file, warnings, kind, connections } = draft;
    let plan = match supervise::guarded(prepare(running, proposal)).await {
        Ok(plan) => plan,
        Err(error) => return Err(refuse(running, &error, kind, terms, &by).into()),
    };
    let warnings = Warnings::of(running, &plan, warnings, kind);
    running.end_phase("servers_ms");
    let mut report = Report { connections, ..report(running, &plan, &warnings) };
    if terms.dry_run {
        plan.abandon(&running.services);
        file.as_ref().map_or(Ok(()), FileChange::try_out).map_err(NotChanged::NotWritten)?;
        return Ok(report);
    }
    let in_force = RunningConfig { config: Arc::clone(&plan.config), text: Arc::clone(&text) };
    let written = match write_file(file.as_ref(), terms, &in_force, &mut running.autosave).await {
        Ok(written) => written,
        Err(why) => {
            plan.abandon(&running.services);
            return Err(NotChanged::NotWritten(why));
        }
    };
    let read = match written {
        Some(FileWritten { path, read }) => {
            report.persisted = Some(path);
            Some(read)
        }
        None => read,
    };
    running.end_phase("file_ms");
    warnings.log(&running.log);
    descriptors::tell(&plan.config, &running.log);
    let later = file.take_if(|_| report.persisted.is_none());
    // A change without effect leaves nothing to take back, and holds up no other.
    let confirm = terms.confirm.filter(|_| !plan.changes.is_none() || later.is_some());
    let waits = confirm.map(|time| Confirmation::new(time, way_back(running), later));
    let until = waits.as_ref().map(|waits| waits.until);
    let entry = InForceAs { text, kind, by: by.clone(), read, waits };
    let recorded = match put_in_force(running, plan, entry).await {
        Ok(recorded) => recorded,
        Err(error) => {
            take_back_text(running, file);
            return Err(refuse(running, &error, kind, terms, &by).into());
        }
    };
    report.version = recorded.version;
    report.confirm_until = until;
    report.warnings.extend(running.unsaved());
    if let Some(until) = until {
        notes::change_waits(running.notices(), recorded.version, until, &by);
    }
    running.end_phase("history_ms");
    Ok(report)
}

/// Writes the file of a change. Where the change is to be confirmed it is written only then, and
/// should not fail only then.
///
/// # Errors
/// It cannot be written.
async fn write_file(
    file: Option<&FileChange>,
    terms: &Terms,
    in_force: &RunningConfig,
    autosave: &mut Autosave,
) -> Result<Option<FileWritten>, String> {
    match (file, terms.confirm) {
        (None, _) => Ok(None),
        (Some(file), Some(_)) => file.try_out().map(|()| None),
        (Some(file), None) => file.write(in_force, autosave).await.map(Some),
    }
}

/// Gives the file, where it was written, its text again of before a change that is not in force.
fn take_back_text(running: &Running, written: Option<FileChange>) {
    running.autosave.withdraw();
    if let Some(Err(why)) = written.map(FileChange::take_back) {
        let message = "the file of the configuration keeps the text of a change that is not in force";
        running.log.error(message, &[("reason", (&why).into())]);
    }
}

/// The entry of a plan in the ledger.
struct InForceAs {
    text: Arc<str>,
    kind: Kind,
    by: Requester,
    /// The file, where it was read or written.
    read: Option<FileRead>,
    waits: Option<Confirmation>,
}

/// Commits a plan, and records it.
///
/// # Errors
/// A panic on the way. The configuration before is in force again then.
async fn put_in_force(running: &mut Running, plan: Plan, entry: InForceAs) -> Result<Recorded, Error> {
    let Plan { config, changes, steps } = plan;
    let InForceAs { text, kind, by, read, waits } = entry;
    let sockets = if waits.is_some() { Sockets::Keep } else { Sockets::Close };
    let before = way_back(running);
    if let Err(panicked) =
        supervise::contained(commit(&mut running.services, &running.plane, steps, sockets)).await
    {
        restore(running, &before).await;
        return Err(supervise::fault(&panicked));
    }
    running.end_phase("commit_ms");
    if waits.is_none() {
        running.services.listeners.forget_reserved();
    }
    let now = SystemTime::now();
    let (made_changes, requester) = (changes.clone(), by.clone());
    let entry = Entry { running: RunningConfig { config, text }, changes, kind, by, read, waits };
    let recorded = running.ledger.record(entry, now);
    running.plane.reloads.note(true, now);
    running.services.acme.prompt();
    running.publish();
    running.save().await;
    running.end_phase("autosave_ms");
    // Readers of these lines ask at once for what they tell: it is published and saved before.
    log_settled(running, recorded.settled.as_ref());
    log_changes(running, &made_changes, kind, &requester);
    if !made_changes.lines.is_empty() {
        notify_change(running, &made_changes, kind, &requester);
    }
    Ok(recorded)
}

/// Puts the configuration in force again that was before a change of which a part is made.
async fn restore(running: &mut Running, before: &WayBack) {
    running.services.listeners.forget_closed();
    let restored = match supervise::guarded(plan_back(running, before)).await {
        Ok(Plan { steps, .. }) => {
            let restored = commit(&mut running.services, &running.plane, steps, Sockets::Close);
            supervise::contained(restored).await.map_err(|panicked| supervise::fault(&panicked))
        }
        Err(error) => Err(error),
    };
    if running.ledger.waiting().is_none() {
        running.services.listeners.forget_reserved();
    }
    if let Err(error) = restored {
        let message = "a change was made in part, and cannot be taken back; start Offramp again";
        running.log.error(message, &[("reason", (&error).into())]);
    }
}

/// Prepares a way back.
///
/// # Errors
/// Everything that stands in the way.
async fn plan_back(running: &Running, way_back: &WayBack) -> Result<Plan, Error> {
    let proposal = Draft::back(running, way_back).await?;
    prepare(running, proposal).await
}

/// The configuration in force, for a way back to it. What it uses was opened, and stays usable.
fn way_back(running: &Running) -> WayBack {
    let carryover = &running.services.snapshot.carryover;
    let kept = Kept { contents: carryover.contents.clone(), events: running.services.access_log.in_force() };
    WayBack { running: running.ledger.running().clone(), sources: carryover.sources.clone(), kept }
}

/// The effect of a plan.
fn report(running: &Running, plan: &Plan, warnings: &Warnings) -> Report {
    let listeners = &plan.steps.listeners;
    Report {
        version: running.ledger.history().version(),
        changes: plan.changes.clone(),
        warnings: warnings.lines(),
        opens: listeners.opens(),
        closes: running.services.listeners.closes(listeners),
        open: running.plane.page.counters.totals().active(),
        ..Report::default()
    }
}

async fn confirm(running: &mut Running, by: &Requester, write: bool) -> Result<Report, NotChanged> {
    let Running { ledger, autosave, .. } = &mut *running;
    let waiting = ledger.waiting().ok_or(NotChanged::NothingToConfirm)?;
    // A change is not confirmed before it is written: the operator may try again.
    let written = match &waiting.file {
        Some(file) if write => {
            let until = waiting.until;
            let written = file.write(ledger.running(), autosave).await;
            Some(written.map_err(|why| NotChanged::StillWaits { until, why })?)
        }
        _ => None,
    };
    let mut report = Report { connections: Some(0), ..Report::default() };
    let read = written.map(|FileWritten { path, read }| {
        report.persisted = Some(path);
        read
    });
    let version = running.ledger.confirm(read);
    running.services.listeners.forget_reserved();
    let by = [("by", by.as_str().into())];
    running.publish();
    running.save().await;
    running.log.info("the change is confirmed", &by);
    notes::change_waited(running.notices(), "confirmed", version, &by);
    let version = running.ledger.history().version();
    let open = running.plane.page.counters.totals().active();
    report.warnings.extend(running.unsaved());
    Ok(Report { version, open, ..report })
}

/// Writes the configuration in force to its file, where that lacks something. The report has the differences.
///
/// # Errors
/// There is no file, it was changed since it was read, or it cannot be written.
async fn persist(running: &mut Running, terms: &Terms, by: &Requester) -> Result<Report, NotChanged> {
    let lines = running.ledger.differences().to_vec();
    let version = running.ledger.history().version();
    let mut report = Report { version, connections: Some(0), ..Report::default() };
    if lines.is_empty() {
        return Ok(report);
    }
    let in_force = running.ledger.running();
    let change = FileChange::whole(in_force, running.ledger.file(), &running.source)
        .map_err(NotChanged::NotWritten)?;
    report.warnings.extend_from_slice(change.warnings());
    report.changes.lines = lines;
    if terms.dry_run {
        change.try_out().map_err(NotChanged::NotWritten)?;
        return Ok(report);
    }
    let written = change.write(in_force, &mut running.autosave).await;
    let FileWritten { path, read } = written.map_err(NotChanged::NotWritten)?;
    running.ledger.note_written(read);
    running.publish();
    running.save().await;
    let shown = path.display().to_string();
    let fields = [("file", (&shown).into()), ("by", by.as_str().into())];
    running.log.info("the configuration in force is written to its file", &fields);
    report.warnings.extend(running.unsaved());
    Ok(Report { persisted: Some(path), ..report })
}

/// Takes back the change that was not confirmed in time. Where that fails it is tried again.
pub(crate) async fn take_back(running: &mut Running) {
    let Some(waiting) = running.ledger.waiting() else { return };
    running.begin_phases(Instant::now());
    if waiting.failure().is_none() {
        running.log.warn("nobody has confirmed the change; it is taken back", &[]);
    }
    let text = Arc::clone(&waiting.way_back.running.text);
    let taken_back = match supervise::guarded(plan_back(running, &waiting.way_back)).await {
        Ok(plan) => {
            log_warnings(&running.log, "certificate", &plan.steps.snapshot.built.warnings);
            log_warnings(&running.log, "configuration", &warnings::of_servers(&plan.config));
            let (kind, by) = (Kind::TakenBack, Requester::Unconfirmed);
            put_in_force(running, plan, InForceAs { text, kind, by, read: None, waits: None }).await
        }
        Err(error) => Err(error),
    };
    match taken_back {
        Ok(_) => running.log_phases(),
        Err(error) => {
            let error = sandbox::explain(&running.confinement, &error);
            note_not_taken_back(running, error);
        }
    }
}

/// Logs why the change is still in force.
fn note_not_taken_back(running: &mut Running, error: Error) {
    let now = SystemTime::now();
    let Some(failure) = running.ledger.record_not_taken_back(error, now) else { return };
    if failure.is_new {
        let fields = [("reason", (&failure.reason).into()), ("again_s", failure.pause.as_secs().into())];
        let message = "the change cannot be taken back yet; this is tried again until it works";
        running.log.error(message, &fields);
        notes::change_waited(running.notices(), "not_taken_back", failure.version, &fields);
        running.plane.reloads.note(false, now);
    }
    running.publish();
}

/// Logs the fate of the change that waited.
fn log_settled(running: &Running, settled: Option<&Settlement>) {
    let Some(Settlement { how, version }) = settled else { return };
    let what = match how {
        // It is logged with its requester.
        Settled::Confirmed => return,
        Settled::Replaced => {
            running.log.warn("another change replaces the one that nobody has confirmed", &[]);
            "replaced"
        }
        Settled::TakenBack => "taken_back",
    };
    notes::change_waited(running.notices(), what, *version, &[]);
}

fn log_changes(running: &Running, changes: &Changes, kind: Kind, by: &Requester) {
    let restart = changes.needs_restart.join(", ");
    let mut fields: Vec<LogField<'_>> = vec![
        ("changes", changes.into()),
        ("new_certificates", changes.new_certificates.into()),
        ("by", by.as_str().into()),
    ];
    if !restart.is_empty() {
        fields.push(("needs_an_upgrade", (&restart).into()));
    }
    if kind == Kind::Reload {
        running.log.info("reloaded", &fields);
    } else {
        fields.push(("how", kind.as_str().into()));
        running.log.info("configuration changed", &fields);
    }
}

/// Tells the receivers that want to know of changes.
fn notify_change(running: &Running, changes: &Changes, kind: Kind, by: &Requester) {
    let lines: Vec<&str> = changes.lines.iter().take(NOTIFIED).map(String::as_str).collect();
    let more = changes.lines.len() - lines.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let says = format!("{} by {}: {}{more}", kind.as_str(), by.as_str(), lines.join("; "));
    running.services.senders.notify.registry().note_change(running.ledger.history().version(), &says);
}

/// The lines of a change that a notification has.
const NOTIFIED: usize = 5;

fn log_refused(running: &Running, error: &Error, kind: Kind, by: &Requester) {
    let reasons: Vec<String> = error.findings().iter().map(ToString::to_string).collect();
    let joined = reasons.join(" | ");
    let fields =
        [("faults", reasons.len().into()), ("reasons", (&joined).into()), ("by", by.as_str().into())];
    let message = match kind {
        Kind::Reload => "reload refused; everything stays as it was",
        _ => "change refused; everything stays as it was",
    };
    running.log.error(message, &fields);
}
