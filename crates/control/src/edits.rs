//! Edits of the configuration's text: single items change in the text, so that every state of the process is one that a
//! file could have.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use offramp_config::{
    At, Config, Document, EDITED, Edit, EditError, Environment, Errors, Problem, Severity,
    keep_until_restart, load_document,
};
use offramp_process::{Error, Finding, Source};

use crate::change::NotChanged;
use crate::running_config::RunningConfig;

/// A configuration with edits.
pub(crate) struct Edited {
    pub(crate) config: Config,
    /// The text with the edits.
    pub(crate) text: Arc<str>,
    /// Warnings that are new.
    pub(crate) warnings: Vec<Finding>,
}

/// Makes edits to a configuration, one after the other. They must lead to a sound one.
///
/// # Errors
/// One of them cannot be made, or leads to no sound configuration; which, or their number for all of them.
pub(crate) fn edited(
    running: &RunningConfig,
    edits: &[&Edit],
    source: &Source,
) -> Result<Edited, (usize, NotChanged)> {
    // An item of the user's text may have a form that edits do not know, such as an inline table. The printed form has none.
    match edit_text(running.text.as_ref().to_owned(), &running.config, edits, source) {
        Err((_, Wrong::Edit(EditError::Form(_)) | Wrong::Other)) => {}
        outcome => return outcome.map_err(|(at, wrong)| (at, wrong.into_refusal(&running.config))),
    }
    let printed = Edit::text_of(&running.config);
    edit_text(printed, &running.config, edits, source)
        .map_err(|(at, wrong)| (at, wrong.into_refusal(&running.config)))
}

fn edit_text(
    text: String,
    config: &Config,
    edits: &[&Edit],
    source: &Source,
) -> Result<Edited, (usize, Wrong)> {
    let read = |text: &str| {
        let (mut read, warnings) = parse(&source.environment, text, EDITED, source.origin.path())?;
        // No edit changes these keys, and a text may have other values of them than are in force.
        keep_until_restart(config, &mut read);
        Ok((read, warnings))
    };
    let (same, known) = read(&text).map_err(|_: Error| (edits.len(), Wrong::Other))?;
    if same != *config {
        return Err((edits.len(), Wrong::Other));
    }
    let start = Text { text, config: same, warnings: Vec::new() };
    let made = match make(&start, edits, edits.len(), read) {
        // Which one is wrong is found by reading after each.
        Err(_) if edits.len() > 1 => make(&start, edits, 1, read),
        made => made,
    };
    let Text { text, config: mut edited, warnings } = made?;
    edited.keep_places(config);
    let warnings = all_in_words(&unknown(warnings, &known), &text, config);
    Ok(Edited { config: edited, text: text.into(), warnings })
}

/// A text that edits are made in, and what it was read as.
#[derive(Clone)]
struct Text {
    text: String,
    config: Config,
    warnings: Vec<Finding>,
}

/// The reason why edits cannot be made.
enum Wrong {
    Edit(EditError),
    /// They lead to this text.
    Text(Error, String),
    /// The text does not say what is in force.
    Other,
}

impl Wrong {
    fn into_refusal(self, config: &Config) -> NotChanged {
        match self {
            Self::Edit(error) => error.into(),
            Self::Text(error, text) => Error::from(all_in_words(error.findings(), &text, config)).into(),
            Self::Other => {
                let why = "this configuration cannot be changed item by item; change the whole of it";
                Error::one(why).into()
            }
        }
    }
}

/// Makes edits one after the other, and reads the text as seldom as can be: each time costs milliseconds where there are
/// a thousand routes. At most so many are made between.
fn make(
    start: &Text,
    edits: &[&Edit],
    between: usize,
    read: impl Fn(&str) -> Result<(Config, Vec<Finding>), Error>,
) -> Result<Text, (usize, Wrong)> {
    let (mut now, mut done) = (start.clone(), 0);
    while done < edits.len() {
        let next = &edits[done..edits.len().min(done + between)];
        let made = Edit::apply_some(next, &now.text, &now.config, EDITED);
        let (text, made) = made.map_err(|(at, error)| (done + at, Wrong::Edit(error)))?;
        done += made;
        now = match read(&text) {
            Ok((config, warnings)) => Text { text, config, warnings },
            Err(error) => return Err((done - 1, Wrong::Text(error, text))),
        };
    }
    Ok(now)
}

/// Reads a text, and tells its warnings.
pub(crate) fn parse(
    environment: &Environment,
    text: &str,
    name: &str,
    path: &Path,
) -> Result<(Config, Vec<Finding>), Error> {
    let document = Document { name, path };
    let (config, warnings) =
        load_document(text, &document, environment).map_err(|errors| refused(&errors))?;
    Ok((config, warnings.iter().map(finding).collect()))
}

/// The warnings that are not known. The lines that they name may be others.
pub(crate) fn unknown(warnings: Vec<Finding>, known: &[Finding]) -> Vec<Finding> {
    let without_lines = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    let known: HashSet<String> = known.iter().map(|one| without_lines(&one.text)).collect();
    warnings.into_iter().filter(|one| !known.contains(&without_lines(&one.text))).collect()
}

fn all_in_words(findings: &[Finding], text: &str, config: &Config) -> Vec<Finding> {
    findings.iter().map(|finding| in_words(finding, text, config)).collect()
}

/// A finding about the text of an edit, which is no file: its lines are named by the items that stand there.
fn in_words(finding: &Finding, text: &str, config: &Config) -> Finding {
    let said = offramp_config::without_lines(&finding.text, text, config);
    let own = finding.at.place().filter(|place| &*place.file == EDITED);
    match own.and_then(|place| offramp_config::item_at(text, place.line, config)) {
        Some(item) => Finding::nowhere(format!("{item}: {said}")),
        None => Finding::new(&finding.at, said),
    }
}

/// Every mistake of a text.
pub(crate) fn refused(errors: &Errors) -> Error {
    let is_error = |problem: &&Problem| problem.severity() == Severity::Error;
    errors.problems().iter().filter(is_error).map(finding).collect::<Vec<_>>().into()
}

pub(crate) fn finding(problem: &offramp_config::Problem) -> Finding {
    let at = problem.place().map_or(At::NOWHERE, |place| place.clone().into());
    let text = match problem.remedy() {
        Some(remedy) => format!("{}; {remedy}", problem.message()),
        None => problem.message().to_owned(),
    };
    Finding { at, text }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use offramp_config::ServerEdit;
    use offramp_config::model::ServerState;

    use super::*;
    use offramp_process::Origin;

    /// The text of the user stays where edits know its form; where they do not, the printed form takes its place.
    #[test]
    fn comments_of_the_text_stay() {
        let read = |text: &str| {
            let config = offramp_config::parse(text, "/c/c.toml", &Environment::default()).unwrap().0;
            RunningConfig::read(Arc::new(config), text)
        };
        let source = Source { origin: Origin::File("/c/c.toml".into()), environment: Environment::default() };
        let change = ServerEdit::Change { state: Some(ServerState::Drain), weight: None };
        let drain = Edit::Server { backend: "b".to_owned(), server: "h:1".to_owned(), change };
        let route = "[[route]]\nbackend = \"b\"\n";
        let table = format!("# mine\nworkers = 3\n{route}[backend.b] # ours\nservers = [\"h:1\"]\n");
        let edit =
            |running: &RunningConfig| edited(running, &[&drain], &source).map_err(|(_, why)| why).unwrap();
        let Edited { config, text, .. } = edit(&read(&table));
        assert_eq!(&*text, table.replace("h:1", "h:1 drain"));
        assert_eq!(config.backends[0].servers[0].state, ServerState::Drain);
        let inline = format!("# mine\nbackend.b = {{ servers = [\"h:1\"] }}\n{route}");
        assert!(edit(&read(&inline)).text.contains("\"h:1 drain\""));
        // A key that takes effect later is kept in the text, and is not in force.
        let mut running = read(&table);
        running.text = table.replace("workers = 3", "workers = 4").into();
        let Edited { config, text, .. } = edit(&running);
        assert!(text.contains("workers = 4"));
        assert_eq!(config.process.workers, running.config.process.workers);
    }

    /// As many as pass over at an upgrade.
    #[test]
    fn many_edits_need_few_readings() {
        let servers: Vec<String> = (0..100).map(|at| format!("\"h:{}\"", at + 1)).collect();
        let text = format!("[[route]]\nbackend = \"b\"\n[backend.b]\nservers = [{}]\n", servers.join(", "));
        let environment = Environment::default();
        let config = offramp_config::parse(&text, "/c/c.toml", &environment).unwrap().0;
        let change = ServerEdit::Change { state: Some(ServerState::Drain), weight: None };
        let drain = |at: usize| Edit::Server {
            backend: "b".to_owned(),
            server: format!("h:{}", at + 1),
            change: change.clone(),
        };
        let route = |at: usize| {
            let text =
                format!("add = \"route\"\nname = \"\"\n[keys]\nhost = \"h{at}.example\"\nbackend = \"b\"\n");
            Edit::from_text(&text).unwrap()
        };
        let edits: Vec<Edit> = (0..100).flat_map(|at| [drain(at), route(at)]).collect();
        let edits: Vec<&Edit> = edits.iter().collect();
        let text = Edit::text_of(&config);
        let (config, warnings) = parse(&environment, &text, EDITED, Path::new("/c/c.toml")).unwrap();
        let start = Text { text, config, warnings };
        let readings = Cell::new(0);
        let read = |text: &str| {
            readings.set(readings.get() + 1);
            parse(&environment, text, EDITED, Path::new("/c/c.toml"))
        };
        let Ok(made) = make(&start, &edits, edits.len(), read) else { panic!("they can be made") };
        assert_eq!((readings.get(), made.config.routes.len()), (1, 101));
        assert!(made.config.backends[0].servers.iter().all(|server| server.state == ServerState::Drain));
        // Which one cannot be made is told.
        let wrong = drain(100);
        let all = [&edits[..], &[&wrong], &edits[..1]].concat();
        let source = Source { origin: Origin::File("/c/c.toml".into()), environment };
        let running = RunningConfig::printed(Arc::new(start.config));
        let error = edited(&running, &all, &source).err().unwrap();
        assert!(matches!(error, (200, NotChanged::Edit(EditError::Unknown { .. }))), "{:?}", error.1);
    }
}
