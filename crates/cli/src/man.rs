//! The man pages: offramp(1), generated from the declaration of the command line and the table of [`help`](crate::help), and
//! offramp.toml(5), see [`configuration`].
//!
//! There is one page for all commands, so that it can be searched.

pub(crate) mod configuration;

use std::io::{self, Write};

use clap::builder::Str;
use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::help::SECTIONS;

/// Writes the page in roff format.
///
/// # Errors
/// Errors of `out`.
pub(crate) fn write(command: Command, out: &mut dyn Write) -> io::Result<()> {
    let mut command = command;
    command.build();
    let page = Man::new(command.clone()).section("1").manual("Offramp");
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    let mut roff = Roff::new();
    roff.control("SH", ["COMMANDS"]);
    for command in command.get_subcommands() {
        subcommand(&mut roff, command, command.get_name());
    }
    for section in SECTIONS {
        roff.control("SH", [section.title.to_uppercase().as_str()]);
        for (term, explanation) in section.entries {
            roff.control("TP", []);
            roff.text([bold(*term)]);
            roff.text([roman(*explanation)]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([
        bold("offramp.toml"),
        roman("(5), "),
        bold("curl"),
        roman("(1), "),
        bold("systemd.service"),
        roman("(5)"),
    ]);
    roff.to_writer(out)
}

/// Renders a command and its subcommands; `name` includes the parents.
fn subcommand(roff: &mut Roff, command: &Command, name: &str) {
    let mut synopsis = vec![bold(format!("offramp {name}"))];
    let below = || command.get_subcommands().filter(|below| below.get_name() != "help");
    if below().next().is_some() {
        synopsis.push(roman(" "));
        synopsis.push(italic("COMMAND"));
    }
    let options = || command.get_arguments().filter(|option| !option.is_positional() && !is_help(option));
    for option in options() {
        synopsis.push(roman(" ["));
        synopsis.extend(usage(option));
        synopsis.push(roman("]"));
    }
    for positional in command.get_positionals() {
        synopsis.push(roman(" "));
        synopsis.push(italic(value_name(positional)));
    }
    roff.control("SS", [name]);
    roff.text(synopsis);
    roff.control("PP", []);
    let about = command.get_long_about().or_else(|| command.get_about());
    roff.text([roman(about.map(ToString::to_string).unwrap_or_default())]);
    for argument in command.get_positionals().chain(options()) {
        roff.control("TP", []);
        roff.text(usage(argument));
        let help = argument.get_long_help().or_else(|| argument.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        roff.text([roman(format!("{help}{}", details(argument)))]);
    }
    for command in below() {
        subcommand(roff, command, &format!("{name} {}", command.get_name()));
    }
}

pub(crate) fn is_help(argument: &Arg) -> bool {
    matches!(argument.get_id().as_str(), "help" | "version")
}

/// Renders an option or positional as it is typed.
fn usage(argument: &Arg) -> Vec<Inline> {
    let mut words = Vec::new();
    if let Some(short) = argument.get_short() {
        words.extend([bold(format!("-{short}")), roman(", ")]);
    }
    if let Some(long) = argument.get_long() {
        words.push(bold(format!("--{long}")));
    }
    if argument.get_action().takes_values() {
        if !argument.is_positional() {
            words.push(roman(" "));
        }
        words.push(italic(value_name(argument)));
    }
    words
}

pub(crate) fn value_name(argument: &Arg) -> String {
    let names: Vec<&str> = argument.get_value_names().unwrap_or_default().iter().map(Str::as_str).collect();
    if names.is_empty() { argument.get_id().as_str().to_uppercase() } else { names.join(" ") }
}

/// Possible values and default, in the format of `--help`.
pub(crate) fn details(argument: &Arg) -> String {
    let mut details = String::new();
    let values: Vec<String> =
        argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if argument.get_action().takes_values() && !values.is_empty() {
        details.push_str(&format!(" [possible values: {}]", values.join(", ")));
    }
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if argument.get_action().takes_values() && !defaults.is_empty() {
        details.push_str(&format!(" [default: {}]", defaults.join(", ")));
    }
    details
}
