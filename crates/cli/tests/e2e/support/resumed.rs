//! An Offramp with `run --resume`, and its autosave.

use std::fs;

use offramp_testkit::process::Source;
use serde_json::Value;

use crate::support::instance::{Home, Instance};
use crate::support::offramp::{offramp, output, stderr, stdout};

pub(crate) const SERVERS: [&str; 2] = ["127.0.0.1:2", "127.0.0.1:3"];

/// Two servers, with a comment of the user.
pub(crate) fn text(more: &str) -> String {
    format!(
        "{more}[metrics]\naddress = \"127.0.0.1:0\"\n[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
         [[route]]\nbackend = \"shop\"\n# Ours.\n[backend.shop]\nservers = [\"{}\", \"{}\"] # both\n",
        SERVERS[0], SERVERS[1]
    )
}

pub(crate) fn resumed(home: Home, text: &str) -> Instance {
    let command = offramp(home.path(), &["run", "--resume", "--config"]);
    home.start(command, text)
}

pub(crate) fn ctl(instance: &Instance, arguments: &[&str]) -> Value {
    let done = output(instance.home.path(), &[&["ctl", "--json"], arguments].concat());
    assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
    serde_json::from_str(&stdout(&done)).unwrap()
}

pub(crate) fn drain(instance: &Instance, server: usize, more: &[&str]) {
    ctl(instance, &[&["server", "drain", "shop", SERVERS[server]], more].concat());
}

/// The servers that drain, and the number of differences from the file.
pub(crate) fn state(instance: &Instance) -> ([bool; 2], usize) {
    let shown = ctl(instance, &["show", "backends"]);
    let drains = |at: usize| shown["backends"][0]["servers"][at]["state"] == "draining";
    let unwritten = ctl(instance, &["status"])["config"]["unwritten"].as_array().unwrap().len();
    ([drains(0), drains(1)], unwritten)
}

pub(crate) fn saved(home: &Home) -> String {
    fs::read_to_string(home.file("state/running.toml")).unwrap()
}

/// Changes the text of the autosave as its owner could.
pub(crate) fn rewrite(home: &Home, change: impl Fn(&str) -> String) {
    let before = saved(home);
    let head: Vec<&str> = before.splitn(6, '\n').collect();
    let length = head[4].strip_prefix("# length = ").unwrap().parse().unwrap();
    let (text, rest) = head[5].split_at(length);
    let text = change(text);
    let after = format!("{}\n# length = {}\n{text}{rest}", head[..4].join("\n"), text.len());
    fs::write(home.file("state/running.toml"), after).unwrap();
}

/// The line of the log that says this.
pub(crate) fn told(instance: &Instance, what: &str) -> String {
    instance
        .until(what, || instance.process.lines(Source::Stderr).into_iter().find(|line| line.contains(what)))
}
