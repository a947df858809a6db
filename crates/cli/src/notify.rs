//! `offramp notify`: trials of the receivers of notifications.

use serde_json::{Value, json};

use crate::ctl::client::{AdminClient, AdminRequest};
use crate::ctl::segment;
use crate::failure::Failure;
use crate::flags::notify::{Notify, NotifyCommand};
use crate::surroundings::print;
use crate::text_table::text_table;

/// Runs a subcommand of `notify`.
///
/// # Errors
/// No Offramp answers, or a receiver does not take the message.
pub(crate) fn run(arguments: &Notify) -> Result<(), Failure> {
    let Notify { reach, command } = arguments;
    let client = AdminClient::of(reach)?;
    match command {
        NotifyCommand::Test { name } => try_out(&client, name.as_deref(), reach.json),
        NotifyCommand::List => {
            let answer = client.ask_json(&AdminRequest::new("GET", "/notify"))?;
            let text = if reach.json { format!("{answer:#}\n") } else { table(&answer) };
            print(text.as_bytes())
        }
    }
}

fn try_out(client: &AdminClient, name: Option<&str>, is_json: bool) -> Result<(), Failure> {
    let names = match name {
        Some(name) => vec![name.to_owned()],
        None => names(&client.ask_json(&AdminRequest::new("GET", "/notify"))?),
    };
    if names.is_empty() {
        return Err(Failure::runtime("error: the configuration in force has no [[notify]]"));
    }
    let mut failed = Vec::new();
    let mut answers = Vec::new();
    for name in names {
        let path = format!("/notify/{}/test", segment(&name));
        match client.ask_json(&AdminRequest::new("POST", &path)) {
            Ok(answer) if is_json => answers.push(answer),
            Ok(answer) => {
                let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
                print(format!("{name}: {} answered {}\n", text("to"), text("answer")).as_bytes())?;
            }
            Err(failure) => {
                let text = failure.to_string();
                let text = text.strip_prefix("error: ").unwrap_or(&text).to_owned();
                answers.push(json!({ "name": name, "detail": text }));
                failed.push(format!("error: {name}: {text}"));
            }
        }
    }
    if is_json {
        print(format!("{:#}\n", Value::Array(answers)).as_bytes())?;
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::runtime(failed.join("\n"))) }
}

fn receivers(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["receivers"].as_array().into_iter().flatten()
}

fn names(answer: &Value) -> Vec<String> {
    receivers(answer).filter_map(|one| one["name"].as_str()).map(str::to_owned).collect()
}

/// A line for each receiver, in columns.
fn table(answer: &Value) -> String {
    let columns = ["name", "to", "sent", "retried", "refused", "dropped"];
    let mut rows = vec![columns.map(str::to_uppercase).to_vec()];
    rows.extend(receivers(answer).map(|one| {
        let cells =
            columns.map(|column| one[column].as_str().map_or_else(|| one[column].to_string(), str::to_owned));
        cells.to_vec()
    }));
    text_table(&rows, |_| false)
}
