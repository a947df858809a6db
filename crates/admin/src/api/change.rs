//! Changes of the process: each is a request to `control`, which applies one at a time.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hyper::header::IF_MATCH;
use offramp_config::model::{ServerState, Weight};
use offramp_config::{Edit, Item, ServerEdit};
use offramp_control::{Change as Request, Report, Stopping, Terms};
use serde_json::{Map, Value, json};

use super::document::{keys, parsed, some_keys};
use super::query::QueryParameters;
use super::{Control, OperationRequest, OperationResult, ProblemDetails, connections, time};

/// A change that an operation asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChangeOperation {
    Document,
    /// An item of the configuration.
    Item(Item, Verb),
    /// A server of a backend, which is added, changed or removed.
    Server(Verb),
    LogLevel,
    CloseConnections,
    CloseConnection,
    Reload,
    Confirm,
    Persist,
    Rollback,
    Upgrade,
    Stop,
}

/// The change of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Replace,
    /// Some of its keys change.
    Change,
    Remove,
}

/// Requests a change, and returns its outcome.
pub(super) async fn answer(
    control: &Control,
    what: ChangeOperation,
    asked: &OperationRequest<'_>,
    query: &QueryParameters,
) -> Result<OperationResult, ProblemDetails> {
    if asked.headers.contains_key(IF_MATCH) && !asked.operation.may_expect() {
        return Err(ProblemDetails::wrong(
            "this does not depend on the version of the configuration: leave If-Match out",
        ));
    }
    let terms = Terms {
        expected: control.expected(asked.headers)?,
        dry_run: query.flag("dry_run"),
        confirm: query.time("confirm"),
        persist: query.flag("persist"),
        force: query.flag("force"),
    };
    let dry_run = terms.dry_run;
    let request = match what {
        ChangeOperation::Stop => {
            return Ok(OperationResult::Accepted(stop(control, asked, query.flag("now"))));
        }
        ChangeOperation::CloseConnections => {
            return Ok(OperationResult::Json(connections::close(control, asked, query).await?));
        }
        ChangeOperation::CloseConnection => {
            return Ok(OperationResult::Json(connections::close_one(control, asked).await?));
        }
        ChangeOperation::Upgrade => {
            let done = control.handle.replace(asked.by.clone(), terms.force).await?;
            let took = u64::try_from(done.took.as_millis()).unwrap_or(u64::MAX);
            return Ok(OperationResult::Json(json!({ "process": done.process, "took_ms": took })));
        }
        ChangeOperation::Confirm => {
            let confirm = Request::Confirm { write: !query.flag("no_persist") };
            let done = control.handle.change(confirm, terms, asked.by.clone()).await?;
            return Ok(OperationResult::Changed(report(&done, false), done.version));
        }
        ChangeOperation::Reload => Request::Reload,
        ChangeOperation::Persist => Request::Persist,
        ChangeOperation::Rollback => Request::Rollback(query.number("to")),
        ChangeOperation::Document => document(asked, query)?,
        ChangeOperation::Item(item, verb) => Request::Edit(edit_item(control, item, verb, asked)?),
        ChangeOperation::Server(verb) => Request::Edit(edit_server(verb, asked)?),
        ChangeOperation::LogLevel => {
            let members = members(&asked.body, &["level"])?;
            let value = text(&members, "level")?.ok_or_else(|| missing("level"))?;
            Request::Edit(Edit::Set { section: "log", key: "level", value })
        }
    };
    let done = control.handle.change(request, terms, asked.by.clone()).await?;
    Ok(OperationResult::Changed(report(&done, dry_run), done.version))
}

/// Stops the process, and returns the consequences for open connections.
fn stop(control: &Control, asked: &OperationRequest<'_>, now: bool) -> Value {
    let Stopping { already, until } = control.handle.order_stop(now, asked.by.clone());
    let limit = control.view.in_force().config.limits.drain_timeout;
    let until = until.or_else(|| SystemTime::now().checked_add(limit)).filter(|_| !now);
    json!({
        "stopping": true,
        "already": already,
        "now": now,
        "open": control.view.figures().counters.totals().active(),
        "until": until.map(time),
    })
}

fn document(asked: &OperationRequest<'_>, query: &QueryParameters) -> Result<Request, ProblemDetails> {
    let text = String::from_utf8(asked.body.to_vec())
        .map_err(|_| ProblemDetails::wrong("the document is not UTF-8"))?;
    let folder = query.text("folder").map(PathBuf::from);
    if folder.as_ref().is_some_and(|folder| !folder.is_absolute()) {
        return Err(ProblemDetails::wrong("`folder` is an absolute path"));
    }
    let name: String = query.text("name").unwrap_or("document").chars().take(200).collect();
    // A configuration that Offramp has saved: its lines for the next start are no part of it.
    Ok(match offramp_control::saved_document(&text) {
        Some((text, file)) => {
            let folder = file.as_deref().and_then(Path::parent).map(Path::to_owned).or(folder);
            Request::Document { name: format!("{name} (without its head)"), folder, text }
        }
        None => Request::Document { name, folder, text },
    })
}

/// The edit of an item.
fn edit_item(
    control: &Control,
    item: Item,
    verb: Verb,
    asked: &OperationRequest<'_>,
) -> Result<Edit, ProblemDetails> {
    let name = || asked.names.first().cloned().unwrap_or_default();
    match (verb, item) {
        (Verb::Add, Item::Backend) => {
            let mut table = keys(&asked.body)?;
            let name = table.remove("name").ok_or_else(|| missing("name"))?;
            let name = name.as_str().ok_or_else(|| ProblemDetails::wrong("`name` is a string"))?.to_owned();
            Ok(Edit::Add { item, name, table })
        }
        // A backend is replaced, or added if there is none of the name.
        (Verb::Replace, Item::Backend) if !has_backend(control, &name()) => {
            Ok(Edit::Add { item, name: name(), table: keys(&asked.body)? })
        }
        (Verb::Add, _) => Ok(Edit::Add { item, name: name(), table: keys(&asked.body)? }),
        (Verb::Replace, _) => Ok(Edit::Replace { item, name: name(), table: keys(&asked.body)? }),
        (Verb::Change, _) => {
            let (table, without) = some_keys(&asked.body)?;
            Ok(Edit::Change { item, name: name(), table, without })
        }
        (Verb::Remove, _) => Ok(Edit::Remove { item, name: name() }),
    }
}

fn has_backend(control: &Control, name: &str) -> bool {
    control.view.in_force().config.backends.iter().any(|backend| backend.name.as_str() == name)
}

/// The edit of a server of a backend.
fn edit_server(verb: Verb, asked: &OperationRequest<'_>) -> Result<Edit, ProblemDetails> {
    let name = |at: usize| asked.names.get(at).cloned().unwrap_or_default();
    let (server, change) = match verb {
        // No operation replaces a server: its weight and state change, and its address is its name.
        Verb::Add | Verb::Replace => (new_server(&asked.body)?, ServerEdit::Add),
        Verb::Change => {
            let members = members(&asked.body, &["state", "weight"])?;
            let change = ServerEdit::Change { state: state(&members)?, weight: weight(&members)? };
            (name(1), change)
        }
        Verb::Remove => (name(1), ServerEdit::Remove),
    };
    Ok(Edit::Server { backend: name(0), server, change })
}

/// Formats a new server in the configuration's syntax.
fn new_server(body: &[u8]) -> Result<String, ProblemDetails> {
    let members = members(body, &["address", "weight", "backup", "state"])?;
    let mut server = text(&members, "address")?.ok_or_else(|| missing("address"))?;
    if server.is_empty() || server.contains(char::is_whitespace) {
        return Err(ProblemDetails::wrong("`address` is an address, such as 10.0.0.7:3000"));
    }
    if let Some(weight) = weight(&members)? {
        server.push_str(&format!(" weight={weight}"));
    }
    match members.get("backup") {
        None | Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) => server.push_str(" backup"),
        Some(_) => return Err(ProblemDetails::wrong("`backup` takes true or false")),
    }
    if let Some(state) = state(&members)?.filter(|state| *state != ServerState::Enabled) {
        server.push_str(&format!(" {state}"));
    }
    Ok(server)
}

/// Parses a JSON object with known members only.
fn members(body: &[u8], known: &[&str]) -> Result<Map<String, Value>, ProblemDetails> {
    let Value::Object(members) = parsed(body)? else {
        return Err(ProblemDetails::wrong("the body is a JSON object"));
    };
    match members.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(members),
        Some(name) => {
            let known = known.join("`, `");
            Err(ProblemDetails::wrong(format!("`{name}` is not known here; known are `{known}`")))
        }
    }
}

fn missing(name: &str) -> ProblemDetails {
    ProblemDetails::wrong(format!("`{name}` is missing"))
}

fn text(members: &Map<String, Value>, name: &str) -> Result<Option<String>, ProblemDetails> {
    match members.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(ProblemDetails::wrong(format!("`{name}` is a string"))),
    }
}

fn state(members: &Map<String, Value>) -> Result<Option<ServerState>, ProblemDetails> {
    let Some(text) = text(members, "state")? else { return Ok(None) };
    let state = ServerState::from_word(&text);
    state.map(Some).ok_or_else(|| ProblemDetails::wrong("`state` takes enabled, drain or disabled"))
}

fn weight(members: &Map<String, Value>) -> Result<Option<Weight>, ProblemDetails> {
    let Some(value) = members.get("weight") else { return Ok(None) };
    let weight = value.as_u64().and_then(|number| u16::try_from(number).ok()).and_then(Weight::new);
    weight.map(Some).ok_or_else(|| ProblemDetails::wrong("`weight` is a whole number from 1 to 256"))
}

fn report(done: &Report, dry_run: bool) -> Value {
    let Report { version, changes, warnings, opens, closes, connections, open, confirm_until, persisted } =
        done;
    json!({
        "version": version,
        "dry_run": dry_run,
        "changes": changes.lines,
        "new_certificates": changes.new_certificates,
        "needs_an_upgrade": changes.needs_restart,
        "touched": { "opens": opens, "closes": closes, "connections": connections, "open": open },
        "warnings": warnings,
        "confirm_until": confirm_until.map(time),
        "persisted": persisted,
    })
}
