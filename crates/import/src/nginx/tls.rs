//! TLS to clients: certificates, versions, client certificates.

use super::listeners::{Listen, ListenerGroup};
use super::tree::Directive;
use super::{Lowering, Scope};
use crate::draft::{DraftKeys, inline, quoted};
use crate::report::Fate;

/// The versions that are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Versions {
    Both,
    OnlyNew,
    OnlyOld,
}

impl<'a> Lowering<'a> {
    /// Drafts the certificates of a server.
    pub(super) fn certificates(&mut self, scope: &Scope<'a>, server: &'a Directive) {
        let (chains, keys) = (scope.all("ssl_certificate"), scope.all("ssl_certificate_key"));
        let refuses = scope.is_on("ssl_reject_handshake");
        if let Some(one) = refuses {
            self.take(one);
            self.set("tls", "unknown_name", quoted("refuse"), one);
            self.set("tls", "no_server_name", quoted("refuse"), one);
        }
        if chains.is_empty() && refuses.is_none() {
            let how = "it has no `ssl_certificate`: its names get certificates of the local CA";
            self.note(server, Fate::changed(how));
        }
        for (number, chain) in chains.iter().enumerate() {
            let Some(key) = keys.get(number) else {
                self.refuse(
                    chain,
                    "there is no `ssl_certificate_key` for it",
                    "write `key` in [[certificate]]",
                );
                continue;
            };
            if [chain, key].iter().any(|one| one.argument(0).contains('$') || one.argument(0).contains(':')) {
                for one in [chain, key] {
                    let why = "certificates are read at the start, from files";
                    self.refuse(one, why, "name the folder with `directory` in [[certificate]]");
                }
                continue;
            }
            self.take(chain);
            self.take(key);
            let mut pair: DraftKeys = vec![("cert".to_owned(), self.path(chain.argument(0)))];
            if key.argument(0) != chain.argument(0) {
                pair.push(("key".to_owned(), self.path(key.argument(0))));
            }
            if self.pairs.insert(pair.clone()) {
                let item = self.item(chain, pair);
                self.draft.certificates.push(item);
            }
        }
    }

    /// The settings of `[tls]`, from all servers with TLS.
    pub(super) fn tls_settings(
        &mut self,
        servers: &[(&'a Directive, Vec<Listen<'a>>, Scope<'a>)],
        groups: &[ListenerGroup],
    ) {
        let mut found: Vec<(&'a Directive, Versions)> = Vec::new();
        for (number, (server, _, scope)) in servers.iter().enumerate() {
            if !groups.iter().any(|group| group.tls && group.has(number)) {
                continue;
            }
            let scope = scope.inside(server.inner());
            if let Some(one) = scope.one("ssl_protocols") {
                found.push((one, self.versions(one)));
            }
            if let Some(one) = scope.one("ssl_session_tickets") {
                self.take(one);
                if one.argument(0) == "off" {
                    self.set("tls", "tickets", "0".to_owned(), one);
                }
            }
        }
        let Some((first, versions)) = found.first().copied() else { return };
        if found.iter().any(|(_, other)| *other != versions) {
            let how = "[tls] is one for all listeners, and admits what any of the servers does; `tls` of a route can differ";
            for (one, _) in &found {
                self.note(one, Fate::changed(how));
            }
            return;
        }
        match versions {
            Versions::Both => {}
            Versions::OnlyNew => self.set("tls", "policy", quoted("modern"), first),
            Versions::OnlyOld => self.set("tls", "max_version", quoted("1.2"), first),
        }
    }

    fn versions(&mut self, one: &'a Directive) -> Versions {
        self.take(one);
        if ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1"].iter().any(|old| one.has(old)) {
            let how = "TLS 1.2 and 1.3 are spoken, and nothing older";
            self.note(one, Fate::changed(how));
        }
        match (one.has("TLSv1.2"), one.has("TLSv1.3")) {
            (false, true) => Versions::OnlyNew,
            (true, false) => Versions::OnlyOld,
            _ => Versions::Both,
        }
    }

    /// The `client_auth` of the routes of a server; an error closes them.
    pub(super) fn client_auth(&mut self, scope: &Scope<'a>, secure: bool) -> Result<Option<String>, ()> {
        let Some(verify) = scope.one("ssl_verify_client") else { return Ok(None) };
        let mode = match verify.argument(0) {
            "on" => "required",
            "optional" => "optional",
            "off" => {
                self.take(verify);
                return Ok(None);
            }
            _ => {
                let why = "certificates are checked against authorities, or not asked for";
                self.refuse(verify, why, "see `client_auth` of a route");
                return Err(());
            }
        };
        let Some(ca) = scope.one("ssl_client_certificate").or_else(|| scope.one("ssl_trusted_certificate"))
        else {
            self.refuse(
                verify,
                "there is no `ssl_client_certificate`",
                "name the authorities in `client_auth.ca`",
            );
            return Err(());
        };
        if !secure {
            self.refuse(verify, "the server listens without TLS too", "divide it into two servers");
            return Err(());
        }
        self.take(verify);
        self.take(ca);
        let mut keys: DraftKeys = vec![("ca".to_owned(), self.path(ca.argument(0)))];
        if mode == "optional" {
            keys.push(("mode".to_owned(), quoted(mode)));
        }
        if let Some(crl) = scope.one("ssl_crl") {
            self.take(crl);
            keys.push(("crl".to_owned(), self.path(crl.argument(0))));
        }
        Ok(Some(inline(&keys)))
    }
}
