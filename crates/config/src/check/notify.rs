//! `[[notify]]`: each section by itself, and their names.

use super::ValueReader;
use crate::error::Problem;
use crate::model::{MailTarget, NotifyConfig, NotifyTarget};
use crate::raw::Section;

/// The receivers without mistakes.
pub(super) fn receivers(root: &Section, reader: &mut ValueReader<'_, '_>) -> Vec<NotifyConfig> {
    let mut receivers: Vec<NotifyConfig> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for section in root.sections("notify") {
        let before = reader.report.len();
        let mut receiver: NotifyConfig = reader.filled("notify", section);
        receiver.at = reader.at(&section.span);
        if section.mentions("program") {
            without(
                section,
                "program",
                &["mail", "url", "url_file", "format", "body", "token_file", "ca"],
                reader,
            );
            receiver.to = NotifyTarget::Program(reader.filled("notify", section));
        } else if let Some(details) = section.section("mail") {
            receiver.to = mail(section, details, reader).map_or(receiver.to, NotifyTarget::Mail);
        } else {
            receiver.to = NotifyTarget::Webhook(reader.filled("notify", section));
            address(section, reader);
        }
        if section.mentions("body") && section.mentions("format") {
            let problem = Problem::new("`body` cannot go with `format`: both say what a message is");
            reader.report.local(section.key_span("body"), problem.help("keep one of the two"));
        }
        if let Some(name) = section.text("name") {
            if names.contains(&name.value) {
                let problem = Problem::new(format!("two [[notify]] are called `{}`", receiver.name));
                let help = "give each a name of its own: the log and metrics have it";
                reader.report.local(&name.span, problem.help(help));
            }
            names.push(name.value);
        }
        if reader.report.len() == before && !section.has_wrong() {
            receivers.push(receiver);
        }
    }
    receivers
}

/// Reports a receiver without an address, or with two.
fn address(section: &Section, reader: &mut ValueReader<'_, '_>) {
    match (section.mentions("url"), section.mentions("url_file")) {
        (true, true) => {
            let problem = Problem::new("`url_file` cannot go with `url`");
            let help = "keep `url_file` if the URL is a secret, as those of Slack are";
            reader.report.local(section.key_span("url_file"), problem.help(help));
        }
        (false, false) => {
            let problem = Problem::new("[[notify]] has no address to send messages to");
            let help = "add `url`, `url_file` with the name of a file that has the URL, `mail` or `program`";
            reader.report.whole(&section.span, problem.help(help));
        }
        _ => {}
    }
}

/// Reads a receiver of mail; `details` are those of its section.
fn mail(section: &Section, details: &Section, reader: &mut ValueReader<'_, '_>) -> Option<MailTarget> {
    without(section, "mail", &["url", "url_file", "format", "body", "token_file"], reader);
    for (key, other) in [("user", "password_file"), ("password_file", "user")] {
        if details.mentions(key) && !details.mentions(other) {
            let problem = Problem::new(format!("`{key}` has no effect without `{other}`"));
            reader.report.local(details.key_span(key), problem.help("add it: a login needs both"));
        }
    }
    reader.whole("notify.mail", details)
}

/// Reports each of the `others` that stands beside `key`.
fn without(section: &Section, key: &str, others: &[&str], reader: &mut ValueReader<'_, '_>) {
    for other in others.iter().filter(|other| section.mentions(other)) {
        let problem = Problem::new(format!("`{other}` cannot go with `{key}`: a receiver has one way"));
        reader
            .report
            .local(section.key_span(other), problem.help("leave it out, or write another [[notify]]"));
    }
}
