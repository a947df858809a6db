//! The look that an authority takes at a name, taken from here: its addresses, their ports 80 and 443, and its CAA records.
//!
//! Only addresses of the name itself are connected, a connection sends nothing, and everything together has a bound.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use offramp_net::listen;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::caa_lookup::{CaaFinding, caa_of};

/// The ports that authorities connect to (RFC 8555 §8.3, RFC 8737).
const PORTS: [u16; 2] = [80, 443];
/// Bound on the addresses of a name that are connected.
const ADDRESSES: usize = 8;
/// Bounds on a look-up and a connection.
const LOOK_UP: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_secs(2);

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

/// Looks at `name`, which is no wildcard.
pub(super) async fn reach(name: &str) -> NameReach {
    let (addresses, caa) = tokio::join!(addresses(name), caa_of(name));
    NameReach { addresses, caa }
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn names_that_resolve_are_connected() {
        let found = addresses("localhost").await.unwrap();
        let loopback = found.iter().find(|one| one.address == IpAddr::from(Ipv4Addr::LOCALHOST)).unwrap();
        assert!(loopback.is_own);
        assert_eq!(loopback.ports.iter().map(|(port, _)| *port).collect::<Vec<_>>(), PORTS);
    }
}
