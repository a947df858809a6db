//! `ctl`: asks the running Offramp, by its admin interface, and shows its answers.

mod client;
mod conns;
mod items;
mod show;
mod watch;

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::ValueEnum as _;
use offramp_config::model::ListenAddress;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::flags::ctl::{Admin, Command, Ctl, Kind, Named, Reach, Server, Terms, What};
use crate::surroundings::{self, print};

use client::{Client, Request};

/// Does what is asked for.
///
/// # Errors
/// No Offramp answers, or it refuses.
pub(crate) fn run(arguments: Ctl) -> Result<(), Failure> {
    let Ctl { reach, command } = arguments;
    let mut problem = None;
    let outcome = Client::of(&reach).and_then(|client| {
        let outcome = carry_out(&client, &reach, &command);
        problem = client.problem.take();
        outcome
    });
    if let (Err(failure), true) = (&outcome, reach.json) {
        // What the admin interface has not said is told in the same member.
        let problem = problem.unwrap_or_else(|| {
            let text = failure.to_string();
            json!({ "detail": text.strip_prefix("error: ").unwrap_or(&text) })
        });
        print(format!("{problem:#}\n").as_bytes())?;
    }
    outcome
}

fn carry_out(client: &Client, reach: &Reach, command: &Command) -> Result<(), Failure> {
    if let Command::Watch { kind } = command {
        return watch(client, kind);
    }
    if let Command::Conns(conns) = command {
        return conns::run(client, conns);
    }
    let request = request(client, command)?;
    if matches!(command, Command::Show { what: What::Config }) && !reach.json {
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

/// Shows events until somebody ends it.
fn watch(client: &Client, kinds: &[Kind]) -> Result<(), Failure> {
    let names = kinds.iter().filter_map(Kind::to_possible_value);
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

/// Says how to keep a change that is taken back otherwise.
fn hint(command: &Command, reach: &Reach, answer: &Value) {
    let waits = answer["confirm_until"].as_str().filter(|_| answer["dry_run"] == false);
    if let (Some(until), false) = (waits, matches!(command, Command::Confirm { .. })) {
        surroundings::say(&format!(
            "It is taken back at {until}, unless you confirm it: offramp ctl{} confirm",
            same(reach)
        ));
    }
}

/// The options that lead to the same Offramp, from any directory, as a shell takes them.
fn same(reach: &Reach) -> String {
    let absolute = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        path.display().to_string()
    };
    let admin = reach.admin.as_ref().map(|admin| match admin {
        Admin::Plain(ListenAddress::Unix(path)) => format!("unix:{}", absolute(path)),
        other => other.to_string(),
    });
    let file = |path: &Option<PathBuf>| path.as_deref().map(absolute);
    let options = [
        ("-c", file(&reach.config)),
        ("--admin", admin),
        ("--cacert", file(&reach.cacert)),
        ("--token-file", file(&reach.token_file)),
    ];
    let given = options.into_iter().filter_map(|(name, value)| Some(format!(" {name} {}", quoted(&value?))));
    given.collect()
}

/// A word of a shell.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn request(client: &Client, command: &Command) -> Result<Request, Failure> {
    let get = |path: &str| Ok(Request::new("GET", path));
    let post = |path: &str, is_set: bool, name: &str| {
        let query: Vec<String> = flag(is_set, name).into_iter().collect();
        Ok(Request::new("POST", &with(path, &query)))
    };
    match command {
        Command::Status => get("/status"),
        Command::Watch { .. } => get("/events"),
        Command::Conns(_) => get("/connections"),
        Command::Show { what: What::Config } => {
            get(if client.json { "/config" } else { "/config?format=toml" })
        }
        Command::Show { what } => {
            let name = what.to_possible_value().map(|value| value.get_name().to_owned());
            get(&format!("/{}", name.unwrap_or_default()))
        }
        Command::Plan { file, persist, force } => {
            let mut query = vec!["dry_run".to_owned()];
            query.extend(flag(*persist, "persist"));
            query.extend(flag(*force, "force"));
            document(file, &query)
        }
        Command::Apply { file, expect, force, terms } => {
            let mut query = query(terms);
            query.extend(flag(*force, "force"));
            let mut request = document(file, &query)?;
            request.expect = *expect;
            Ok(request)
        }
        Command::Confirm { no_persist } => post("/confirm", *no_persist, "no_persist"),
        Command::Rollback { version, dry_run } => {
            let to = version.map(|version| format!("to={version}"));
            let dry_run = dry_run.then(|| "dry_run".to_owned());
            let query: Vec<String> = to.into_iter().chain(dry_run).collect();
            Ok(Request::new("POST", &with("/rollback", &query)))
        }
        Command::History { refused: false } => get("/changes"),
        Command::History { refused: true } => get("/refused"),
        Command::Reload { dry_run, force } => {
            let query: Vec<String> =
                flag(*dry_run, "dry_run").into_iter().chain(flag(*force, "force")).collect();
            Ok(Request::new("POST", &with("/reload", &query)))
        }
        Command::Upgrade { force } => post("/upgrade", *force, "force"),
        Command::Stop { now } => Ok(Request::new("POST", if *now { "/stop?now" } else { "/stop" })),
        Command::Server { command } => Ok(server(command)),
        Command::Route { command } => items::route(command),
        Command::Backend { command } => items::keyed("/backends", command),
        Command::Listener { command } => items::keyed("/listeners", command),
        Command::Certificate { command } => items::keyed("/certificates", command),
        Command::LogLevel { level, terms } => {
            let level = level.to_possible_value().map(|value| value.get_name().to_owned());
            Ok(Request::json("PUT", &with("/log-level", &query(terms)), &json!({ "level": level })))
        }
    }
}

fn server(command: &Server) -> Request {
    let (Named { backend, server }, terms, change) = match command {
        Server::Drain { named, terms } => (named, terms, json!({ "state": "drain" })),
        Server::Enable { named, terms } => (named, terms, json!({ "state": "enabled" })),
        Server::Disable { named, terms } => (named, terms, json!({ "state": "disabled" })),
        Server::Weight { named, weight, terms } => (named, terms, json!({ "weight": weight })),
        Server::Add { named, weight, backup, terms } => {
            let mut keys = json!({ "address": named.server, "backup": backup });
            if let Some(weight) = weight {
                keys["weight"] = (*weight).into();
            }
            let path = format!("/backends/{}/servers", segment(&named.backend));
            return Request::json("POST", &with(&path, &query(terms)), &keys);
        }
        Server::Remove { named: Named { backend, server }, terms } => {
            let path = format!("/backends/{}/servers/{}", segment(backend), segment(server));
            return Request::new("DELETE", &with(&path, &query(terms)));
        }
    };
    let path = format!("/backends/{}/servers/{}", segment(backend), segment(server));
    Request::json("PATCH", &with(&path, &query(terms)), &change)
}

/// A configuration that is sent as it is. Its relative paths start at its directory, as with `check`.
fn document(file: &Path, terms: &[String]) -> Result<Request, Failure> {
    let unreadable = |error| Failure::usage(format_args!("error: cannot read {}: {error}", file.display()));
    let piped = file == Path::new("-");
    let text = if piped { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
    let text = text.map_err(unreadable)?;
    // What is piped belongs to the directory where one stands.
    let absolute = std::path::absolute(file).map_err(unreadable)?;
    let folder = absolute.parent().map(PathBuf::from).unwrap_or_default();
    let name = if piped { "standard input".to_owned() } else { file.display().to_string() };
    let mut query = terms.to_vec();
    query.push(format!("name={}", segment(&name)));
    query.push(format!("folder={}", segment(&folder.display().to_string())));
    let mut request = Request::new("PUT", &with("/config", &query));
    request.body = Some(("application/toml", text.into_bytes()));
    Ok(request)
}

fn flag(is_set: bool, name: &str) -> Option<String> {
    is_set.then(|| name.to_owned())
}

fn query(terms: &Terms) -> Vec<String> {
    let confirm = terms.confirm.as_ref().map(|time| format!("confirm={}", segment(time)));
    let persist = terms.persist.then(|| "persist".to_owned());
    let dry_run = terms.dry_run.then(|| "dry_run".to_owned());
    confirm.into_iter().chain(persist).chain(dry_run).collect()
}

fn with(path: &str, query: &[String]) -> String {
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

/// A text as one segment of a path, or as one value of a query (RFC 3986 §2.3).
fn segment(text: &str) -> String {
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
        let mut reach = Reach {
            admin: Some("https://[2001:db8::1]:9901".parse().unwrap()),
            cacert: Some("/etc/it's/ca.pem".into()),
            token_file: Some("/etc/token".into()),
            config: Some("/etc/my configuration.toml".into()),
            json: false,
            timeout: None,
        };
        let expected = " -c '/etc/my configuration.toml' --admin 'https://[2001:db8::1]:9901' \
                        --cacert '/etc/it'\\''s/ca.pem' --token-file /etc/token";
        assert_eq!(same(&reach), expected);
        (reach.admin, reach.cacert, reach.token_file) =
            (Some("unix:run/admin.sock".parse().unwrap()), None, None);
        reach.config = None;
        let here = std::env::current_dir().unwrap().join("run/admin.sock");
        assert_eq!(same(&reach), format!(" --admin {}", quoted(&format!("unix:{}", here.display()))));
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn names_are_one_segment() {
        assert_eq!(segment("a.example,b/c d"), "a.example%2Cb%2Fc%20d");
        let named = Named { backend: "shop".to_owned(), server: "[::1]:80".to_owned() };
        let terms = Terms { confirm: Some("60s".to_owned()), persist: true, dry_run: false };
        let request = server(&Server::Drain { named, terms });
        assert_eq!(request.path, "/backends/shop/servers/%5B%3A%3A1%5D%3A80?confirm=60s&persist");
        assert_eq!(request.body.unwrap().1, br#"{"state":"drain"}"#);
    }
}
