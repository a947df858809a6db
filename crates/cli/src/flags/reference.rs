//! The pages of the book with every command and its arguments, generated from the declaration of the command line.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};

use crate::flags::Cli;
use crate::help::SECTIONS;
use crate::man::{details, is_help, value_name};

const ORIGIN: &str = "<!-- Written by `OFFRAMP_BLESS=1 cargo test -p offramp --bins reference` from the command line; do not edit. -->";

/// The commands with pages of their own.
const APART: [&str; 2] = ["ctl", "logs"];

/// The commands that look at a running Offramp, which have one page together.
const LOOKS: [&str; 5] = ["ui", "top", "why", "bench", "notify"];

/// The commands that bring a configuration into being, which have one page together.
const BEGINNINGS: [&str; 2] = ["import", "compare"];

/// The commands of `ctl` that have one page together.
const ITEMS: [&str; 5] = ["server", "route", "backend", "listener", "certificate"];

/// The pages below `docs/reference/`, by file name.
fn pages() -> Vec<(String, String)> {
    let mut cli = Cli::command();
    cli.build();
    let mut main = titled("Commands");
    main.push_str(
        "`offramp --help` lists them, and `offramp man | man -l -` has all of this page. [offramp ctl](ctl.md), \
         [offramp logs](logs.md), [offramp import and compare](import.md), and [offramp ui, top, why, bench and notify](looks.md) \
         have pages of their own.\n\n",
    );
    let mut items = titled("offramp ctl: items of the configuration");
    let mut looks = titled("offramp ui, top, why, bench, notify");
    looks.push_str("They show what a running Offramp does, and why.\n\n");
    let mut import = titled("offramp import, compare");
    let mut pages = Vec::new();
    for command in cli.get_subcommands() {
        let name = command.get_name();
        if !APART.contains(&name) {
            let page = match name {
                name if LOOKS.contains(&name) => &mut looks,
                name if BEGINNINGS.contains(&name) => &mut import,
                _ => &mut main,
            };
            write_command(page, command, &format!("offramp {name}"), true);
            continue;
        }
        let mut page = titled(&format!("offramp {name}"));
        describe(&mut page, command, true);
        for command in below(command) {
            let is_item = name == "ctl" && ITEMS.contains(&command.get_name());
            let page = if is_item { &mut items } else { &mut page };
            write_command(page, command, &format!("offramp {name} {}", command.get_name()), false);
        }
        pages.push((format!("{name}.md"), page));
    }
    for section in SECTIONS.iter().filter(|section| !section.commands) {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(main, "## {}\n\n| | |\n| --- | --- |", section.title);
        for (term, explanation) in section.entries {
            let _ = writeln!(main, "| `{term}` | {} |", escaped(explanation));
        }
        main.push('\n');
    }
    pages.extend([
        ("commands.md".to_owned(), main),
        ("ctl-items.md".to_owned(), items),
        ("looks.md".to_owned(), looks),
        ("import.md".to_owned(), import),
    ]);
    pages.into_iter().map(|(name, text)| (name, format!("{}\n", text.trim_end()))).collect()
}

/// The beginning of a page.
fn titled(title: &str) -> String {
    format!("# {title}\n\n{ORIGIN}\n\n")
}

/// The commands below a command.
fn below(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| below.get_name() != "help")
}

/// Writes a command, then those below it. One that `opens` has the arguments that it shares with them.
fn write_command(out: &mut String, command: &Command, name: &str, opens: bool) {
    let _ = writeln!(out, "## {name}\n");
    describe(out, command, opens);
    for command in below(command) {
        let _ = writeln!(out, "### {name} {}\n", command.get_name());
        describe(out, command, false);
    }
}

/// Writes what a command does, and its arguments; those that it shares with all below it only where it `opens` them.
fn describe(out: &mut String, command: &Command, opens: bool) {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    for paragraph in about.split("\n\n") {
        let _ = writeln!(out, "{}\n", escaped(&ended(paragraph)));
    }
    let shown = |argument: &&Arg| {
        !is_help(argument) && !argument.is_hide_set() && (opens || !argument.is_global_set())
    };
    let mut rows = command.get_arguments().filter(shown).peekable();
    if rows.peek().is_none() {
        return;
    }
    out.push_str("| argument | meaning |\n| --- | --- |\n");
    for argument in rows {
        let help = argument.get_long_help().or_else(|| argument.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        let paragraphs: Vec<&str> = help.split("\n\n").collect();
        let (last, others) = paragraphs.split_last().unwrap();
        let help: String = others.iter().map(|paragraph| ended(paragraph) + " ").collect();
        let help = escaped(&format!("{help}{last}{}", details(argument)));
        let _ = writeln!(out, "| `{}` | {help} |", typed(argument));
    }
    out.push('\n');
}

/// The text with its last period.
fn ended(text: &str) -> String {
    format!("{text}{}", if text.ends_with([':', '.', '!']) { "" } else { "." })
}

/// An argument as it is typed.
fn typed(argument: &Arg) -> String {
    let mut words = Vec::new();
    words.extend(argument.get_short().map(|short| format!("-{short}")));
    words.extend(argument.get_long().map(|long| format!("--{long}")));
    let names = words.join(", ");
    let value = if argument.get_action().takes_values() { value_name(argument) } else { String::new() };
    format!("{names} {value}").trim().to_owned()
}

/// The text as a cell of a table: one line, where nothing outside of code is markup.
fn escaped(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = line.split('`').enumerate().map(|(at, part)| {
        let mut part = part.replace('|', "\\|");
        if at % 2 == 0 {
            for mark in ["*", "<", "[", "_"] {
                part = part.replace(mark, &format!("\\{mark}"));
            }
        }
        part
    });
    parts.collect::<Vec<_>>().join("`")
}

#[test]
fn the_pages_on_commands_are_those_of_the_command_line() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for (name, text) in pages() {
        let path = folder.join(&name);
        if std::env::var_os("OFFRAMP_BLESS").is_some_and(|bless| bless == "1") {
            std::fs::write(path, text).unwrap();
        } else {
            let is_same = std::fs::read_to_string(path).is_ok_and(|written| written == text);
            assert!(is_same, "docs/reference/{name} is out of date: run the tests with OFFRAMP_BLESS=1");
        }
    }
}
