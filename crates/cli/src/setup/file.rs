//! The text of the configuration that setup writes, in the layout of `offramp fmt`.

use std::fmt::Write as _;

use offramp_config::model::CertificateName;

use super::answers::SiteAnswers;
use super::application::SiteApplication;
use crate::target::ServerSpeaks;

/// Source of the certificate, as it was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Issuer {
    LetsEncrypt,
    LocalCa,
}

/// The text of a configuration. `own` are the names and addresses of this machine, for a certificate without names.
pub(crate) fn text(answers: &SiteAnswers, issuer: Issuer, own: &[CertificateName]) -> String {
    let mut out = String::from(
        "# Written by `offramp setup`. `offramp check` finds mistakes, `systemctl reload offramp` applies changes.\n",
    );
    let mode = if answers.tcp { "" } else { "mode = \"http\"\n" };
    let is_plain = answers.http_port != 0;
    // Writing to a String cannot fail, here and below.
    let _ = write!(
        out,
        "\n[[listener]]\nname = \"web\"\naddress = \"{}\"\n{mode}",
        address(answers, answers.https_port)
    );
    if is_plain {
        let address = address(answers, answers.http_port);
        let _ = write!(
            out,
            "\n# Sends browsers that begin without TLS to https.\n[[listener]]\nname = \"plain\"\naddress = \"{address}\"\n\
             mode = \"http\"\ntls = false\n"
        );
    }
    let hosts = hosts(&answers.names);
    let only = if is_plain { "listener = \"web\"\n" } else { "" };
    let host = match hosts.as_slice() {
        [] => String::new(),
        [host] => format!("host = \"{host}\"\n"),
        hosts => format!("host = [{}]\n", quoted(hosts)),
    };
    let target = match &answers.application {
        SiteApplication::Files(path) => format!("root = {}\n", string(&path.display().to_string())),
        SiteApplication::Server(target) => {
            let scheme = if target.tls == ServerSpeaks::Tls { "tls://" } else { "" };
            format!("server = {}\n", string(&format!("{scheme}{}", target.address)))
        }
    };
    let _ = write!(out, "\n[[route]]\n{only}{host}{target}");
    if is_plain {
        out.push_str("\n[[route]]\nlistener = \"plain\"\nredirect = \"https\"\n");
    }
    match issuer {
        Issuer::LetsEncrypt => {
            out.push_str("\n# To use an authority is to agree to its terms of service.\n[tls]\ncertificates = \"acme\"\n");
            if let Some(email) = &answers.email {
                let _ = write!(out, "\n[acme.letsencrypt]\nemail = {}\n", string(email));
            }
        }
        Issuer::LocalCa => {
            out.push_str("\n# Clients must trust the local CA: `offramp ca trust` on each machine.\n[[certificate]]\nlocal = true\n");
            let names = if answers.names.is_empty() { own } else { &answers.names };
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let _ = writeln!(out, "names = [{}]", quoted(&names));
        }
    }
    // Long lists are divided.
    offramp_config::formatted(&out, "setup").unwrap_or(out)
}

fn address(answers: &SiteAnswers, port: u16) -> String {
    if answers.has_ipv6 { format!("[::]:{port}") } else { format!("0.0.0.0:{port}") }
}

/// Hosts of the route: none, for any, if the site has an address among its names, since clients send no address as the
/// server name.
fn hosts(names: &[CertificateName]) -> Vec<String> {
    let hosts = names.iter().map(|name| match name {
        CertificateName::Host(host) => Some(host.to_string()),
        CertificateName::Ip(_) => None,
    });
    hosts.collect::<Option<Vec<_>>>().unwrap_or_default()
}

fn quoted(texts: &[String]) -> String {
    texts.iter().map(|text| string(text)).collect::<Vec<_>>().join(", ")
}

/// A basic string of TOML.
fn string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use offramp_config::{Environment, formatted, parse};

    use super::*;

    fn answers(names: &[&str], application: &str) -> SiteAnswers {
        SiteAnswers {
            names: names.iter().map(|name| name.parse().unwrap()).collect(),
            application: SiteApplication::parse(application).unwrap(),
            email: Some("me@example.org".to_owned()),
            tcp: false,
            https_port: 443,
            http_port: 80,
            has_ipv6: true,
        }
    }

    #[test]
    fn each_text_is_a_sound_configuration_in_its_layout() {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join("with \"quotes\" and \\");
        std::fs::create_dir(&files).unwrap();
        let own: Vec<CertificateName> =
            ["localhost", "box", "10.0.0.7", "fd00::7", "a-long-name-of-a-machine.home.arpa"]
                .map(|name| name.parse().unwrap())
                .into();
        let directory = files.display().to_string();
        for names in [
            &[][..],
            &["app.example.org"],
            &["a.example.org", "b.example.org"],
            &["10.0.0.7", "box"],
            &["*.home.arpa"],
        ] {
            for application in ["3000", "unix:/run/app.sock", "tls://db.example.org:1", &directory] {
                for (issuer, tcp, http_port) in [
                    (Issuer::LetsEncrypt, false, 80),
                    (Issuer::LocalCa, false, 80),
                    (Issuer::LocalCa, true, 0),
                    (Issuer::LocalCa, false, 8080),
                ] {
                    let is_issuable =
                        names.iter().all(|name| name.ends_with("example.org")) && !names.is_empty();
                    if (issuer == Issuer::LetsEncrypt && !is_issuable) || (tcp && application == directory) {
                        continue;
                    }
                    let mut answers = answers(names, application);
                    (answers.tcp, answers.http_port) = (tcp, http_port);
                    answers.has_ipv6 = http_port != 8080;
                    let text = text(&answers, issuer, &own);
                    let (_, warnings) = parse(&text, "/etc/offramp/offramp.toml", &Environment::default())
                        .unwrap_or_else(|errors| panic!("{text}\n{errors}"));
                    assert_eq!(warnings, Vec::new(), "{text}");
                    assert_eq!(formatted(&text, "x").unwrap(), text);
                    assert_eq!(text.contains("redirect"), http_port != 0, "{text}");
                }
            }
        }
    }

    #[test]
    fn a_site_of_an_authority_reads_as_on_the_page() {
        let page = include_str!("../../../../docs/how-to/setup.md");
        let text = text(&answers(&["app.example.org"], "3000"), Issuer::LetsEncrypt, &[]);
        assert!(
            page.contains(&format!("```toml\n{text}```\n")),
            "docs/how-to/setup.md does not show:\n{text}"
        );
    }
}
