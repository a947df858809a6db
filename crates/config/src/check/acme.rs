//! `[acme.NAME]`, `tls.acme`, and the requirements of ACME certificates.

use super::on_demand::on_demand;
use super::{Sorted, ValueReader};
use crate::error::{Problem, Span};
use crate::model::{
    AcmeAuthority, AcmeCertificate, Challenge, Config, DirectoryUrl, DnsProvider, HostPattern,
    ImpliedCertificates, ListenerConfig, Mode, Name, not_issuable,
};
use crate::raw::{Section, Spanned};

/// The authorities without mistakes, and the names of all.
pub(super) struct Authorities {
    pub(super) whole: Vec<AcmeAuthority>,
    names: Vec<String>,
}

impl Authorities {
    /// The authority of a certificate, well-known ones included; `None` for one with mistakes.
    fn find(&self, name: &Name) -> Option<AcmeAuthority> {
        let written = self.names.iter().any(|known| known == name.as_str());
        let whole = self.whole.iter().find(|authority| authority.name == *name).cloned();
        if written { whole } else { AcmeAuthority::well_known(name) }
    }
}

pub(super) fn authorities(root: &Section, reader: &mut ValueReader<'_, '_>) -> Authorities {
    let sections = root.named("acme");
    let names = sections.iter().map(|(name, _)| name.value.clone()).collect();
    let mut whole: Vec<AcmeAuthority> =
        sections.iter().filter_map(|(name, section)| authority(name, section, reader)).collect();
    whole.sort_by(|one, other| one.name.cmp(&other.name));
    Authorities { whole, names }
}

fn authority(
    written: &Spanned<String>,
    section: &Section,
    reader: &mut ValueReader<'_, '_>,
) -> Option<AcmeAuthority> {
    let before = reader.report.len();
    let at = reader.at(&written.span);
    let name: Option<Name> = reader.ok_or_report(&written.span, written.value.parse());
    let directory = implied_directory(written, section, reader);
    let mut authority = AcmeAuthority::new(name?, directory?);
    authority.at = at;
    reader.fill("acme.*", section, &mut authority);
    authority.eab = section.section("eab").and_then(|eab| reader.whole("acme.*.eab", eab));
    authority.dns = reader.file(section, "dns_hook").map(DnsProvider::Hook);
    if let Some(update) = section.section("dns_update") {
        if section.mentions("dns_hook") {
            let problem = Problem::new("TXT records are set either by a program or by DNS updates");
            let help = "keep one of `dns_hook` and `dns_update`";
            reader.report.whole(section.key_span("dns_update"), problem.help(help));
        }
        authority.dns = reader.whole("acme.*.dns_update", update).map(DnsProvider::Update);
    }
    dns(section, &authority, &written.span, reader);
    if AcmeAuthority::wants_account(&written.value)
        && !section.mentions("eab")
        && !section.mentions("directory")
    {
        let problem = Problem::new(format!("{} issues only for accounts that exist there", written.value));
        let help = "add eab = { key_id = \"…\", key_file = \"FILE\" } with what its web page gives you";
        reader.report.whole(&written.span, problem.help(help));
    }
    (reader.report.len() == before).then_some(authority)
}

/// The directory of an authority that writes none; a written one is read with the other keys.
fn implied_directory(
    name: &Spanned<String>,
    section: &Section,
    reader: &mut ValueReader<'_, '_>,
) -> Option<DirectoryUrl> {
    if section.mentions("directory") {
        return Some(DirectoryUrl::default());
    }
    let known = AcmeAuthority::well_known_url(&name.value);
    if known.is_none() {
        let problem = Problem::new(format!("[acme.{}] has no `directory`", name.value));
        reader.report.whole(&name.span, problem.help("add the URL that the authority gives"));
    }
    known
}

/// Checks the keys of dns-01 against the challenge.
fn dns(section: &Section, authority: &AcmeAuthority, span: &Span, reader: &mut ValueReader<'_, '_>) {
    if authority.challenge == Challenge::Dns01 {
        if authority.dns.is_none() && !section.mentions("dns_hook") && !section.mentions("dns_update") {
            let problem = Problem::new("the challenge dns-01 needs a way to set TXT records");
            reader.report.whole(span, problem.help("add dns_hook = \"PROGRAM\", or `dns_update`"));
        }
        return;
    }
    for key in ["dns_hook", "dns_update", "dns_wait"].into_iter().filter(|key| section.mentions(key)) {
        let problem = Problem::new(format!("`{key}` has no effect without the challenge dns-01"));
        reader.report.whole(section.key_span(key), problem.help("add challenge = \"dns-01\""));
    }
}

/// Reads the certificate of a `[[certificate]]` with `acme`; `hosts` are those of the routes.
pub(super) fn certificate(
    section: &Section,
    hosts: &[HostPattern],
    authorities: &Authorities,
    reader: &mut ValueReader<'_, '_>,
) -> Option<AcmeCertificate> {
    let before = reader.report.len();
    let plain: AcmeCertificate = reader.filled("certificate", section);
    exist(section, authorities, reader);
    let asked: Vec<AcmeAuthority> =
        plain.authorities.iter().filter_map(|name| authorities.find(name)).collect();
    let mut subjects =
        reader.list(section, "names", |text: &Spanned<String>, _| subject(&text.value, &asked));
    let on_demand = section.section("on_demand").map(|demanded| on_demand(section, demanded, &asked, reader));
    if subjects.is_empty() && !section.mentions("names") && !section.mentions("on_demand") {
        subjects = hosts.to_vec();
        let refused = hosts.iter().find_map(|host| issuable(host, &asked).err());
        if let Some(problem) = refused {
            reader.report.whole(section.key_span("acme"), problem);
        } else if hosts.is_empty() {
            let problem = Problem::new("no route has a host for the certificate");
            reader.report.whole(section.key_span("acme"), problem.help("add names = [\"HOST\"]"));
        }
    }
    let is_sound = reader.report.len() == before && !section.has_wrong();
    is_sound.then_some(AcmeCertificate { names: subjects, on_demand, ..plain })
}

/// Reports the names of `acme` that no authority has.
fn exist(section: &Section, authorities: &Authorities, reader: &mut ValueReader<'_, '_>) {
    for text in section.list("acme").unwrap_or_default() {
        // One that is no name is reported where the list is read.
        if let Ok(name) = text.value.parse::<Name>() {
            reader.ok_or_report(&text.span, named(&name, authorities));
        }
    }
}

fn named(name: &Name, authorities: &Authorities) -> Result<(), Problem> {
    let text = name.as_str();
    if authorities.names.iter().any(|known| known == text) || AcmeAuthority::well_known(name).is_some() {
        return Ok(());
    }
    if AcmeAuthority::wants_account(text) {
        let problem = Problem::new(format!("{text} issues only for accounts that exist there"));
        return Err(problem.help(format!("add [acme.{text}] with `eab`")));
    }
    let problem = Problem::new(format!("there is no [acme.{text}]"));
    Err(problem.help("add it with its `directory`, or use \"letsencrypt\""))
}

fn subject(text: &str, asked: &[AcmeAuthority]) -> Result<HostPattern, Problem> {
    if text.parse::<std::net::IpAddr>().is_ok() {
        let problem = Problem::new(format!(
            "`{text}` is an address: certificates of an authority are ordered for names only"
        ));
        return Err(problem.help("for addresses use the local CA: local = true"));
    }
    let host = text.parse()?;
    issuable(&host, asked).map(|()| host)
}

/// Checks that every configured authority can issue for the host.
fn issuable(host: &HostPattern, asked: &[AcmeAuthority]) -> Result<(), Problem> {
    issuable_on_demand(host, asked)?;
    let by_name = asked.iter().find(|one| one.challenge != Challenge::Dns01);
    if let (HostPattern::Wildcard(_), Some(authority)) = (host, by_name) {
        let problem = Problem::new(format!("the wildcard `{host}` needs the challenge dns-01"));
        return Err(problem.help(format!("write challenge = \"dns-01\" in [acme.{}]", authority.name)));
    }
    Ok(())
}

/// Like [`issuable`], for a pattern whose names are ordered one by one, so that no wildcard is ordered.
pub(super) fn issuable_on_demand(host: &HostPattern, asked: &[AcmeAuthority]) -> Result<(), Problem> {
    if let Some(why) = not_issuable(host).filter(|_| asked.iter().any(|one| one.ca.is_none())) {
        let problem = Problem::new(format!("no public authority may issue for `{host}`: {why}"));
        return Err(problem.help("use the local CA: local = true"));
    }
    Ok(())
}

/// Checks ACME certificates against the listeners, and `tls.acme` against the authorities.
pub(super) fn between(
    root: &Section,
    listeners: &Sorted<'_, ListenerConfig>,
    authorities: &Authorities,
    config: &Config,
    reader: &mut ValueReader<'_, '_>,
) {
    if let Some(tls) = root.section("tls") {
        exist(tls, authorities, reader);
        if config.tls.certificates == ImpliedCertificates::Acme
            && !tls.mentions("acme")
            && authorities.names.len() > 1
        {
            let problem = Problem::new("there are several authorities");
            reader.report.whole(
                tls.key_span("certificates"),
                problem.help("add acme = [\"NAME\", …], the preferred one first"),
            );
        }
    }
    if listeners.broken.is_empty() {
        challenges(root, config, reader);
    }
    unused(root, config, reader);
}

/// Warns about a section that no certificate names, which may be a typing error or a leftover.
fn unused(root: &Section, config: &Config, reader: &mut ValueReader<'_, '_>) {
    // A certificate with a mistake is unknown, and may be the one that names it.
    if reader.report.len() > 0 {
        return;
    }
    for (name, _) in root.named("acme") {
        let is_asked = config.asked_authorities().any(|authority| authority.name.as_str() == name.value);
        if !is_asked {
            let problem = Problem::new(format!("no certificate asks the authority `{}`", name.value));
            let help =
                format!("write acme = \"{}\" in a [[certificate]], or leave the section out", name.value);
            reader.report.warn(&name.span, problem.help(help));
        }
    }
}

/// Reports a challenge that no listener can answer, which would never succeed.
fn challenges(root: &Section, config: &Config, reader: &mut ValueReader<'_, '_>) {
    let tls = config.listeners.iter().any(|listener| listener.tls);
    let http = config.listeners.iter().any(|listener| !listener.tls && listener.mode == Mode::Http);
    for authority in config.asked_authorities() {
        let missing = match authority.challenge {
            Challenge::TlsAlpn01 if !tls => "needs a listener with TLS on port 443",
            Challenge::Http01 if !http => {
                "needs a listener of plain HTTP on port 80: mode = \"http\" and tls = false"
            }
            _ => continue,
        };
        let section = root.named("acme").iter().find(|(name, _)| name.value == authority.name.as_str());
        let span = section.map_or(&root.span, |(name, _)| &name.span);
        let text = format!("the challenge {} of {} {missing}", authority.challenge, authority.name);
        reader.report.whole(span, Problem::new(text).help("add the listener, or choose another `challenge`"));
    }
}
