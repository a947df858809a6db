//! What the process changes when it is asked to: each is a request to `control`, which makes one at a time.

use std::path::PathBuf;
use std::time::SystemTime;

use hyper::header::IF_MATCH;
use offramp_config::model::{ServerState, Weight};
use offramp_config::{Edit, Item, ServerEdit};
use offramp_control::{Change as Request, Report, Stopping, Terms};
use serde_json::{Map, Value, json};

use super::document::{keys, some_keys};
use super::query::Query;
use super::{Answer, Asked, Control, Problem, connections, json, time};

/// What is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Document,
    AddListener,
    PutListener,
    PatchListener,
    DeleteListener,
    AddRoute,
    PutRoute,
    PatchRoute,
    DeleteRoute,
    AddCertificate,
    PutCertificate,
    PatchCertificate,
    DeleteCertificate,
    AddBackend,
    PutBackend,
    PatchBackend,
    DeleteBackend,
    AddServer,
    PatchServer,
    DeleteServer,
    LogLevel,
    CloseConnections,
    CloseConnection,
    Reload,
    Confirm,
    Rollback,
    Upgrade,
    Stop,
}

/// Has the change made, and tells what came of it.
pub(super) async fn answer(
    control: &Control,
    what: Change,
    asked: &Asked<'_>,
    query: &Query,
) -> Result<Answer, Problem> {
    if asked.headers.contains_key(IF_MATCH) && !asked.operation.may_expect() {
        return Err(Problem::wrong(
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
        Change::Stop => {
            return Ok(Answer::Accepted(stop(control, asked, query.flag("now"))));
        }
        Change::CloseConnections => {
            return Ok(Answer::Json(connections::close(control, asked, query).await?));
        }
        Change::CloseConnection => return Ok(Answer::Json(connections::close_one(control, asked).await?)),
        Change::Upgrade => {
            let done = control.handle.replace(asked.by.clone(), terms.force).await?;
            let took = u64::try_from(done.took.as_millis()).unwrap_or(u64::MAX);
            return Ok(Answer::Json(json!({ "process": done.process, "took_ms": took })));
        }
        Change::Confirm => {
            let confirm = Request::Confirm { write: !query.flag("no_persist") };
            let done = control.handle.change(confirm, terms, asked.by.clone()).await?;
            return Ok(Answer::Changed(report(&done, false), done.version));
        }
        Change::Reload => Request::Reload,
        Change::Rollback => Request::Rollback(query.number("to")),
        Change::Document => document(asked, query)?,
        _ => Request::Edit(edit(control, what, asked)?),
    };
    let done = control.handle.change(request, terms, asked.by.clone()).await?;
    Ok(Answer::Changed(report(&done, dry_run), done.version))
}

/// Has the process stop, and tells what that means for what is open.
fn stop(control: &Control, asked: &Asked<'_>, now: bool) -> Value {
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

fn document(asked: &Asked<'_>, query: &Query) -> Result<Request, Problem> {
    let text =
        String::from_utf8(asked.body.to_vec()).map_err(|_| Problem::wrong("the document is not UTF-8"))?;
    let folder = query.text("folder").map(PathBuf::from);
    if folder.as_ref().is_some_and(|folder| !folder.is_absolute()) {
        return Err(Problem::wrong("`folder` is an absolute path"));
    }
    let name = query.text("name").unwrap_or("document").chars().take(200).collect();
    Ok(Request::Document { name, folder, text })
}

/// The change of one item.
fn edit(control: &Control, what: Change, asked: &Asked<'_>) -> Result<Edit, Problem> {
    let name = |at: usize| asked.names.get(at).cloned().unwrap_or_default();
    let put = |item| -> Result<Edit, Problem> {
        Ok(Edit::Replace { item, name: name(0), table: keys(&asked.body)? })
    };
    let patch = |item| -> Result<Edit, Problem> {
        let (table, without) = some_keys(&asked.body)?;
        Ok(Edit::Change { item, name: name(0), table, without })
    };
    let remove = |item| Ok(Edit::Remove { item, name: name(0) });
    match what {
        Change::AddListener => {
            Ok(Edit::Add { item: Item::Listener, name: name(0), table: keys(&asked.body)? })
        }
        Change::AddRoute => Ok(Edit::Add { item: Item::Route, name: name(0), table: keys(&asked.body)? }),
        Change::AddCertificate => {
            Ok(Edit::Add { item: Item::Certificate, name: name(0), table: keys(&asked.body)? })
        }
        Change::PutCertificate => put(Item::Certificate),
        Change::PatchCertificate => patch(Item::Certificate),
        Change::PatchListener => patch(Item::Listener),
        Change::PatchRoute => patch(Item::Route),
        Change::PatchBackend => patch(Item::Backend),
        Change::DeleteCertificate => remove(Item::Certificate),
        Change::PutListener => put(Item::Listener),
        Change::PutRoute => put(Item::Route),
        Change::AddBackend => {
            let mut table = keys(&asked.body)?;
            let name = table.remove("name").ok_or_else(|| missing("name"))?;
            let name = name.as_str().ok_or_else(|| Problem::wrong("`name` is a string"))?.to_owned();
            Ok(Edit::Add { item: Item::Backend, name, table })
        }
        Change::PutBackend => {
            let config = &control.view.in_force().config;
            let is_there = config.backends.iter().any(|backend| backend.name.as_str() == name(0));
            if is_there {
                return put(Item::Backend);
            }
            Ok(Edit::Add { item: Item::Backend, name: name(0), table: keys(&asked.body)? })
        }
        Change::DeleteListener => remove(Item::Listener),
        Change::DeleteRoute => remove(Item::Route),
        Change::DeleteBackend => remove(Item::Backend),
        Change::LogLevel => {
            let members = members(&asked.body, &["level"])?;
            let value = text(&members, "level")?.ok_or_else(|| missing("level"))?;
            Ok(Edit::Set { section: "log", key: "level", value })
        }
        Change::DeleteServer => {
            Ok(Edit::Server { backend: name(0), server: name(1), change: ServerEdit::Remove })
        }
        Change::PatchServer => {
            let members = members(&asked.body, &["state", "weight"])?;
            let change = ServerEdit::Change { state: state(&members)?, weight: weight(&members)? };
            Ok(Edit::Server { backend: name(0), server: name(1), change })
        }
        _ => Ok(Edit::Server { backend: name(0), server: new_server(&asked.body)?, change: ServerEdit::Add }),
    }
}

/// A server as the configuration writes it.
fn new_server(body: &[u8]) -> Result<String, Problem> {
    let members = members(body, &["address", "weight", "backup", "state"])?;
    let mut server = text(&members, "address")?.ok_or_else(|| missing("address"))?;
    if server.is_empty() || server.contains(char::is_whitespace) {
        return Err(Problem::wrong("`address` is an address, such as 10.0.0.7:3000"));
    }
    if let Some(weight) = weight(&members)? {
        server.push_str(&format!(" weight={weight}"));
    }
    match members.get("backup") {
        None | Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) => server.push_str(" backup"),
        Some(_) => return Err(Problem::wrong("`backup` takes true or false")),
    }
    if let Some(state) = state(&members)?.filter(|state| *state != ServerState::Enabled) {
        server.push_str(&format!(" {state}"));
    }
    Ok(server)
}

/// The members of a JSON object, which may have these.
fn members(body: &[u8], known: &[&str]) -> Result<Map<String, Value>, Problem> {
    let Value::Object(members) = json::value(body)? else {
        return Err(Problem::wrong("the body is a JSON object"));
    };
    match members.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(members),
        Some(name) => {
            let known = known.join("`, `");
            Err(Problem::wrong(format!("`{name}` is not known here; known are `{known}`")))
        }
    }
}

fn missing(name: &str) -> Problem {
    Problem::wrong(format!("`{name}` is missing"))
}

fn text(members: &Map<String, Value>, name: &str) -> Result<Option<String>, Problem> {
    match members.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Problem::wrong(format!("`{name}` is a string"))),
    }
}

fn state(members: &Map<String, Value>) -> Result<Option<ServerState>, Problem> {
    let Some(text) = text(members, "state")? else { return Ok(None) };
    let state = ServerState::from_word(&text);
    state.map(Some).ok_or_else(|| Problem::wrong("`state` takes enabled, drain or disabled"))
}

fn weight(members: &Map<String, Value>) -> Result<Option<Weight>, Problem> {
    let Some(value) = members.get("weight") else { return Ok(None) };
    let weight = value.as_u64().and_then(|number| u16::try_from(number).ok()).and_then(Weight::new);
    weight.map(Some).ok_or_else(|| Problem::wrong("`weight` is a whole number from 1 to 256"))
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
