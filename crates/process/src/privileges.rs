//! Drops privileges: becomes the configured user, after sockets are bound and keys are read.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use offramp_config::Config;
use offramp_config::model::{
    AccessOutput, CertificateSource, ClientCertificate, DnsProvider, FilePath, ImpliedCertificates,
    ListenAddress, LogOutput, StoreUrl, User, Verify,
};
use offramp_net::ownership;
use offramp_net::process::{UserIdentity, is_root};
use offramp_observe::Log;

use crate::error::{Error, Finding};
use crate::origin::Origin;
use crate::standard_stream;
use crate::state_dir;

/// The user to become, if any. The default user need not exist; a configured one must. That a process stays root is
/// plain where a command line has it serve one application or folder, and worth a line where a file has it serve for days.
///
/// # Errors
/// There is no such user.
pub fn find(user: Option<&User>, origin: &Origin, log: &Log) -> Result<Option<UserIdentity>, Error> {
    let Some(user) = user else { return Ok(None) };
    let asked_for = user.at.place().is_some() || user.name != User::default().name;
    match UserIdentity::find(&user.name) {
        Ok(identity) if identity.is_current() => Ok(None),
        Ok(identity) if is_root() => Ok(Some(identity)),
        Ok(_) | Err(_) if !is_root() => {
            if asked_for {
                let advice = "only root can switch; remove `user`, or start as root";
                let fields = [("user", (&user.name).into()), ("advice", advice.into())];
                log.warn("the user is not switched", &fields);
            }
            Ok(None)
        }
        Ok(identity) => Ok(Some(identity)),
        Err(reason) if asked_for => Err(vec![Finding::new(&user.at, reason)].into()),
        Err(_) => {
            let advice = "create it with `useradd --system --no-create-home offramp`, or set `user`";
            let (message, fields) = ("staying root: there is no user offramp", [("advice", advice.into())]);
            match origin {
                Origin::File(_) => log.info(message, &fields),
                Origin::CommandLine => log.debug(message, &fields),
            }
            Ok(None)
        }
    }
}

/// True if the process is root and becomes another user later.
pub fn will_switch(config: &Config) -> bool {
    let other = |user: &User| UserIdentity::find(&user.name).is_ok_and(|identity| !identity.is_current());
    is_root() && config.process.user.as_ref().is_some_and(other)
}

/// Gives `identity` the files that it must write, and becomes it permanently.
///
/// # Errors
/// What the kernel says; the process must then end.
pub fn assume(identity: &UserIdentity, config: &Config, origin: &Origin) -> Result<(), Error> {
    let own = |file: BorrowedFd<'_>| identity.own(file);
    let failed = |doing: &str, error: &io::Error| Error::one(format!("cannot {doing}: {error}"));
    if uses_state(config, origin) {
        ownership::give(&config.process.state_dir, &own)
            .map_err(|error| failed("change the owner of the state directory", &error))?;
    }
    if let Some(StoreUrl::Sqlite(file)) = &config.telemetry.log_store.url {
        for path in state_dir::database_files(&file.path) {
            ownership::give_file(&path, &own)
                .map_err(|error| failed("change the owner of the log store", &error))?;
        }
    }
    if let LogOutput::File(file) = &config.telemetry.log.output
        && standard_stream::of(&file.path).is_none()
    {
        ownership::give_file(&file.path, &own)
            .map_err(|error| failed("change the owner of the log file", &error))?;
    }
    if let AccessOutput::File(file) = &config.telemetry.access_log.output
        && standard_stream::of(&file.path).is_none()
    {
        // Made here, as its directory is often root's. That it cannot be is reported when it is opened.
        let _ = ownership::append(&file.path, 0o640);
        ownership::give_file(&file.path, &own)
            .map_err(|error| failed("change the owner of the access log", &error))?;
    }
    identity.assume().map_err(|error| failed("switch the user", &error))
}

/// True if anything is written to the state directory: certificates that are not from files, the key of hashes, the spool of
/// the log store, the socket of the admin interface, or the configuration in force.
fn uses_state(config: &Config, origin: &Origin) -> bool {
    let kept = |item: &offramp_config::model::CertificateConfig| {
        !matches!(item.source, CertificateSource::Files { .. } | CertificateSource::Directory { .. })
    };
    let kept = config.certificates.iter().any(kept) || config.tls.certificates == ImpliedCertificates::Acme;
    let admin = match config.admin.endpoint.as_ref().map(|endpoint| &endpoint.address) {
        _ if !config.admin.enabled => false,
        None => matches!(origin, Origin::File(_)),
        Some(ListenAddress::Unix(path)) => path.starts_with(&config.process.state_dir),
        Some(ListenAddress::Ip(_)) => false,
    };
    kept || admin
        || origin.keeps_changes(config)
        || !config.telemetry.access_log.hash.is_empty()
        || config.telemetry.log_store.url.is_some()
}

/// The files that this user cannot read, of those that are read again: renewed certificates, the keys of authorities and
/// name servers for each order, and everything for a reload. `further`: files that a reload reads beside certificates,
/// their authorities and the configuration itself.
pub fn unreadable<'c>(
    config: &'c Config,
    origin: &Origin,
    further: impl IntoIterator<Item = &'c FilePath>,
) -> Vec<Finding> {
    let user = UserIdentity::current().name();
    let unread = |file: &FilePath, follows: &str| {
        let error = File::open(&file.path).err()?;
        let path = file.path.display();
        let text = format!(
            "{follows}: the user {user} cannot read {path} ({error}); let this user read it and enter the directories \
             above (chown {user} {path}), after each renewal too, or start Offramp as this user"
        );
        Some(Finding::new(&file.at, text))
    };
    let mut findings = Vec::new();
    if let Origin::File(path) = origin {
        let files = offramp_config::sources(path).files;
        findings
            .extend(files.iter().filter_map(|path| unread(&FilePath::new(path), "a reload will be refused")));
    }
    for authority in config.asked_authorities() {
        let updates = match &authority.dns {
            Some(DnsProvider::Update(update)) => Some(&update.key_file),
            Some(DnsProvider::Hook(program)) => Some(program),
            None => None,
        };
        let files = [authority.ca.as_ref(), authority.eab.as_ref().map(|eab| &eab.key_file), updates];
        let follows = format!("orders at {} will fail", authority.name);
        findings.extend(files.into_iter().flatten().filter_map(|file| unread(file, &follows)));
    }
    let mut look = |file: &FilePath| {
        findings.extend(unread(
            file,
            "it is in use, but a renewed one will not be, and a reload will be refused then",
        ));
    };
    of_tls(config, &mut look);
    further.into_iter().for_each(look);
    findings
}

/// Looks at the files of certificates, their keys and authorities, those of servers and clients included.
fn of_tls(config: &Config, look: &mut impl FnMut(&FilePath)) {
    for certificate in &config.certificates {
        match &certificate.source {
            CertificateSource::Files { cert, key, ocsp } => {
                look(cert);
                key.iter().chain(ocsp).for_each(&mut *look);
            }
            CertificateSource::Directory { path } => look(&unreadable_in(path)),
            CertificateSource::Local { .. } | CertificateSource::Acme(_) => {}
        }
    }
    for tls in config.backends.iter().filter_map(|backend| backend.tls.as_ref()) {
        if let Verify::File(ca) = &tls.verify {
            look(ca);
        }
        tls.crl.iter().for_each(&mut *look);
        if let Some(ClientCertificate { cert, key }) = &tls.certificate {
            look(cert);
            key.iter().for_each(&mut *look);
        }
    }
    for route in &config.routes {
        route.client_auth.iter().flat_map(|auth| auth.authorities().chain(&auth.crl)).for_each(&mut *look);
    }
}

/// The first key of a folder that cannot be read, or the folder.
fn unreadable_in(folder: &FilePath) -> FilePath {
    let listing = offramp_certs::directory::pairs(&folder.path).unwrap_or_default();
    let mut keys = listing.pairs.into_iter().map(|(cert, key)| key.unwrap_or(cert));
    let path = keys.find(|key| File::open(key).is_err()).unwrap_or_else(|| folder.path.clone());
    FilePath { path, at: folder.at.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_looked_for_where_nobody_is_named() {
        assert!(find(None, &Origin::CommandLine, &Log::silent()).unwrap().is_none());
    }

    #[test]
    fn the_directory_of_the_admin_socket_is_used() {
        let file = Origin::File("/etc/offramp/offramp.toml".into());
        let read = |text: &str| {
            let document = offramp_config::Document { name: "c", path: std::path::Path::new("/c/c.toml") };
            let listener = "[[listener]]\naddress = \"127.0.0.1:1\"\nmode = \"http\"\ntls = false\n";
            let route = "[[route]]\nserver = \"127.0.0.1:2\"\n";
            let text = format!("state_dir = \"/s\"\n{text}{listener}{route}");
            let environment = offramp_config::Environment::default();
            offramp_config::load_document(&text, &document, &environment).unwrap().0
        };
        let uses = |text: &str, origin: &Origin| uses_state(&read(text), origin);
        assert!(uses("", &file));
        assert!(!uses("", &Origin::CommandLine), "it has no admin interface");
        assert!(uses("[admin]\naddress = \"unix:/s/a.sock\"\n", &file));
        for other in ["address = \"unix:/run/a.sock\"", "address = \"127.0.0.1:3\""] {
            assert!(
                uses(&format!("[admin]\n{other}\n"), &file),
                "the configuration in force is kept: {other}"
            );
            assert!(!uses(&format!("[admin]\n{other}\n"), &Origin::CommandLine), "{other}");
        }
        assert!(!uses("[admin]\nenabled = false\n", &file));
        assert!(uses("[admin]\nenabled = false\n[access_log]\nhash = [\"client\"]\n", &file));
    }

    #[test]
    fn a_named_user_must_exist_where_a_switch_is_possible() {
        let user = User { name: "no-such-user-of-offramp".into(), ..User::default() };
        let found = find(Some(&user), &Origin::CommandLine, &Log::silent());
        if is_root() {
            assert!(found.unwrap_err().to_string().contains("useradd"));
        } else {
            assert!(found.unwrap().is_none());
        }
    }
}
