//! Name, application and address: from the command line, else asked for on a terminal.

use offramp_config::model::{CertificateName, HostPattern, contact};

use super::application::SiteApplication;
use crate::failure::Failure;
use crate::flags::setup::SetupArguments;
use crate::surroundings;

/// Everything that the user decides about the site.
#[derive(Debug)]
pub(crate) struct SiteAnswers {
    /// Names of the site; empty for those of this machine.
    pub(crate) names: Vec<CertificateName>,
    pub(crate) application: SiteApplication,
    pub(crate) email: Option<String>,
    pub(crate) tcp: bool,
    pub(crate) https_port: u16,
    /// Port of the redirect to https; 0 for none.
    pub(crate) http_port: u16,
    pub(crate) has_ipv6: bool,
}

impl SiteAnswers {
    /// Reads the arguments, and asks for what is missing if `asks` is set.
    ///
    /// # Errors
    /// All mistakes of the arguments, or standard input ended.
    pub(crate) fn collect(arguments: &SetupArguments, asks: bool) -> Result<Self, Failure> {
        let mut mistakes = Vec::new();
        let mut names = Vec::new();
        for text in &arguments.name {
            match name(text) {
                Ok(name) if names.contains(&name) => {}
                Ok(name) => names.push(name),
                Err(why) => mistakes.push(format!("--name {text}: {why}")),
            }
        }
        let application = match arguments.app.as_deref().map(SiteApplication::parse) {
            Some(Err(why)) => {
                mistakes.push(format!("--app {}: {why}", arguments.app.as_deref().unwrap_or_default()));
                None
            }
            Some(Ok(application)) => Some(application),
            None if asks => None,
            None => {
                mistakes.push(
                    "the application is missing: --app 3000 for a port of this machine, --app unix:/run/app.sock, or --app and a \
                     directory with files"
                        .to_owned(),
                );
                None
            }
        };
        let email = match arguments.email.as_deref().map(email) {
            Some(Err(why)) => {
                mistakes.push(format!("--email: {why}"));
                None
            }
            Some(Ok(email)) => Some(email),
            None => None,
        };
        if arguments.https_port == arguments.http_port {
            mistakes.push(format!("--https-port and --http-port are both {}", arguments.http_port));
        }
        if arguments.tcp && matches!(application, Some(SiteApplication::Files(_))) {
            mistakes.push("--tcp is for an application; files are served over HTTP".to_owned());
        }
        if !mistakes.is_empty() {
            let lines: Vec<String> = mistakes.iter().map(|mistake| format!("error: {mistake}")).collect();
            return Err(Failure::usage(lines.join("\n")));
        }
        let is_asked = asks && application.is_none();
        if is_asked && names.is_empty() {
            names =
                ask("Name of the site, such as app.example.org (empty for this machine only): ", |text| {
                    text.split([' ', ',']).filter(|part| !part.is_empty()).map(name).collect()
                })?;
        }
        let application = match application {
            Some(application) => application,
            None => {
                ask("SiteApplication: a port, host:port, unix:/path, or a directory with files: ", |text| {
                    SiteApplication::parse(text.trim())
                })?
            }
        };
        let is_named = names.iter().any(|name| matches!(name, CertificateName::Host(HostPattern::Exact(_))));
        let email = match email {
            None if is_asked && is_named => {
                ask("E-mail address for the authority of the certificate (empty for none): ", |text| {
                    Some(text.trim()).filter(|text| !text.is_empty()).map(email_of).transpose()
                })?
            }
            email => email,
        };
        Ok(Self {
            names,
            application,
            email,
            tcp: arguments.tcp,
            https_port: arguments.https_port,
            http_port: arguments.http_port,
            has_ipv6: surroundings::has_ipv6(),
        })
    }
}

fn email_of(text: &str) -> Result<String, String> {
    email(text)
}

fn email(text: &str) -> Result<String, String> {
    contact(text).map_err(|problem| problem.to_string().trim_start_matches("error: ").trim_end().to_owned())
}

/// Parses a name of the site.
fn name(text: &str) -> Result<CertificateName, String> {
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split(['/', ':', '?']).next().unwrap_or_default();
        return Err(format!("write the name alone: {host}"));
    }
    if !text.is_ascii() {
        return Err(format!(
            "write international names in their ASCII form, which begins with xn--; `idn2 {text}` (package idn2) prints it"
        ));
    }
    text.parse().map_err(|problem: offramp_config::Problem| {
        problem.to_string().trim_start_matches("error: ").trim_end().to_owned()
    })
}

/// Asks until the answer is understood.
fn ask<T>(question: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<T, Failure> {
    loop {
        let answer = surroundings::answer(question)
            .map_err(|error| Failure::runtime(format_args!("error: cannot read the answer: {error}")))?;
        let Some(answer) = answer else {
            return Err(Failure::usage("error: no answer; give it as an option: offramp setup --help"));
        };
        match read(&answer) {
            Ok(value) => return Ok(value),
            Err(why) => surroundings::say(&format!("  {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::flags::{Cli, Command};

    fn collected(line: &str) -> Result<SiteAnswers, String> {
        let Command::Setup(arguments) = Cli::parse_from(line.split(' ')).command else { unreachable!() };
        SiteAnswers::collect(&arguments, false).map_err(|failure| failure.to_string())
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let told = collected("offramp setup --name https://a.example.org/x --name bücher.example --name a_b.-c --app http://x:1/ --email me --https-port 80")
            .unwrap_err();
        for part in [
            "--name https://a.example.org/x: write the name alone: a.example.org",
            "`idn2 bücher.example`",
            "--name a_b.-c:",
            "--app http://x:1/: write x:1 instead",
            "--email: `me` is no e-mail address",
            "are both 80",
        ] {
            assert!(told.contains(part), "{part} in {told}");
        }
        assert_eq!(told.lines().count(), told.matches("error: ").count(), "{told}");
        assert!(collected("offramp setup").unwrap_err().contains("the application is missing"));
        assert!(
            collected("offramp setup --app / --tcp").unwrap_err().contains("--tcp is for an application")
        );
    }

    #[test]
    fn names_and_addresses_are_taken() {
        let answers = collected("offramp setup --app 3000 --name A.Example.org. --name a.example.org --name 10.0.0.7 --name ::1 --name xn--bcher-kva.example --name *.lan").unwrap();
        let names: Vec<String> = answers.names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a.example.org", "10.0.0.7", "::1", "xn--bcher-kva.example", "*.lan"]);
    }
}
