//! Configurations of one application, or one directory of files, without a configuration file: for `to`,
//! `serve` and `demo`.
//!
//! The result is an ordinary [`Config`]: the command line can express nothing that a file cannot.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::path::PathBuf;

use offramp_config::model::{
    AccessFormat, AcmeAuthority, AcmeCertificate, AcmeKeyType, BackendConfig, BackendServer,
    CertificateConfig, CertificateName, CertificateSource, DefaultRole, DirectoryUrl, FilePath, HostName,
    HostPattern, ListenAddress, ListenerConfig, Listeners, Mode, Name, ProxyProtocolHeader, ProxyV2,
    RedirectResponse, RedirectTo, RelayConfig, RelayTarget, RouteConfig, RouteTarget, ServerAddress,
    ServerTls, StaticFiles, StoreUrl, Verify, Workers, not_issuable,
};
use offramp_config::{At, Config, Environment};

use crate::flags::{CertificateOptions, ProxyProtocolVersion, Serve, To};
use crate::target::ServerSpeaks;

/// Origin of the responses that clients get.
pub(crate) enum Answers {
    /// Bytes or requests are relayed to an application.
    Application {
        /// Address of the application.
        server: ServerAddress,
        /// TLS settings for the application, if it speaks TLS.
        tls: Option<ServerTls>,
        /// PROXY header to send to it, if any.
        send_proxy: Option<ProxyProtocolHeader>,
    },
    /// Files of a directory are served.
    Files(StaticFiles),
}

/// Settings of the command line for one application or directory.
pub(crate) struct Single {
    pub(crate) answers: Answers,
    /// Addresses of the main listener.
    pub(crate) listen: Vec<ListenAddress>,
    /// Mode of the main listener.
    pub(crate) mode: Mode,
    /// Source of the certificate; `None` if clients speak plain text.
    pub(crate) certificate: Option<CertificateSource>,
    /// ACME authority that issues the certificate, if one does.
    pub(crate) authority: Option<AcmeAuthority>,
    /// Listen address of the redirect to https.
    pub(crate) redirect: Option<ListenAddress>,
    pub(crate) workers: Workers,
    /// Format of events on standard output.
    pub(crate) events: AccessFormat,
    pub(crate) log_store: Option<StoreUrl>,
}

impl Single {
    /// Settings of `offramp to`; `listen` is the result of `--listen` and `--public`.
    pub(crate) fn to(arguments: To, listen: Vec<ListenAddress>, events: AccessFormat) -> io::Result<Self> {
        let (certificate, authority) = match arguments.no_tls {
            true => (None, None),
            false => {
                let (certificate, authority) = certificate(arguments.identity, &listen)?;
                (Some(certificate), authority)
            }
        };
        let tls = arguments.target.tls;
        if tls == ServerSpeaks::Plain && (arguments.server_ca.is_some() || arguments.server_name.is_some()) {
            let why = "--server-ca and --server-name need a TARGET that speaks TLS: tls://host:port or postgres+tls://host:port";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
        }
        let preamble = match tls {
            ServerSpeaks::Plain | ServerSpeaks::Tls => None,
            ServerSpeaks::TlsAfter(preamble) => Some(preamble),
        };
        if preamble.is_some() && arguments.http {
            let why = "--http is for applications that speak HTTP, and postgres+tls:// leads to PostgreSQL";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
        }
        let server_tls = match tls {
            ServerSpeaks::Plain => None,
            ServerSpeaks::Tls | ServerSpeaks::TlsAfter(_) => Some(ServerTls {
                preamble,
                verify: arguments.server_ca.map(absolute).transpose()?.map_or(Verify::System, Verify::File),
                name: arguments.server_name,
                ..ServerTls::default()
            }),
        };
        Ok(Single {
            answers: Answers::Application {
                server: arguments.target.address,
                tls: server_tls,
                send_proxy: arguments.send_proxy.map(|version| match version {
                    ProxyProtocolVersion::V1 => ProxyProtocolHeader::V1,
                    ProxyProtocolVersion::V2 => ProxyProtocolHeader::V2(ProxyV2::default()),
                }),
            },
            listen,
            mode: if arguments.http { Mode::Http } else { Mode::Tcp },
            certificate,
            authority,
            redirect: None,
            workers: workers(arguments.workers),
            events,
            log_store: arguments.log_store,
        })
    }

    /// Settings of `offramp serve`; `listen` is the result of `--listen` and `--public`.
    pub(crate) fn serve(
        arguments: Serve,
        listen: Vec<ListenAddress>,
        events: AccessFormat,
    ) -> io::Result<Self> {
        let mut files = StaticFiles::new(absolute(arguments.directory)?);
        files.listing = !arguments.no_listing;
        files.hidden = arguments.hidden;
        files.fallback = arguments.fallback;
        let (certificate, authority) = certificate(arguments.identity, &listen)?;
        Ok(Single {
            answers: Answers::Files(files),
            listen,
            mode: Mode::Http,
            certificate: Some(certificate),
            authority,
            redirect: None,
            workers: workers(arguments.workers),
            events,
            log_store: arguments.log_store,
        })
    }

    /// Converts the settings to a configuration.
    pub(crate) fn config(self, environment: &Environment) -> Config {
        let mut config = Config::for_environment(environment);
        let target = match self.answers {
            Answers::Files(files) => RouteTarget::Files(files),
            Answers::Application { server, tls, send_proxy } => {
                let to = match tls {
                    None => RelayTarget::Server(server),
                    Some(tls) if tls == ServerTls::default() => RelayTarget::TlsServer(server),
                    Some(tls) => {
                        let backend = BackendConfig::new(Name::default(), vec![BackendServer::new(server)]);
                        config.backends = vec![BackendConfig { tls: Some(tls), ..backend }];
                        RelayTarget::Backend(Name::default())
                    }
                };
                RouteTarget::Relay(RelayConfig { send_proxy, ..RelayConfig::new(to) })
            }
        };
        // A load test, or a balancer in front, has one address: one client may have all connections.
        config.limits.connections_per_client = config.limits.connections;
        config.process.workers = self.workers;
        config.telemetry.access_log.format = self.events;
        config.telemetry.log_store.url = self.log_store;
        let tls = self.certificate.is_some();
        let certificate =
            |source| CertificateConfig { source, default: DefaultRole::Always, at: At::NOWHERE };
        config.certificates = self.certificate.into_iter().map(certificate).collect();
        config.listeners = vec![ListenerConfig {
            addresses: self.listen,
            mode: self.mode,
            tls,
            ..ListenerConfig::default()
        }];
        config.routes = vec![RouteConfig::to(target)];
        config.authorities = self.authority.into_iter().collect();
        if let Some(address) = self.redirect {
            let plain = ListenerConfig {
                // The name is valid, so the default is never used.
                name: PLAIN.parse().unwrap_or_default(),
                addresses: vec![address],
                mode: Mode::Http,
                tls: false,
                ..ListenerConfig::default()
            };
            let redirect = RedirectResponse::permanent(RedirectTo::Https);
            let listeners = Listeners::Named(vec![plain.name.clone()]);
            config.routes.push(RouteConfig { listeners, ..RouteConfig::to(RouteTarget::Redirect(redirect)) });
            config.routes[0].listeners = Listeners::Named(vec![config.listeners[0].name.clone()]);
            config.listeners.push(plain);
        }
        config
    }
}

/// Name of the listener that redirects to https.
const PLAIN: &str = "plain";

fn absolute(path: PathBuf) -> io::Result<FilePath> {
    offramp_config::absolute(path).map(FilePath::new)
}

fn workers(count: Option<u16>) -> Workers {
    count.and_then(NonZeroU16::new).map_or(Workers::Auto, Workers::Count)
}

/// Source of the certificate, and its ACME authority.
fn certificate(
    identity: CertificateOptions,
    listen: &[ListenAddress],
) -> io::Result<(CertificateSource, Option<AcmeAuthority>)> {
    let authority = identity.acme.map(|email| acme_authority(email, identity.acme_directory));
    let mut authority = authority.transpose()?;
    if let (Some(authority), Some(ca)) = (&mut authority, identity.acme_ca) {
        authority.ca = Some(absolute(ca)?);
    }
    let source = match identity.cert {
        _ if authority.is_some() => acme_source(&identity.name, authority.as_ref())?,
        Some(cert) => CertificateSource::Files {
            cert: absolute(cert)?,
            key: identity.key.map(absolute).transpose()?,
            ocsp: None,
        },
        None if identity.name.is_empty() => local(listen),
        None => CertificateSource::Local { names: identity.name },
    };
    Ok((source, authority))
}

/// ACME authority of `--acme` and `--acme-directory`.
fn acme_authority(email: String, directory: Option<DirectoryUrl>) -> io::Result<AcmeAuthority> {
    let named = |name: &str| name.parse::<Name>().map_err(|problem| io::Error::other(problem.to_string()));
    let authority = match directory {
        Some(directory) => Some(AcmeAuthority::new(named("authority")?, directory)),
        None => AcmeAuthority::well_known(&named("letsencrypt")?),
    };
    let authority = authority.ok_or_else(|| io::Error::other("there is no such authority"))?;
    Ok(AcmeAuthority { email: Some(email), ..authority })
}

/// Source of an ACME certificate for the names of `--name`.
fn acme_source(
    names: &[CertificateName],
    authority: Option<&AcmeAuthority>,
) -> io::Result<CertificateSource> {
    let public = authority.is_none_or(|authority| authority.ca.is_none());
    let mut hosts = Vec::new();
    for name in names {
        let why = match name {
            CertificateName::Ip(_) => Some("it is an address"),
            CertificateName::Host(HostPattern::Wildcard(_)) => {
                Some("a wildcard needs the challenge dns-01, for which there is the configuration file")
            }
            CertificateName::Host(host) => not_issuable(host).filter(|_| public),
        };
        match (name, why) {
            (CertificateName::Host(host), None) => hosts.push(host.clone()),
            (_, why) => {
                let why = why.unwrap_or_default();
                return Err(io::Error::other(format!("error: --acme: no certificate for {name}: {why}")));
            }
        }
    }
    let authorities = authority.iter().map(|authority| authority.name.clone()).collect();
    let (names, key_type) = (hosts, AcmeKeyType::P256);
    Ok(CertificateSource::Acme(AcmeCertificate {
        authorities,
        names,
        key_type,
        reuse_key: false,
        on_demand: None,
    }))
}

/// Source of a certificate from the local CA, for the loopback names of this machine and the specific
/// addresses in `listen`.
pub(crate) fn local(listen: &[ListenAddress]) -> CertificateSource {
    let localhost = HostPattern::Exact(HostName::localhost());
    let mut names = vec![
        CertificateName::Host(localhost),
        CertificateName::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        CertificateName::Ip(IpAddr::V6(Ipv6Addr::LOCALHOST)),
    ];
    for address in listen {
        let ListenAddress::Ip(address) = address else { continue };
        let own = CertificateName::Ip(address.ip());
        if !address.ip().is_unspecified() && !names.contains(&own) {
            names.push(own);
        }
    }
    CertificateSource::Local { names }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use offramp_config::{Environment, parse, print};

    use super::Single;
    use crate::flags::{Cli, Command};

    fn single(line: &str) -> std::io::Result<Single> {
        let events = offramp_config::model::AccessFormat::Json;
        match Cli::parse_from(line.split(' ')).command {
            Command::To(to) => {
                let listen = to.listening.listen.addresses(to.listening.public, true).unwrap();
                Single::to(to, listen, events)
            }
            Command::Serve(serve) => {
                let listen = serve.listening.listen.addresses(serve.listening.public, true).unwrap();
                Single::serve(serve, listen, events)
            }
            _ => unreachable!(),
        }
    }

    #[test]
    fn names_that_no_authority_issues_are_refused() {
        for name in ["nas.lan", "10.0.0.1", "*.example.org"] {
            let refused = single(&format!("offramp to 1 --name {name} --acme me@example.org"));
            assert!(refused.err().unwrap().to_string().contains(name), "{name}");
        }
    }

    #[test]
    fn browsers_without_tls_are_sent_to_it() {
        let mut single = single("offramp to 1 --name a.example.org --acme me@example.org").unwrap();
        single.redirect = Some("[::]:80".parse().unwrap());
        let text = print(&single.config(&Environment::default()));
        assert!(text.contains("address = [\"[::]:80\"]") && text.contains("redirect = \"https\""), "{text}");
        parse(&text, "/to.toml", &Environment::default()).unwrap();
    }

    fn printed(line: &str) -> String {
        let single = single(line).unwrap();
        let config = single.config(&Environment::default());
        let text = print(&config);
        let (again, warnings) = parse(&text, "/to.toml", &Environment::default()).unwrap();
        assert_eq!((again, warnings), (config, Vec::new()), "{text}");
        text
    }

    #[test]
    fn it_is_a_configuration_that_a_file_could_have() {
        let text = printed("offramp to 3000");
        assert!(text.contains("address = [\"127.0.0.1:8443\", \"[::1]:8443\"]"), "{text}");
        assert!(text.contains("names = [\"localhost\", \"127.0.0.1\", \"::1\"]"), "{text}");
        assert!(text.contains("server = \"127.0.0.1:3000\""), "{text}");
        assert!(text.contains("mode = \"tcp\"") && !text.contains("send_proxy"), "{text}");
        assert!(text.contains("connections_per_client = 100000"), "{text}");
        assert!(
            !text.contains("handshakes_per_client =") && !text.contains("requests_per_client ="),
            "{text}"
        );
        let text = printed("offramp to 3000 --http");
        assert!(text.contains("mode = \"http\""), "{text}");
    }

    #[test]
    fn every_option_arrives() {
        let text = printed(
            "offramp to unix:/a.sock --listen 127.0.0.2:443 --cert /c.pem --key /k.pem --send-proxy v2 --workers 3",
        );
        for part in
            ["cert = \"/c.pem\"", "key = \"/k.pem\"", "version = \"v2\"", "workers = 3", "127.0.0.2:443"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = printed("offramp to 1 --name *.home.arpa --name 10.0.0.1 --send-proxy v1");
        assert!(text.contains("names = [\"*.home.arpa\", \"10.0.0.1\"]"), "{text}");
        assert!(text.contains("send_proxy = \"v1\""), "{text}");
        let text = printed("offramp to 1 --name a.example.org --acme me@example.org");
        assert!(
            text.contains("acme = [\"letsencrypt\"]") && text.contains("names = [\"a.example.org\"]"),
            "{text}"
        );
        assert!(text.contains("[acme.letsencrypt]") && text.contains("email = \"me@example.org\""), "{text}");
        let text = printed(
            "offramp to 1 --name a.lan --acme me@example.org --acme-directory https://ca.lan/dir --acme-ca /ca.pem",
        );
        assert!(
            text.contains("directory = \"https://ca.lan/dir\"") && text.contains("ca = \"/ca.pem\""),
            "{text}"
        );
        let text = printed("offramp to tls://db.example.org:5432 --no-tls");
        assert!(
            text.contains("server = \"tls://db.example.org:5432\"") && text.contains("tls = false"),
            "{text}"
        );
        assert!(!text.contains("\n[[certificate]]\n"), "{text}");
        let text = printed("offramp to postgres+tls://db.example.org:5432 --no-tls");
        assert!(text.contains("tls = { verify = \"system\", preamble = \"postgres\" }"), "{text}");
        assert!(single("offramp to postgres+tls://db.example.org:5432 --http").is_err());
        let text = printed("offramp to tls://10.0.0.7:1 --server-ca /ca.pem --server-name db.internal");
        assert!(text.contains("tls = { verify = \"/ca.pem\", name = \"db.internal\" }"), "{text}");
        let text = printed("offramp to 1 --log-store sqlite:/a.db");
        assert!(text.contains("url = \"sqlite:/a.db\""), "{text}");
        let text = printed("offramp to 1 --listen 10.0.0.7:443");
        assert!(text.contains("\"::1\", \"10.0.0.7\"]"), "{text}");
    }

    #[test]
    fn a_directory_is_a_configuration_too() {
        let text = printed("offramp serve /srv/www");
        for part in [
            "mode = \"http\"",
            "root = \"/srv/www\"",
            "hidden = false",
            "listing = true",
            "\"127.0.0.1:8443\"",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = printed(
            "offramp serve /srv/www --fallback /index.html --hidden --no-listing --workers 2 --name a.lan",
        );
        for part in [
            "fallback = \"/index.html\"",
            "hidden = true",
            "listing = false",
            "workers = 2",
            "names = [\"a.lan\"]",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = printed("offramp serve / --name a.example.org --acme me@example.org");
        assert!(text.contains("acme = [\"letsencrypt\"]") && text.contains("root = \"/\""), "{text}");
    }
}
