//! What a configuration needs of the machine: files, sockets and TCP ports, each with the key that names it. Pure: nothing
//! here looks at the disk.

use std::path::{Path, PathBuf};

use offramp_certs::staple;
use offramp_config::model::{
    AccessOutput, BackendConfig, CertificateConfig, CertificateSource, ClientNetworks, DnsProvider,
    ErrorPageFiles, FilePath, Jwks, ListenAddress, LogOutput, Networks, NotifyTarget, RelayTarget,
    RouteConfig, RouteTarget, ServerAddress, StoreUrl, Verify,
};
use offramp_config::{At, Config};

/// Something that a configuration needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The key that names it.
    pub(crate) key: &'static str,
    /// Its position in the configuration.
    pub(crate) at: At,
    /// The file, folder or port.
    pub(crate) what: What,
}

/// A file, folder or port that is needed, by its use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// This file is read, and what takes its place.
    Read(PathBuf),
    /// Everything in this folder is read.
    ReadAll(PathBuf),
    /// The certificates and keys of this folder are read, which may be symbolic links.
    Certificates(PathBuf),
    /// This file is written, renamed and made again.
    Log(PathBuf),
    /// This file, and others beside it with the same beginning of the name, are read, written, made and removed.
    Database(PathBuf),
    /// Everything in this folder may be made, read, written and removed.
    State(PathBuf),
    /// A Unix socket is made here.
    Socket(PathBuf),
    /// This TCP port is listened on; 0: one that the kernel picks.
    Listen(u16),
    /// This TCP port is connected.
    Connect(u16),
}

impl What {
    /// The file or folder; `None` for a port.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Read(path)
            | Self::ReadAll(path)
            | Self::Certificates(path)
            | Self::Log(path)
            | Self::Database(path)
            | Self::State(path)
            | Self::Socket(path) => Some(path),
            Self::Listen(_) | Self::Connect(_) => None,
        }
    }
}

/// Everything that `config` names. What its log store needs at a server is not among it: the store knows that.
pub(crate) fn needs(config: &Config) -> Vec<Need> {
    let mut found = NeedCollector { config, needs: Vec::new() };
    found.of_process();
    found.of_outputs();
    found.of_authorities();
    config.certificates.iter().for_each(|certificate| found.of_certificate(certificate));
    for listener in &config.listeners {
        listener.addresses.iter().for_each(|address| found.listen("listener.address", &listener.at, address));
        found.networks("listener.allow", "listener.deny", &listener.networks);
    }
    found.error_pages(&config.error_pages);
    config.routes.iter().for_each(|route| found.of_route(route));
    config.backends.iter().for_each(|backend| found.of_backend(backend));
    found.needs
}

struct NeedCollector<'a> {
    config: &'a Config,
    needs: Vec<Need>,
}

impl NeedCollector<'_> {
    fn add(&mut self, key: &'static str, at: &At, what: What) {
        self.needs.push(Need { key, at: at.clone(), what });
    }

    /// The position of a plain value.
    fn at(&self, key: &str) -> At {
        self.config.origins.of(key).cloned().unwrap_or(At::NOWHERE)
    }

    fn read<'f>(&mut self, key: &'static str, files: impl IntoIterator<Item = &'f FilePath>) {
        for file in files {
            self.add(key, &file.at, What::Read(file.path.clone()));
        }
    }

    fn listen(&mut self, key: &'static str, at: &At, address: &ListenAddress) {
        let what = match address {
            ListenAddress::Ip(address) => What::Listen(address.port()),
            ListenAddress::Unix(path) => What::Socket(path.clone()),
        };
        self.add(key, at, what);
    }

    /// Connections to Unix sockets are a matter of permissions.
    fn connect(&mut self, key: &'static str, at: &At, server: &ServerAddress) {
        let port = match server {
            ServerAddress::Unix(_) => return,
            ServerAddress::Ip(address) => address.port(),
            ServerAddress::Name { port, .. } => *port,
        };
        self.add(key, at, What::Connect(port));
    }

    fn of_process(&mut self) {
        let config = self.config;
        self.add("state_dir", &self.at("state_dir"), What::State(config.process.state_dir.clone()));
        self.read("geoip", &config.geoip);
        if config.admin.enabled {
            if let Some(endpoint) = &config.admin.endpoint {
                self.listen("admin.address", &endpoint.at, &endpoint.address);
            }
            self.read("admin.token_file", &config.admin.token_file);
            self.read("admin.users", &config.admin.users);
            self.read("admin.certificate", &config.admin.certificate);
            self.read("admin.key", &config.admin.key);
        }
    }

    fn of_outputs(&mut self) {
        let config = self.config;
        if let LogOutput::File(file) = &config.telemetry.log.output {
            self.add("log.output", &file.at, What::Log(file.path.clone()));
        }
        if let AccessOutput::File(file) = &config.telemetry.access_log.output {
            self.add("access_log.output", &file.at, What::Log(file.path.clone()));
        }
        if let Some(StoreUrl::Sqlite(file)) = &config.telemetry.log_store.url {
            self.add("log_store.url", &file.at, What::Database(file.path.clone()));
        }
        self.read("log_store.geoip", &config.telemetry.log_store.geoip);
        if let Some(endpoint) = &config.telemetry.metrics.endpoint {
            self.listen("metrics.address", &endpoint.at, &endpoint.address);
        }
        if let Some(server) = &config.telemetry.metrics.graphite {
            self.connect("metrics.graphite", &self.at("metrics.graphite"), server);
        }
        if let Some(collector) = &config.telemetry.tracing.otlp {
            self.connect("tracing.otlp", &self.at("tracing.otlp"), &collector.server);
        }
        for receiver in &config.telemetry.notify {
            match &receiver.to {
                NotifyTarget::Webhook(webhook) => {
                    if let Some(url) = &webhook.url {
                        self.add("notify.url", &receiver.at, What::Connect(url.port()));
                    }
                    // The port of its URL is in the file: see `grants`.
                    self.read("notify.url_file", &webhook.url_file);
                    self.read("notify.token_file", &webhook.token_file);
                }
                NotifyTarget::Mail(mail) => {
                    self.add("notify.mail.server", &receiver.at, What::Connect(mail.server.port()));
                    self.read("notify.mail.password_file", &mail.password_file);
                }
                // The helper starts it.
                NotifyTarget::Program(_) => {}
            }
            self.read("notify.ca", &receiver.ca);
        }
    }

    fn of_authorities(&mut self) {
        for authority in self.config.asked_authorities() {
            let port = What::Connect(authority.directory.port());
            self.add("acme.*.directory", &authority.at, port);
            self.read("acme.*.ca", &authority.ca);
            self.read("acme.*.eab.key_file", authority.eab.as_ref().map(|eab| &eab.key_file));
            match &authority.dns {
                Some(DnsProvider::Update(update)) => {
                    self.read("acme.*.dns_update.key_file", [&update.key_file]);
                    let port = What::Connect(update.server.port());
                    self.add("acme.*.dns_update.server", &authority.at, port);
                }
                // A program is the helper's business.
                Some(DnsProvider::Hook(_)) | None => {}
            }
        }
    }

    fn of_certificate(&mut self, certificate: &CertificateConfig) {
        match &certificate.source {
            CertificateSource::Files { cert, key, ocsp } => {
                self.read("certificate.cert", [cert]);
                self.read("certificate.key", key);
                self.read("certificate.ocsp", ocsp);
                // Where one is looked for if none is named.
                for path in staple::places(&cert.path).into_iter().filter(|_| ocsp.is_none()) {
                    self.add("certificate.ocsp", &cert.at, What::Read(path));
                }
            }
            CertificateSource::Directory { path } => {
                self.add("certificate.directory", &path.at, What::Certificates(path.path.clone()));
            }
            CertificateSource::Acme(acme) => {
                if let Some(ask) = acme.on_demand.as_ref().and_then(|on_demand| on_demand.ask.as_ref()) {
                    let (_, port) = ask.address();
                    self.add("certificate.on_demand.ask", &certificate.at, What::Connect(port));
                }
            }
            // In the state directory.
            CertificateSource::Local { .. } => {}
        }
    }

    fn of_route(&mut self, route: &RouteConfig) {
        match &route.target {
            RouteTarget::Relay(relay) => self.relay("route.server", &route.at, &relay.to),
            RouteTarget::Passthrough(passthrough) => {
                self.connect("route.passthrough", &route.at, &passthrough.server);
            }
            RouteTarget::Respond(respond) => self.read("route.respond.file", &respond.file),
            RouteTarget::Files(files) => {
                let root = What::ReadAll(files.root.path.clone());
                self.add("route.root", &files.root.at, root);
            }
            RouteTarget::Redirect(_) => {}
        }
        if let Some(auth) = &route.client_auth {
            self.read("route.client_auth.ca", &auth.ca);
            let bundles = auth.trust_domains.iter().flat_map(|domain| &domain.ca);
            self.read("route.client_auth.trust_domains", bundles);
            self.read("route.client_auth.crl", &auth.crl);
        }
        self.networks("route.allow", "route.deny", &route.networks);
        self.error_pages(&route.http.error_pages);
        self.read("route.redirects", &route.http.redirects);
        self.read("route.basic_auth.file", route.credentials.basic.as_ref().map(|basic| &basic.file));
        match route.credentials.jwt.as_ref().map(|jwt| &jwt.jwks) {
            Some(Jwks::File(file)) => self.read("route.jwt.jwks", [file]),
            Some(Jwks::Server(server)) => {
                self.add("route.jwt.jwks", &route.at, What::Connect(server.url.port()));
                self.read("route.jwt.ca", &server.ca);
            }
            None => {}
        }
        if let Some(forward) = &route.credentials.forward {
            self.relay("route.forward_auth.server", &forward.at, &forward.to);
        }
    }

    /// Backends are looked at by themselves.
    fn relay(&mut self, key: &'static str, at: &At, to: &RelayTarget) {
        match to {
            RelayTarget::Server(server) | RelayTarget::TlsServer(server) => self.connect(key, at, server),
            RelayTarget::Backend(_) | RelayTarget::Split(_) => {}
        }
    }

    fn of_backend(&mut self, backend: &BackendConfig) {
        for server in &backend.servers {
            self.connect("backend.*.servers", &server.at, &server.address);
        }
        let Some(tls) = &backend.tls else { return };
        if let Verify::File(ca) = &tls.verify {
            self.read("backend.*.tls.verify", [ca]);
        }
        self.read("backend.*.tls.crl", &tls.crl);
        if let Some(certificate) = &tls.certificate {
            self.read("backend.*.tls.cert", [&certificate.cert]);
            self.read("backend.*.tls.key", &certificate.key);
        }
    }

    fn networks(&mut self, allow: &'static str, deny: &'static str, networks: &ClientNetworks) {
        for (key, entries) in [(allow, &networks.allow), (deny, &networks.deny)] {
            let files = entries.iter().filter_map(|entry| match entry {
                Networks::File(file) => Some(file),
                Networks::One(_) | Networks::Country(_) => None,
            });
            self.read(key, files);
        }
    }

    fn error_pages(&mut self, pages: &ErrorPageFiles) {
        self.read("route.error_pages", pages.files.iter().map(|(_, file)| file));
    }
}

#[cfg(test)]
mod tests;
