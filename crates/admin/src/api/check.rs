//! Trial of a configuration's text: its mistakes and warnings with their places. Nothing changes, and nothing on disk is
//! looked at but the files that it includes: the trial of a change (`dry_run`) finds what only they can tell.

use std::path::{Path, PathBuf};

use hyper::StatusCode;
use hyper::body::Bytes;
use offramp_config::{Document, Environment, Problem, Severity, absolute, load_document};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::{Control, ProblemDetails};

/// The name of the text in messages, where there is no file.
const NAME: &str = "offramp.toml";

/// Checks a text as if it were in the place of the configuration's file.
pub(super) async fn answer(control: &Control, body: &Bytes) -> Result<Value, ProblemDetails> {
    let text =
        String::from_utf8(body.to_vec()).map_err(|_| ProblemDetails::wrong("the document is not UTF-8"))?;
    // The semaphore is never closed; a large text takes a core for a while.
    let place = control.trials.clone().acquire_owned().await;
    let path = control.view.file().map_or_else(|| PathBuf::from(NAME), Clone::clone);
    let job = spawn_blocking(move || {
        let answer = checked(&text, &path);
        drop(place);
        answer
    });
    job.await.map_err(|_| {
        let why = "checking failed by a fault of Offramp's own; please report it";
        ProblemDetails::new(StatusCode::INTERNAL_SERVER_ERROR, why)
    })
}

fn checked(text: &str, path: &Path) -> Value {
    let name = path.display().to_string();
    let whole = absolute(path).unwrap_or_else(|_| Path::new("/").join(NAME));
    let document = Document { name: &name, path: &whole };
    // It decides nothing but where the state is kept by default.
    let environment =
        Environment { is_root: offramp_net::process::is_root(), xdg_state_home: None, home: None };
    let (ok, problems) = match load_document(text, &document, &environment) {
        Ok((_, warnings)) => (true, warnings),
        Err(errors) => (false, errors.problems().to_vec()),
    };
    let of = |severity: Severity| -> Vec<Value> {
        let own = problems.iter().filter(|problem| problem.severity() == severity);
        own.take(MOST).map(|problem| finding(problem, text, &name)).collect()
    };
    json!({ "ok": ok, "errors": of(Severity::Error), "warnings": of(Severity::Warning) })
}

/// The most findings of a kind; a text of garbage has thousands.
const MOST: usize = 200;

/// A mistake or a warning. One in an included file has no line of this text, and names the file.
fn finding(problem: &Problem, text: &str, name: &str) -> Value {
    let remedy = problem.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    let message = format!("{}{remedy}", problem.message());
    match problem.place() {
        Some(place) if &*place.file == name => json!({
            "line": place.line, "column": place.column, "end_column": problem.end_column(),
            "key": key_at(text, place.line), "message": message,
        }),
        place => {
            let before = place.map(|place| format!("{place}: ")).unwrap_or_default();
            json!({
                "line": null, "column": null, "end_column": null, "key": null,
                "message": format!("{before}{message}"),
            })
        }
    }
}

/// The path of the key in a line (from 1), or of the last one before it in its section; that of the section in the line of
/// its header. A guess for a line in a text of several lines.
fn key_at(text: &str, line: usize) -> Option<String> {
    let (mut section, mut key) = (String::new(), None);
    for line in text.lines().take(line) {
        let line = line.trim_start();
        if let Some(header) = line.strip_prefix('[').map(|header| header.trim_start_matches('[')) {
            if let Some((name, _)) = header.split_once(']').filter(|(name, _)| is_key(name)) {
                section = name.trim().to_owned();
                key = None;
            }
        } else if let Some((name, _)) = line.split_once('=').filter(|(name, _)| is_key(name)) {
            key = Some(name.trim().to_owned());
        }
    }
    match (section.is_empty(), key) {
        (true, key) => key,
        (false, Some(key)) => Some(format!("{section}.{key}")),
        (false, None) => Some(section),
    }
}

/// Returns `true` for a key of TOML, which may be dotted and quoted.
fn is_key(text: &str) -> bool {
    let of_key = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '"' | '\'' | ' ' | '*');
    // Half a string is a part of a value.
    let is_closed = ['"', '\''].iter().all(|quote| text.matches(*quote).count() % 2 == 0);
    !text.trim().is_empty() && text.chars().all(of_key) && is_closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_has_its_place_and_key() {
        let text = "# a comment\n[limits]\nconnections = 0\n\n[[listener]]\nadress = \"127.0.0.1:0\"\n\
                    networks = [\n  \"10.0.0.0/8\",\n]\n[[route]]\nhost = \"a.test\"\nbackend = \"none\"\n";
        let answer = checked(text, Path::new("/etc/x.toml"));
        assert_eq!(answer["ok"], false);
        let errors = answer["errors"].as_array().unwrap();
        let places: Vec<(u64, &str)> = errors
            .iter()
            .filter_map(|error| Some((error["line"].as_u64()?, error["key"].as_str()?)))
            .collect();
        for place in [(3, "limits.connections"), (6, "listener.adress"), (12, "route.backend")] {
            assert!(places.contains(&place), "{place:?}: {answer:#}");
        }
        let wrong = errors.iter().find(|error| error["line"] == 6).unwrap();
        assert_eq!((wrong["column"].as_u64(), wrong["end_column"].as_u64()), (Some(1), Some(7)));
        assert!(wrong["message"].as_str().unwrap().contains("`address`"), "{wrong}");
    }

    #[test]
    fn a_sound_text_is_sound() {
        let text = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n[[route]]\n\
                    respond = { body = \"hello\" }\n";
        let answer = checked(text, Path::new("x.toml"));
        assert_eq!((&answer["ok"], &answer["errors"]), (&true.into(), &json!([])));
    }

    #[test]
    fn the_key_of_a_line_is_found() {
        let text = "a = 1\n[one.\"two\"]\n# b = 2\nc = [\n  \"d = 3\",\n]\n[[three]]\n";
        let keys: Vec<Option<String>> = (1..=7).map(|line| key_at(text, line)).collect();
        let keys: Vec<Option<&str>> = keys.iter().map(Option::as_deref).collect();
        let c = Some("one.\"two\".c");
        let two = Some("one.\"two\"");
        assert_eq!(keys, [Some("a"), two, two, c, c, c, Some("three")]);
    }
}
