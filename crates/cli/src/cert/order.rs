//! `cert order`: orders a certificate once, without a running server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use offramp_config::model::{
    self, AcmeAuthority, Challenge, DirectoryUrl, DnsProvider, DnsUpdate, ExternalAccount, FilePath,
    HostPattern, Name, TsigAlgorithm,
};
use offramp_control::{OneOrder, order_once};
use offramp_observe::{Level, Log, LogFormat, Output};

use crate::failure::Failure;
use crate::flags::order::{Dns, Order};
use crate::surroundings::{self, print};

/// Orders the certificate, waits for it, and writes it to its files.
///
/// # Errors
/// The command line makes no sense, or no certificate was issued.
pub(super) fn order(arguments: Order) -> Result<(), Failure> {
    let level = if arguments.verbose { Level::Debug } else { Level::Info };
    let order = one_order(arguments)?;
    let log = Log::open(Output::Stderr, LogFormat::Text, level).map_err(Failure::runtime)?;
    let names = order.names.join(" ");
    let cert = order.cert.clone();
    let issued =
        order_once(order, log).map_err(|error| Failure::runtime(format_args!("error: {names}: {error}")))?;
    let place = cert.unwrap_or(issued.kept);
    print(format!("{names}: issued, valid until {}: {}\n", issued.until, place.display()).as_bytes())
}

fn one_order(arguments: Order) -> Result<OneOrder, Failure> {
    let file = |path: PathBuf| offramp_config::absolute(path).map_err(Failure::usage);
    let challenge = Challenge::from(arguments.challenge);
    let mut authority = authority(arguments.directory)?;
    authority.email = arguments.email;
    authority.challenge = challenge;
    authority.ca = arguments.ca.map(file).transpose()?.map(FilePath::new);
    authority.profile = arguments.profile;
    if let (Some(key_id), Some(key)) = (arguments.eab_id, arguments.eab_key) {
        authority.eab = Some(ExternalAccount { key_id, key_file: FilePath::new(file(key)?) });
    }
    authority.dns_wait = arguments.dns.dns_wait;
    authority.dns = provider(arguments.dns, challenge)?;
    for name in &arguments.names {
        may_be_issued(name, &authority)?;
    }
    let port = match challenge {
        Challenge::TlsAlpn01 => Some(443),
        Challenge::Http01 => Some(80),
        Challenge::Dns01 => None,
    };
    if port.is_none() && arguments.listen.is_some() {
        return Err(Failure::usage("error: with --challenge dns-01 nobody listens: omit --listen"));
    }
    let any: IpAddr =
        if surroundings::has_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let listen = arguments.listen.or_else(|| Some(SocketAddr::new(any, port?)));
    let state_dir = match arguments.state_dir {
        Some(dir) => file(dir)?,
        None => offramp_config::Config::for_environment(&surroundings::environment()).process.state_dir,
    };
    let cert = arguments.cert.map(file).transpose()?;
    // If both are the same file, it gets chain and key: writing the chain must not overwrite the key.
    let key = arguments.key.map(file).transpose()?.filter(|key| cert.as_ref() != Some(key));
    let (names, key_type) = (arguments.names, arguments.key_type.into());
    Ok(OneOrder { state_dir, names, key_type, authority, listen: listen.into_iter().collect(), cert, key })
}

fn authority(directory: Option<DirectoryUrl>) -> Result<AcmeAuthority, Failure> {
    let named = |name: &str| name.parse::<Name>().map_err(Failure::usage);
    match directory {
        Some(directory) => Ok(AcmeAuthority::new(named("authority")?, directory)),
        None => AcmeAuthority::well_known(&named("letsencrypt")?)
            .ok_or_else(|| Failure::usage(io::Error::other("there is no such authority"))),
    }
}

/// Provider of TXT records: required with dns-01, refused with other challenges.
fn provider(dns: Dns, challenge: Challenge) -> Result<Option<DnsProvider>, Failure> {
    let file = |path: PathBuf| offramp_config::absolute(path).map(FilePath::new).map_err(Failure::usage);
    let provider = match (dns.dns_hook, dns.dns_server, dns.dns_zone, dns.tsig_name, dns.tsig_key) {
        (Some(program), ..) => Some(DnsProvider::Hook(file(program)?)),
        (None, Some(server), Some(zone), Some(key_name), Some(key)) => {
            let (key_file, algorithm) = (file(key)?, TsigAlgorithm::HmacSha256);
            Some(DnsProvider::Update(DnsUpdate { server, zone, key_name, key_file, algorithm }))
        }
        _ => None,
    };
    match (challenge, &provider) {
        (Challenge::Dns01, None) => {
            Err(Failure::usage("error: --challenge dns-01 needs --dns-hook, or --dns-server and its key"))
        }
        (Challenge::TlsAlpn01 | Challenge::Http01, Some(_)) => {
            Err(Failure::usage("error: TXT records are for --challenge dns-01 alone"))
        }
        _ => Ok(provider),
    }
}

fn may_be_issued(name: &str, authority: &AcmeAuthority) -> Result<(), Failure> {
    let host: HostPattern = name.parse().map_err(Failure::usage)?;
    let wildcard = matches!(host, HostPattern::Wildcard(_)) && authority.challenge != Challenge::Dns01;
    let why = match model::not_issuable(&host) {
        Some(why) if authority.ca.is_none() => why,
        _ if wildcard => "a wildcard needs --challenge dns-01",
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("error: no authority issues for {name}: {why}")))
}
