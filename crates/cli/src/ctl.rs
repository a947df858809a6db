//! `offramp ctl`: requests to the admin interface of a running Offramp, and the output of its answers.

pub(crate) mod client;
mod conns;
mod items;
mod show;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::{fs, io};

use clap::ValueEnum as _;
use offramp_config::model::ListenAddress;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::flags::ctl::{
    AdminAddress, ChangeOptions, Ctl, CtlCommand, CtlOptions, ReachOptions, ServerCommand, ServerSelector,
    ShowSubject, WatchedEvent,
};
use crate::surroundings::{self, print};

use client::{AdminClient, AdminRequest};

/// Runs a subcommand of `ctl`.
///
/// # Errors
/// No Offramp answers, or it refuses.
pub(crate) fn run(arguments: Ctl) -> Result<(), Failure> {
    let Ctl { reach, command } = arguments;
    let mut problem = None;
    let outcome = AdminClient::of(&reach).and_then(|client| {
        let outcome = carry_out(&client, &reach, &command);
        problem = client.problem.lock().unwrap_or_else(PoisonError::into_inner).take();
        outcome
    });
    if let (Err(failure), true) = (&outcome, reach.json) {
        // Failures of the client itself use the same member.
        let problem = problem.unwrap_or_else(|| {
            let text = failure.to_string();
            json!({ "detail": text.strip_prefix("error: ").unwrap_or(&text) })
        });
        print(format!("{problem:#}\n").as_bytes())?;
    }
    outcome
}

fn carry_out(client: &AdminClient, reach: &CtlOptions, command: &CtlCommand) -> Result<(), Failure> {
    if let CtlCommand::Watch { kind } = command {
        return watch(client, kind);
    }
    if let CtlCommand::Conns(conns) = command {
        return conns::run(client, conns);
    }
    let request = request(client, command)?;
    if matches!(command, CtlCommand::Show { what: ShowSubject::Config }) && !reach.json {
        return print(&client.ask(&request)?);
    }
    let answer = client.ask_json(&request)?;
    if reach.json {
        return print(format!("{answer:#}\n").as_bytes());
    }
    print(show::answer(command, &answer).as_bytes())?;
    hint(command, reach, &answer);
    Ok(())
}

/// Prints events until the output is closed or the process is interrupted.
fn watch(client: &AdminClient, kinds: &[WatchedEvent]) -> Result<(), Failure> {
    let names = kinds.iter().filter_map(WatchedEvent::to_possible_value);
    let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
    let query = if names.is_empty() { Vec::new() } else { vec![format!("kind={}", names.join("%2C"))] };
    watch::watch(client, &with("/events", &query), &mut |kind, mut data| {
        let line = if client.json {
            if let Some(members) = data.as_object_mut() {
                members.insert("kind".to_owned(), kind.into());
            }
            format!("{data}\n")
        } else {
            show::event(kind, &data)
        };
        surroundings::show(line.as_bytes())
    })
}

/// Prints the command that confirms a change which is taken back otherwise.
fn hint(command: &CtlCommand, reach: &CtlOptions, answer: &Value) {
    let waits = answer["confirm_until"].as_str().filter(|_| answer["dry_run"] == false);
    if let (Some(until), false) = (waits, matches!(command, CtlCommand::Confirm { .. })) {
        surroundings::say(&format!(
            "It is taken back at {until}, unless you confirm it: offramp ctl{} confirm",
            reach_options(&reach.at)
        ));
    }
}

/// Formats the options that select the same Offramp from any directory, quoted for a shell.
fn reach_options(at: &ReachOptions) -> String {
    let absolute = |path: &Path| {
        let path = offramp_config::absolute(path).unwrap_or_else(|_| path.to_owned());
        path.display().to_string()
    };
    let admin = at.admin.as_ref().map(|admin| match admin {
        AdminAddress::Plain(ListenAddress::Unix(path)) => format!("unix:{}", absolute(path)),
        other => other.to_string(),
    });
    let file = |path: &Option<PathBuf>| path.as_deref().map(absolute);
    let options = [
        ("-c", file(&at.config)),
        ("--admin", admin),
        ("--cacert", file(&at.cacert)),
        ("--token-file", file(&at.token_file)),
    ];
    let given = options.into_iter().filter_map(|(name, value)| Some(format!(" {name} {}", quoted(&value?))));
    given.collect()
}

/// Quotes a text as one word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn request(client: &AdminClient, command: &CtlCommand) -> Result<AdminRequest, Failure> {
    let get = |path: &str| Ok(AdminRequest::new("GET", path));
    let post = |path: &str, is_set: bool, name: &str| {
        let query: Vec<String> = flag(is_set, name).into_iter().collect();
        Ok(AdminRequest::new("POST", &with(path, &query)))
    };
    match command {
        CtlCommand::Status => get("/status"),
        CtlCommand::Watch { .. } => get("/events"),
        CtlCommand::Conns(_) => get("/connections"),
        CtlCommand::Show { what: ShowSubject::Config } => {
            get(if client.json { "/config" } else { "/config?format=toml" })
        }
        CtlCommand::Show { what } => {
            let name = what.to_possible_value().map(|value| value.get_name().to_owned());
            get(&format!("/{}", name.unwrap_or_default()))
        }
        CtlCommand::Plan { file, persist, force } => {
            let mut query = vec!["dry_run".to_owned()];
            query.extend(flag(*persist, "persist"));
            query.extend(flag(*force, "force"));
            document(file, &query)
        }
        CtlCommand::Apply { file, expect, force, terms } => {
            let mut query = query(terms);
            query.extend(flag(*force, "force"));
            let mut request = document(file, &query)?;
            request.expect = *expect;
            Ok(request)
        }
        CtlCommand::Confirm { no_persist } => post("/confirm", *no_persist, "no_persist"),
        CtlCommand::Persist { dry_run } => post("/persist", *dry_run, "dry_run"),
        CtlCommand::Rollback { version, dry_run } => {
            let to = version.map(|version| format!("to={version}"));
            let dry_run = dry_run.then(|| "dry_run".to_owned());
            let query: Vec<String> = to.into_iter().chain(dry_run).collect();
            Ok(AdminRequest::new("POST", &with("/rollback", &query)))
        }
        CtlCommand::History { refused: false } => get("/changes"),
        CtlCommand::History { refused: true } => get("/refused"),
        CtlCommand::Reload { dry_run, force } => {
            let query: Vec<String> =
                flag(*dry_run, "dry_run").into_iter().chain(flag(*force, "force")).collect();
            Ok(AdminRequest::new("POST", &with("/reload", &query)))
        }
        CtlCommand::Upgrade { force } => post("/upgrade", *force, "force"),
        CtlCommand::Stop { now } => Ok(AdminRequest::new("POST", if *now { "/stop?now" } else { "/stop" })),
        CtlCommand::Server { command } => Ok(server(command)),
        CtlCommand::Route { command } => items::route(command),
        CtlCommand::Backend { command } => items::keyed("/backends", command),
        CtlCommand::Listener { command } => items::keyed("/listeners", command),
        CtlCommand::Certificate { command } => items::keyed("/certificates", command),
        CtlCommand::LogLevel { level, terms } => {
            let level = level.to_possible_value().map(|value| value.get_name().to_owned());
            Ok(AdminRequest::json("PUT", &with("/log-level", &query(terms)), &json!({ "level": level })))
        }
    }
}

fn server(command: &ServerCommand) -> AdminRequest {
    let (ServerSelector { backend, server }, terms, change) = match command {
        ServerCommand::Drain { named, terms } => (named, terms, json!({ "state": "drain" })),
        ServerCommand::Enable { named, terms } => (named, terms, json!({ "state": "enabled" })),
        ServerCommand::Disable { named, terms } => (named, terms, json!({ "state": "disabled" })),
        ServerCommand::Weight { named, weight, terms } => (named, terms, json!({ "weight": weight })),
        ServerCommand::Add { named, weight, backup, terms } => {
            let mut keys = json!({ "address": named.server, "backup": backup });
            if let Some(weight) = weight {
                keys["weight"] = (*weight).into();
            }
            let path = format!("/backends/{}/servers", segment(&named.backend));
            return AdminRequest::json("POST", &with(&path, &query(terms)), &keys);
        }
        ServerCommand::Remove { named: ServerSelector { backend, server }, terms } => {
            let path = format!("/backends/{}/servers/{}", segment(backend), segment(server));
            return AdminRequest::new("DELETE", &with(&path, &query(terms)));
        }
    };
    let path = format!("/backends/{}/servers/{}", segment(backend), segment(server));
    AdminRequest::json("PATCH", &with(&path, &query(terms)), &change)
}

/// Request that uploads a configuration file. Its relative paths start at its directory, as with `check`.
fn document(file: &Path, terms: &[String]) -> Result<AdminRequest, Failure> {
    let unreadable = |error| Failure::usage(format_args!("error: cannot read {}: {error}", file.display()));
    let piped = file == Path::new("-");
    let text = if piped { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
    let text = text.map_err(unreadable)?;
    // Relative paths of standard input start at the working directory.
    let absolute = offramp_config::absolute(file).map_err(unreadable)?;
    let folder = absolute.parent().map(PathBuf::from).unwrap_or_default();
    let name = if piped { "standard input".to_owned() } else { file.display().to_string() };
    let mut query = terms.to_vec();
    query.push(format!("name={}", segment(&name)));
    query.push(format!("folder={}", segment(&folder.display().to_string())));
    let mut request = AdminRequest::new("PUT", &with("/config", &query));
    request.body = Some(("application/toml", text.into_bytes()));
    Ok(request)
}

fn flag(is_set: bool, name: &str) -> Option<String> {
    is_set.then(|| name.to_owned())
}

fn query(terms: &ChangeOptions) -> Vec<String> {
    let confirm = terms.confirm.as_ref().map(|time| format!("confirm={}", segment(time)));
    let persist = terms.persist.then(|| "persist".to_owned());
    let dry_run = terms.dry_run.then(|| "dry_run".to_owned());
    confirm.into_iter().chain(persist).chain(dry_run).collect()
}

fn with(path: &str, query: &[String]) -> String {
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

/// Percent-encodes a text as one path segment or query value (RFC 3986 §2.3).
pub(crate) fn segment(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_offramp_is_named_from_any_directory_as_a_shell_takes_it() {
        let mut at = ReachOptions {
            admin: Some("https://[2001:db8::1]:9901".parse().unwrap()),
            cacert: Some("/etc/it's/ca.pem".into()),
            token_file: Some("/etc/token".into()),
            config: Some("/etc/my configuration.toml".into()),
        };
        let expected = " -c '/etc/my configuration.toml' --admin 'https://[2001:db8::1]:9901' \
                        --cacert '/etc/it'\\''s/ca.pem' --token-file /etc/token";
        assert_eq!(reach_options(&at), expected);
        (at.admin, at.cacert, at.token_file) = (Some("unix:run/admin.sock".parse().unwrap()), None, None);
        at.config = None;
        let here = std::env::current_dir().unwrap().join("run/admin.sock");
        assert_eq!(reach_options(&at), format!(" --admin {}", quoted(&format!("unix:{}", here.display()))));
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn names_are_one_segment() {
        assert_eq!(segment("a.example,b/c d"), "a.example%2Cb%2Fc%20d");
        let named = ServerSelector { backend: "shop".to_owned(), server: "[::1]:80".to_owned() };
        let terms = ChangeOptions { confirm: Some("60s".to_owned()), persist: true, dry_run: false };
        let request = server(&ServerCommand::Drain { named, terms });
        assert_eq!(request.path, "/backends/shop/servers/%5B%3A%3A1%5D%3A80?confirm=60s&persist");
        assert_eq!(request.body.unwrap().1, br#"{"state":"drain"}"#);
    }
}
