//! The configuration of one application without a configuration file, as `to` and `demo` have it.
//!
//! It is an ordinary [`Config`], made in code: what a file could not say, neither can the command line.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use offramp_config::model::{
    AccessFormat, AcmeCertificate, Authority, Backend, Certificate, CertificateName, CertificateSource,
    DefaultRole, DirectoryUrl, FilePath, HostName, HostPattern, KeyType, ListenAddress, Listener, Listeners,
    Mode, Name, ProxyV2, Redirect, RedirectTo, Relay, RelayTarget, Route, SendProxy, Server, ServerAddress,
    ServerTls, StoreUrl, Target, Verify, Workers, not_issuable,
};
use offramp_config::{At, Config, Environment};

use crate::flags::{ProxyVersion, To};
use crate::target::ServerSpeaks;

/// What the command line says about one application.
pub(crate) struct Single {
    /// The application.
    pub(crate) server: ServerAddress,
    /// How TLS is spoken to it, if at all.
    pub(crate) server_tls: Option<ServerTls>,
    /// Where clients come.
    pub(crate) listen: Vec<ListenAddress>,
    /// What is done with connections.
    pub(crate) mode: Mode,
    /// Where the certificate comes from; `None`: clients speak plain text.
    pub(crate) certificate: Option<CertificateSource>,
    /// Who is asked for it, if an authority is.
    pub(crate) authority: Option<Authority>,
    /// Where browsers that come without TLS are sent to it.
    pub(crate) redirect: Option<ListenAddress>,
    /// The PROXY header for the application.
    pub(crate) send_proxy: Option<SendProxy>,
    /// Worker threads.
    pub(crate) workers: Workers,
    /// How events are written to standard output.
    pub(crate) events: AccessFormat,
    /// The log store.
    pub(crate) log_store: Option<StoreUrl>,
}

impl Single {
    /// What `to` was told; `listen` is what its `--listen` and `--public` mean.
    pub(crate) fn to(arguments: To, listen: Vec<ListenAddress>, events: AccessFormat) -> io::Result<Self> {
        let file = |path| std::path::absolute(path).map(FilePath::new);
        let authority = arguments.acme.map(|email| asked(email, arguments.acme_directory));
        let mut authority = authority.transpose()?;
        if let (Some(authority), Some(ca)) = (&mut authority, arguments.acme_ca) {
            authority.ca = Some(file(ca)?);
        }
        let certificate = match arguments.cert {
            _ if arguments.no_tls => None,
            _ if authority.is_some() => Some(obtained(&arguments.name, authority.as_ref())?),
            Some(cert) => Some(CertificateSource::Files {
                cert: file(cert)?,
                key: arguments.key.map(file).transpose()?,
                ocsp: None,
            }),
            None if arguments.name.is_empty() => Some(local(&listen)),
            None => Some(CertificateSource::Local { names: arguments.name }),
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
                verify: arguments.server_ca.map(file).transpose()?.map_or(Verify::System, Verify::File),
                name: arguments.server_name,
                ..ServerTls::default()
            }),
        };
        Ok(Single {
            server: arguments.target.address,
            server_tls,
            listen,
            mode: if arguments.http { Mode::Http } else { Mode::Tcp },
            certificate,
            authority,
            redirect: None,
            send_proxy: arguments.send_proxy.map(|version| match version {
                ProxyVersion::V1 => SendProxy::V1,
                ProxyVersion::V2 => SendProxy::V2(ProxyV2::default()),
            }),
            workers: match arguments.workers.and_then(std::num::NonZeroU16::new) {
                Some(count) => Workers::Count(count),
                None => Workers::Auto,
            },
            events,
            log_store: arguments.log_store,
        })
    }

    /// The configuration.
    pub(crate) fn config(self, environment: &Environment) -> Config {
        let mut config = Config::for_environment(environment);
        let to = match self.server_tls {
            None => RelayTarget::Server(self.server),
            Some(tls) if tls == ServerTls::default() => RelayTarget::TlsServer(self.server),
            Some(tls) => {
                let backend = Backend::new(Name::default(), vec![Server::new(self.server)]);
                config.backends = vec![Backend { tls: Some(tls), ..backend }];
                RelayTarget::Backend(Name::default())
            }
        };
        let relay = Relay { send_proxy: self.send_proxy, ..Relay::new(to) };
        // Nobody who tries it out, with a load test or behind a balancer, is to meet a limit of clients: one may have
        // them all.
        config.limits.connections_per_client = config.limits.connections;
        config.workers = self.workers;
        config.access_log.format = self.events;
        config.log_store.url = self.log_store;
        let tls = self.certificate.is_some();
        let certificate = |source| Certificate { source, default: DefaultRole::Always, at: At::NOWHERE };
        config.certificates = self.certificate.into_iter().map(certificate).collect();
        config.listeners =
            vec![Listener { addresses: self.listen, mode: self.mode, tls, ..Listener::default() }];
        config.routes = vec![Route::to(Target::Relay(relay))];
        config.authorities = self.authority.into_iter().collect();
        if let Some(address) = self.redirect {
            let plain = Listener {
                // A name of letters.
                name: PLAIN.parse().unwrap_or_default(),
                addresses: vec![address],
                mode: Mode::Http,
                tls: false,
                ..Listener::default()
            };
            let redirect = Redirect::permanent(RedirectTo::Https);
            let listeners = Listeners::Named(vec![plain.name.clone()]);
            config.routes.push(Route { listeners, ..Route::to(Target::Redirect(redirect)) });
            config.routes[0].listeners = Listeners::Named(vec![config.listeners[0].name.clone()]);
            config.listeners.push(plain);
        }
        config
    }
}

/// The listener of browsers that come without TLS.
const PLAIN: &str = "plain";

/// The authority that `--acme` and `--acme-directory` name.
fn asked(email: String, directory: Option<DirectoryUrl>) -> io::Result<Authority> {
    let named = |name: &str| name.parse::<Name>().map_err(|problem| io::Error::other(problem.to_string()));
    let authority = match directory {
        Some(directory) => Some(Authority::new(named("authority")?, directory)),
        None => Authority::well_known(&named("letsencrypt")?),
    };
    let authority = authority.ok_or_else(|| io::Error::other("there is no such authority"))?;
    Ok(Authority { email: Some(email), ..authority })
}

/// The certificate for `--name`, which an authority is asked for.
fn obtained(names: &[CertificateName], authority: Option<&Authority>) -> io::Result<CertificateSource> {
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
    let (names, key_type) = (hosts, KeyType::P256);
    Ok(CertificateSource::Acme(AcmeCertificate {
        authorities,
        names,
        key_type,
        reuse_key: false,
        on_demand: None,
    }))
}

/// A certificate from the local CA for this machine's names for itself, and the addresses that are listened
/// on where they are particular ones.
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
        let Command::To(to) = Cli::parse_from(line.split(' ')).command else { unreachable!() };
        let listen = to.listening.addresses(true).unwrap();
        Single::to(to, listen, offramp_config::model::AccessFormat::Json)
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
}
