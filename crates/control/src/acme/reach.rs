//! The look that an authority takes at a name, taken from here: its addresses, their ports 80 and 443, and its CAA records.
//!
//! Only addresses of the name itself are connected, a connection sends nothing, and everything together has a bound.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use offramp_certs::acme::caa::{self, CaaAnswer, CaaRecord};
use offramp_config::model::not_issuable;
use offramp_net::listen;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The ports that authorities connect to (RFC 8555 §8.3, RFC 8737).
const PORTS: [u16; 2] = [80, 443];
/// Bound on the addresses of a name that are connected.
const ADDRESSES: usize = 8;
/// Bounds on a look-up, a connection, and the answer of a name server.
const LOOK_UP: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(1);
/// Bound on all questions for CAA records.
const CAA: Duration = Duration::from_secs(4);
/// The addresses of the system's name servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The largest answer that is read: larger ones do not come over UDP, where none was asked for.
const DATAGRAM: usize = 4096;

/// The outcome of a look at a name.
#[derive(Clone, Debug)]
pub struct NameReach {
    /// Its addresses, or the reason why it has none here.
    pub addresses: Result<Vec<ReachedAddress>, String>,
    /// The records that authorities follow, or the reason why they are not known here.
    pub caa: Result<CaaFinding, String>,
}

/// One address of a name.
#[derive(Clone, Debug)]
pub struct ReachedAddress {
    /// The address.
    pub address: IpAddr,
    /// Set if an interface of this machine has it.
    pub is_own: bool,
    /// The ports that authorities connect to, and the reason why one does not answer from here.
    pub ports: Vec<(u16, Result<(), String>)>,
}

/// The CAA records that hold for a name.
#[derive(Clone, Debug, Default)]
pub struct CaaFinding {
    /// The name that has them: the name itself or a domain above it; `None` if none of them has any.
    pub at: Option<String>,
    /// The records.
    pub records: Vec<CaaRecord>,
}

/// Looks at `name`, which is no wildcard.
pub(super) async fn reach(name: &str) -> NameReach {
    let (addresses, caa) = tokio::join!(addresses(name), caa_of(name));
    NameReach { addresses, caa }
}

async fn caa_of(name: &str) -> Result<CaaFinding, String> {
    if let Some(why) = name.parse().ok().and_then(|host| not_issuable(&host)) {
        return Err(format!("no public authority issues for it, as {why}"));
    }
    let servers = std::fs::read_to_string(RESOLV_CONF).map(|text| name_servers(&text)).unwrap_or_default();
    let looked = timeout(CAA, look_for_caa(&servers, name)).await;
    looked.unwrap_or_else(|_| Err(format!("no answer within {} s", CAA.as_secs())))
}

async fn addresses(name: &str) -> Result<Vec<ReachedAddress>, String> {
    if name.rsplit('.').next() == Some("invalid") {
        // RFC 6761 §6.4: such a name is not asked for.
        return Err("names below `invalid` have no addresses".to_owned());
    }
    let found = match timeout(LOOK_UP, tokio::net::lookup_host((name, 0))).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no answer within {} s", LOOK_UP.as_secs())),
    };
    let mut reached = Vec::<ReachedAddress>::new();
    let mut connections = JoinSet::new();
    for address in found.map(|found| found.ip()) {
        if reached.len() >= ADDRESSES || reached.iter().any(|known| known.address == address) {
            continue;
        }
        for port in PORTS {
            let (at, to) = (reached.len(), SocketAddr::new(address, port));
            connections.spawn(async move { (at, port, connect(to).await) });
        }
        reached.push(ReachedAddress { address, is_own: listen::is_own(address), ports: Vec::new() });
    }
    // A task that panicked would be a fault of the runtime; its port is left out.
    while let Some(done) = connections.join_next().await {
        if let Ok((at, port, outcome)) = done {
            reached[at].ports.push((port, outcome));
        }
    }
    reached.iter_mut().for_each(|one| one.ports.sort_by_key(|(port, _)| *port));
    if reached.is_empty() { Err("it has no address".to_owned()) } else { Ok(reached) }
}

async fn connect(to: SocketAddr) -> Result<(), String> {
    match timeout(CONNECT, TcpStream::connect(to)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err("the sandbox of this process, or a firewall here, does not let it connect".to_owned())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", CONNECT.as_secs())),
    }
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
                return Err(format!("the records of {domain} do not fit into a datagram"));
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
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut datagram = [0; DATAGRAM];
    let answered = async {
        loop {
            let received = socket.recv(&mut datagram).await?;
            if let Ok(answer) = caa::answer(&datagram[..received], id, domain) {
                return Ok(answer);
            }
        }
    };
    timeout(ANSWER, answered).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_those_of_the_resolver() {
        let text = "# nameserver 192.0.2.9\nsearch a.test\nnameserver 192.0.2.1\nnameserver\t2001:db8::1 # x\n\
                    nameserver fe80::1%eth0\noptions edns0\nnameserver 192.0.2.2\nnameserver 192.0.2.3\n";
        let servers: Vec<String> = name_servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"]);
    }

    /// A name server that knows the record of `example.test` alone.
    async fn name_server() -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut datagram = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut datagram).await {
                let mut answer = datagram[..length].to_vec();
                answer[2] |= 0x80;
                if answer[12..].starts_with(b"\x07example\x04test\0") {
                    answer[7] = 1;
                    answer.extend(b"\xc0\x0c\x01\x01\0\x01\0\0\0\x3c\0\x0d\0\x05issueca.org");
                    let at = answer.len() - 13;
                    answer[at - 1] = 13;
                } else if answer[12..].starts_with(b"\x06broken") {
                    answer[3] |= 2;
                }
                // What is none of ours is passed over.
                socket.send_to(b"noise", from).await.unwrap();
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn the_nearest_domain_with_records_decides() {
        let server = [name_server().await];
        let found = look_for_caa(&server, "www.shop.example.test").await.unwrap();
        assert_eq!(found.at.as_deref(), Some("example.test"));
        assert_eq!(found.records[0].value, "ca.org");
        let none = look_for_caa(&server, "www.other.test").await.unwrap();
        assert!(none.at.is_none() && none.records.is_empty());
        let failed = look_for_caa(&server, "broken.test").await.unwrap_err();
        assert!(failed.ends_with("answers with code 2 for broken.test"), "{failed}");
    }

    #[tokio::test]
    async fn names_that_resolve_are_connected() {
        let found = addresses("localhost").await.unwrap();
        let loopback = found.iter().find(|one| one.address == IpAddr::from(Ipv4Addr::LOCALHOST)).unwrap();
        assert!(loopback.is_own);
        assert_eq!(loopback.ports.iter().map(|(port, _)| *port).collect::<Vec<_>>(), PORTS);
    }
}
