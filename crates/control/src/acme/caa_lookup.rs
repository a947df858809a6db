//! The CAA records that hold for a name, as the name servers of the system tell them: over UDP, and over TCP where an answer
//! does not fit into a datagram (RFC 7766).

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use offramp_certs::acme::caa::{self, CaaAnswer, CaaRecord};
use offramp_config::model::not_issuable;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::name_server::over_tcp;

/// Bound on the answer of a name server over UDP.
const ANSWER: Duration = Duration::from_secs(1);
/// The same over TCP, with its connection. A message has at most 65,535 bytes, by its length of two bytes.
const TCP_ANSWER: Duration = Duration::from_secs(2);
/// Bound on all questions.
const CAA: Duration = Duration::from_secs(4);
/// The addresses of the system's name servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The largest answer that is read from a datagram: larger ones are truncated, and come over TCP.
const DATAGRAM: usize = 4096;

/// The CAA records that hold for a name.
#[derive(Clone, Debug, Default)]
pub struct CaaFinding {
    /// The name that has them: the name itself or a domain above it; `None` if none of them has any.
    pub at: Option<String>,
    /// The records.
    pub records: Vec<CaaRecord>,
}

/// Looks for the records of `name`.
///
/// # Errors
/// The reason why they are not known here.
pub(super) async fn caa_of(name: &str) -> Result<CaaFinding, String> {
    if let Some(why) = name.parse().ok().and_then(|host| not_issuable(&host)) {
        return Err(format!("no public authority issues for it, as {why}"));
    }
    let servers = std::fs::read_to_string(RESOLV_CONF).map(|text| name_servers(&text)).unwrap_or_default();
    let looked = timeout(CAA, look_for_caa(&servers, name)).await;
    looked.unwrap_or_else(|_| Err(format!("no answer within {} s", CAA.as_secs())))
}

/// The name servers of resolv.conf(5), which the resolver asks, too.
fn name_servers(text: &str) -> Vec<SocketAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let server = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        server.parse::<IpAddr>().ok()
    });
    addresses.take(3).map(|address| SocketAddr::new(address, 53)).collect()
}

/// Climbs from the name to its top-level domain: the first that has records decides (RFC 8659 §3).
async fn look_for_caa(servers: &[SocketAddr], name: &str) -> Result<CaaFinding, String> {
    if servers.is_empty() {
        return Err(format!("{RESOLV_CONF} names no name server"));
    }
    let mut domain = name;
    loop {
        let records = ask(servers, domain).await?;
        if !records.is_empty() {
            return Ok(CaaFinding { at: Some(domain.to_owned()), records });
        }
        match domain.split_once('.') {
            Some((_, above)) => domain = above,
            None => return Ok(CaaFinding::default()),
        }
    }
}

/// Asks one name server after the other.
async fn ask(servers: &[SocketAddr], domain: &str) -> Result<Vec<CaaRecord>, String> {
    let mut reason = String::new();
    for server in servers {
        match ask_one(*server, domain).await {
            Ok(CaaAnswer::Records(records)) => return Ok(records),
            Ok(CaaAnswer::Truncated) => {
                reason = format!("{server} tells the records of {domain} in part only, over TCP, too");
            }
            Ok(CaaAnswer::Failed(code)) => reason = format!("{server} answers with code {code} for {domain}"),
            Err(error) => reason = format!("{server} does not answer for {domain}: {error}"),
        }
    }
    Err(reason)
}

async fn ask_one(server: SocketAddr, domain: &str) -> io::Result<CaaAnswer> {
    // Random keys of the standard library; an answer must also come from the port that was asked, to the one that asked.
    let id = (RandomState::new().hash_one(Instant::now()) >> 48) as u16;
    let question = caa::question(domain, id).map_err(io::Error::other)?;
    match timeout(ANSWER, ask_by_datagram(server, domain, &question, id)).await {
        Ok(Ok(CaaAnswer::Truncated)) => {}
        Ok(answer) => return answer,
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    }
    let in_part = |why: &dyn std::fmt::Display| {
        io::Error::other(format!("its answer does not fit into a datagram, and over TCP: {why}"))
    };
    match timeout(TCP_ANSWER, over_tcp(server, &question)).await {
        Ok(Ok(message)) => caa::answer(&message, id, domain).map_err(|why| in_part(&why)),
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(in_part(&"the sandbox of this process, or a firewall here, does not let it connect"))
        }
        Ok(Err(error)) => Err(in_part(&error)),
        Err(_) => Err(in_part(&format_args!("no answer within {} s", TCP_ANSWER.as_secs()))),
    }
}

async fn ask_by_datagram(
    server: SocketAddr,
    domain: &str,
    question: &[u8],
    id: u16,
) -> io::Result<CaaAnswer> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut datagram = [0; DATAGRAM];
    loop {
        let received = socket.recv(&mut datagram).await?;
        if let Ok(answer) = caa::answer(&datagram[..received], id, domain) {
            return Ok(answer);
        }
    }
}

#[cfg(test)]
mod tests;
