//! `[acme.NAME]`, `tls.acme`, and what certificates of authorities need.

use super::on_demand::on_demand;
use super::{Reader, Sorted};
use crate::error::{Problem, Span, shown};
use crate::model::{
    AcmeCertificate, Authority, Challenge, Config, DirectoryUrl, DnsProvider, DnsUpdate, ExternalAccount,
    FilePath, HostPattern, ImpliedCertificates, KeyType, Listener, Mode, Name, TsigAlgorithm, contact,
    not_issuable,
};
use crate::raw::{Section, Spanned};

/// The authorities: those without mistakes, and the names of all.
pub(super) struct Authorities {
    pub(super) whole: Vec<Authority>,
    names: Vec<String>,
}

impl Authorities {
    /// The authority of a certificate, well-known ones among them; `None` for one with mistakes.
    fn find(&self, name: &Name) -> Option<Authority> {
        let written = self.names.iter().any(|known| known == name.as_str());
        let whole = self.whole.iter().find(|authority| authority.name == *name).cloned();
        if written { whole } else { Authority::well_known(name) }
    }
}

/// Reads the sections.
pub(super) fn authorities(root: &Section, reader: &mut Reader<'_, '_>) -> Authorities {
    let sections = root.named("acme");
    let names = sections.iter().map(|(name, _)| name.value.clone()).collect();
    let mut whole: Vec<Authority> =
        sections.iter().filter_map(|(name, section)| authority(name, section, reader)).collect();
    whole.sort_by(|one, other| one.name.cmp(&other.name));
    Authorities { whole, names }
}

fn authority(written: &Spanned<String>, section: &Section, reader: &mut Reader<'_, '_>) -> Option<Authority> {
    let before = reader.report.len();
    let at = reader.at(&written.span);
    let name: Option<Name> = reader.tell(&written.span, written.value.parse());
    let directory = directory(written, section, reader);
    let mut authority = Authority::new(name?, directory?);
    authority.at = at;
    authority.email = section.text("email").and_then(|text| reader.tell(&text.span, contact(text.value)));
    if let Some(challenge) = section.text("challenge").and_then(|text| Challenge::from_word(text.value)) {
        authority.challenge = challenge;
    }
    authority.ca = file(section, "ca", reader);
    authority.profile = section.text("profile").map(|text| text.value.to_owned());
    authority.eab = section.section("eab").and_then(|eab| {
        let key_id = eab.text("key_id")?.value.to_owned();
        Some(ExternalAccount { key_id, key_file: file(eab, "key_file", reader)? })
    });
    authority.dns = file(section, "dns_hook", reader).map(DnsProvider::Hook);
    if let Some(update) = section.section("dns_update") {
        if section.mentions("dns_hook") {
            let problem = Problem::new("TXT records are set either by a program or by DNS updates");
            let help = "keep one of `dns_hook` and `dns_update`";
            reader.report.whole(section.key_span("dns_update"), problem.help(help));
        }
        authority.dns = dns_update(update, reader).map(DnsProvider::Update);
    }
    authority.dns_wait = section.duration("dns_wait").unwrap_or(authority.dns_wait);
    dns(section, &authority, &written.span, reader);
    if Authority::wants_account(&written.value) && !section.mentions("eab") && !section.mentions("directory")
    {
        let problem = Problem::new(format!("{} issues only for accounts that exist there", written.value));
        let help = "add eab = { key_id = \"…\", key_file = \"FILE\" } with what its web page gives you";
        reader.report.whole(&written.span, problem.help(help));
    }
    (reader.report.len() == before).then_some(authority)
}

fn directory(name: &Spanned<String>, section: &Section, reader: &mut Reader<'_, '_>) -> Option<DirectoryUrl> {
    if let Some(text) = section.text("directory") {
        return reader.parsed(&text);
    }
    if section.mentions("directory") {
        return None;
    }
    let known = Authority::well_known_url(&name.value);
    if known.is_none() {
        let problem = Problem::new(format!("[acme.{}] has no `directory`", name.value));
        reader.report.whole(&name.span, problem.help("add the URL that the authority gives"));
    }
    known
}

fn file(section: &Section, key: &str, reader: &mut Reader<'_, '_>) -> Option<FilePath> {
    let text = section.text(key)?;
    let file = reader.origin(&text.span).file(text.value);
    reader.tell(&text.span, file)
}

fn dns_update(section: &Section, reader: &mut Reader<'_, '_>) -> Option<DnsUpdate> {
    let server = section.text("server").and_then(|text| {
        let address = text.value.parse().map_err(|_| {
            let problem = Problem::new(format!("`{}` is not an address with a port", shown(text.value)));
            problem.help("write an address such as \"192.0.2.53:53\": names are not looked up")
        });
        reader.tell(&text.span, address)
    });
    let mut name = |key| section.text(key).and_then(|text| reader.parsed(&text));
    let (zone, key_name) = (name("zone"), name("key_name"));
    let key_file = file(section, "key_file", reader);
    let algorithm = section.text("algorithm").and_then(|text| TsigAlgorithm::from_word(text.value));
    Some(DnsUpdate {
        server: server?,
        zone: zone?,
        key_name: key_name?,
        key_file: key_file?,
        algorithm: algorithm.unwrap_or(TsigAlgorithm::HmacSha256),
    })
}

/// Holds the keys of dns-01 against the challenge.
fn dns(section: &Section, authority: &Authority, span: &Span, reader: &mut Reader<'_, '_>) {
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

/// The certificate of a `[[certificate]]` with `acme`; `hosts` are those of the routes.
pub(super) fn certificate(
    section: &Section,
    hosts: &[HostPattern],
    authorities: &Authorities,
    reader: &mut Reader<'_, '_>,
) -> Option<AcmeCertificate> {
    let before = reader.report.len();
    reader.not_empty(section, "acme", "name an authority, such as \"letsencrypt\"");
    let names = reader.list(section, "acme", |text: &Spanned<String>, _| named(&text.value, authorities));
    let asked: Vec<Authority> = names.iter().filter_map(|name| authorities.find(name)).collect();
    reader.not_empty(section, "names", "leave it out for the hosts of the routes");
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
    let key_type = section.text("key_type").and_then(|text| KeyType::from_word(text.value));
    (reader.report.len() == before).then(|| AcmeCertificate {
        authorities: names,
        names: subjects,
        key_type: key_type.unwrap_or(KeyType::P256),
        reuse_key: section.bool("reuse_key") == Some(true),
        on_demand,
    })
}

fn named(text: &str, authorities: &Authorities) -> Result<Name, Problem> {
    let name: Name = text.parse()?;
    if authorities.names.iter().any(|known| known == text) || Authority::well_known(&name).is_some() {
        return Ok(name);
    }
    if Authority::wants_account(text) {
        let problem = Problem::new(format!("{text} issues only for accounts that exist there"));
        return Err(problem.help(format!("add [acme.{text}] with `eab`")));
    }
    let problem = Problem::new(format!("there is no [acme.{text}]"));
    Err(problem.help("add it with its `directory`, or use \"letsencrypt\""))
}

fn subject(text: &str, asked: &[Authority]) -> Result<HostPattern, Problem> {
    if text.parse::<std::net::IpAddr>().is_ok() {
        let problem = Problem::new(format!(
            "`{text}` is an address: certificates of an authority are ordered for names only"
        ));
        return Err(problem.help("for addresses use the local CA: local = true"));
    }
    let host = text.parse()?;
    issuable(&host, asked).map(|()| host)
}

/// Whether every authority that may be asked can issue for the host.
fn issuable(host: &HostPattern, asked: &[Authority]) -> Result<(), Problem> {
    issuable_on_demand(host, asked)?;
    let by_name = asked.iter().find(|one| one.challenge != Challenge::Dns01);
    if let (HostPattern::Wildcard(_), Some(authority)) = (host, by_name) {
        let problem = Problem::new(format!("the wildcard `{host}` needs the challenge dns-01"));
        return Err(problem.help(format!("write challenge = \"dns-01\" in [acme.{}]", authority.name)));
    }
    Ok(())
}

/// The same for a pattern whose names are ordered one by one, so that a wildcard is none.
pub(super) fn issuable_on_demand(host: &HostPattern, asked: &[Authority]) -> Result<(), Problem> {
    if let Some(why) = not_issuable(host).filter(|_| asked.iter().any(|one| one.ca.is_none())) {
        let problem = Problem::new(format!("no public authority may issue for `{host}`: {why}"));
        return Err(problem.help("use the local CA: local = true"));
    }
    Ok(())
}

/// Holds what is asked of authorities against the listeners, and `tls.acme` against the authorities.
pub(super) fn between(
    root: &Section,
    listeners: &Sorted<'_, Listener>,
    authorities: &Authorities,
    config: &Config,
    reader: &mut Reader<'_, '_>,
) {
    if let Some(tls) = root.section("tls") {
        reader.not_empty(tls, "acme", "leave it out for the only [acme.NAME], or letsencrypt");
        for text in tls.list("acme").unwrap_or_default() {
            reader.tell(&text.span, named(&text.value, authorities));
        }
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

/// A section that no certificate names has no effect: it may be a slip of the pen, or left over.
fn unused(root: &Section, config: &Config, reader: &mut Reader<'_, '_>) {
    // A certificate with a mistake is not known, and may be the one that names it.
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

/// A challenge that no listener can answer will never succeed.
fn challenges(root: &Section, config: &Config, reader: &mut Reader<'_, '_>) {
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
