//! `[[certificate]]`: files, a directory, the local CA or an authority, and at most one default.

use super::ValueReader;
use super::acme::{self, Authorities};
use crate::error::{Problem, Span};
use crate::model::{CertificateConfig, CertificateName, CertificateSource, DefaultRole, HostPattern};
use crate::raw::{Section, Spanned};

/// The certificates without mistakes, and the indexes of those without names of their own that get `hosts`.
pub(super) fn certificates(
    root: &Section,
    hosts: &[CertificateName],
    authorities: &Authorities,
    reader: &mut ValueReader<'_, '_>,
) -> (Vec<CertificateConfig>, Vec<usize>) {
    let (mut certificates, mut named_by_routes) = (Vec::new(), Vec::new());
    let mut first_default: Option<&Span> = None;
    for section in root.sections("certificate") {
        let plain: CertificateConfig = reader.filled("certificate", section);
        if plain.default == DefaultRole::Always {
            let here = section.key_span("default");
            if let Some(first) = first_default {
                let line = reader.report.source.place(first.start).line;
                let problem = Problem::new("two certificates are marked as the default");
                reader.report.whole(here, problem.help(format!("the other one is in line {line}: keep one")));
            } else {
                first_default = Some(here);
            }
        }
        if let Some(source) = source(section, hosts, authorities, reader) {
            let takes_names = section.mentions("local") || section.mentions("acme");
            if takes_names && !section.mentions("names") {
                named_by_routes.push(certificates.len());
            }
            certificates.push(CertificateConfig { source, at: reader.at(&section.span), ..plain });
        }
    }
    (certificates, named_by_routes)
}

fn source(
    section: &Section,
    hosts: &[CertificateName],
    authorities: &Authorities,
    reader: &mut ValueReader<'_, '_>,
) -> Option<CertificateSource> {
    let local = section.bool("local") == Some(true);
    if section.mentions("directory") {
        return from_directory(section, reader);
    }
    if local && section.mentions("cert") {
        let problem = Problem::new("a certificate is either from a file or from the local CA");
        reader.report.local(section.key_span("local"), problem.help("keep one of `cert` and `local`"));
        return None;
    }
    if local && section.mentions("key") {
        let problem = Problem::new("a certificate of the local CA has a key of its own");
        reader.report.local(section.key_span("key"), problem.help("leave `key` out"));
        return None;
    }
    if section.mentions("ocsp") && !section.mentions("cert") {
        let problem = Problem::new("`ocsp` has no effect without `cert`");
        reader.report.whole(section.key_span("ocsp"), problem.help("leave it out"));
    }
    if section.mentions("acme") {
        return from_authority(section, hosts, authorities, reader);
    }
    for key in ["key_type", "reuse_key", "on_demand"].into_iter().filter(|key| section.mentions(key)) {
        let problem = Problem::new(format!("`{key}` has no effect without `acme`"));
        reader.report.whole(section.key_span(key), problem.help("leave it out"));
    }
    if local { from_local_ca(section, hosts, reader) } else { from_files(section, reader) }
}

fn from_directory(section: &Section, reader: &mut ValueReader<'_, '_>) -> Option<CertificateSource> {
    let others = ["cert", "key", "ocsp", "local", "names", "acme", "key_type", "reuse_key", "on_demand"];
    if let Some(other) = others.into_iter().find(|name| section.mentions(name)) {
        let problem = Problem::new(format!("`{other}` cannot go with `directory`"));
        let help = "leave it out: everything is in `directory`; write another [[certificate]] for other certificates";
        reader.report.local(section.key_span(other), problem.help(help));
        return None;
    }
    Some(CertificateSource::Directory { path: reader.file(section, "directory")? })
}

fn from_authority(
    section: &Section,
    hosts: &[CertificateName],
    authorities: &Authorities,
    reader: &mut ValueReader<'_, '_>,
) -> Option<CertificateSource> {
    if let Some(other) = ["local", "cert", "key"].into_iter().find(|key| section.mentions(key)) {
        let problem = Problem::new(format!("a certificate of an authority has no `{other}`"));
        reader
            .report
            .local(section.key_span(other), problem.help(format!("keep one of `acme` and `{other}`")));
        return None;
    }
    let hosts: Vec<HostPattern> = hosts
        .iter()
        .filter_map(|name| match name {
            CertificateName::Host(host) if host.to_string() != "localhost" => Some(host.clone()),
            _ => None,
        })
        .collect();
    acme::certificate(section, &hosts, authorities, reader).map(CertificateSource::Acme)
}

fn from_local_ca(
    section: &Section,
    hosts: &[CertificateName],
    reader: &mut ValueReader<'_, '_>,
) -> Option<CertificateSource> {
    let before = reader.report.len();
    let mut names = reader.list(section, "names", |text: &Spanned<String>, _| text.value.parse());
    if names.is_empty() {
        names = hosts.to_vec();
    }
    (reader.report.len() == before).then_some(CertificateSource::Local { names })
}

fn from_files(section: &Section, reader: &mut ValueReader<'_, '_>) -> Option<CertificateSource> {
    if section.mentions("names") {
        let problem = Problem::new("the names of a certificate from a file are in the file");
        reader.report.local(
            section.key_span("names"),
            problem.help("leave `names` out, or write local = true instead of `cert`"),
        );
    }
    if !section.mentions("cert") {
        let (problem, span) = if section.mentions("key") {
            (Problem::new("a `key` without its `cert`"), section.key_span("key"))
        } else {
            (Problem::new("[[certificate]] has no certificate"), &section.span)
        };
        reader
            .report
            .whole(span, problem.help("add cert = \"FILE\", directory = \"FOLDER\", or local = true"));
        return None;
    }
    let mut file = |name: &str| reader.file(section, name);
    let (cert, key, ocsp) = (file("cert"), file("key"), file("ocsp"));
    Some(CertificateSource::Files { cert: cert?, key, ocsp })
}
