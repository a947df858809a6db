//! The TCP sockets of this machine with the users that have them, as the kernel shows them (`/proc/net/tcp`).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The user at the other end of a connection within this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectedUser {
    /// The number of the user whose process has the other end.
    Is(u32),
    /// No process has the other end any more.
    Nobody,
    /// The kernel does not show its sockets here.
    Hidden,
}

/// The sockets at one moment. Reading them takes milliseconds: one table serves all connections that have arrived.
#[derive(Debug)]
pub struct TcpTable(Vec<TcpTableRow>);

impl TcpTable {
    /// Reads the table; it has no sockets where `/proc` cannot be read.
    #[must_use]
    pub fn read() -> Self {
        Self(rows())
    }

    /// Finds the user whose process has connected from `client` to the socket `server` of this process.
    #[must_use]
    pub fn connected_user(&self, client: SocketAddr, server: SocketAddr) -> ConnectedUser {
        let ends = |local: SocketAddr, remote: SocketAddr| {
            let (local, remote) = (canonical(local), canonical(remote));
            self.0.iter().find(|row| canonical(row.local) == local && canonical(row.remote) == remote)
        };
        match (ends(client, server), ends(server, client)) {
            // The kernel calls sockets without a process those of root.
            (Some(row), _) if row.state == TcpRowState::Other && row.inode != 0 => {
                ConnectedUser::Is(row.user)
            }
            (_, Some(_)) => ConnectedUser::Nobody,
            _ => ConnectedUser::Hidden,
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A row of `/proc/net/tcp`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TcpTableRow {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) state: TcpRowState,
    pub(crate) user: u32,
    pub(crate) inode: u64,
}

/// The state of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpRowState {
    Listening,
    Other,
}

/// All rows; empty where `/proc` cannot be read.
pub(crate) fn rows() -> Vec<TcpTableRow> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().filter_map(TcpTableRow::parse)).collect()
}

impl TcpTableRow {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote) = (socket_address(fields.next()?)?, socket_address(fields.next()?)?);
        let state = if fields.next()? == LISTEN { TcpRowState::Listening } else { TcpRowState::Other };
        let user = fields.nth(3)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some(Self { local, remote, state, user, inode })
    }
}

/// `TCP_LISTEN` of the kernel.
const LISTEN: &str = "0A";

fn socket_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    Some(SocketAddr::new(address(ip)?, u16::from_str_radix(port, 16).ok()?))
}

/// Parses an address of `/proc/net/tcp`: words of 32 bits in the byte order of the machine.
fn address(text: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = text.get(index * 8..index * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(words).ok()?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn rows_of_the_kernel_are_read() {
        if cfg!(target_endian = "big") {
            return;
        }
        let row = |local: &str, state: &str| {
            let rest = "00000000:00000000 00:00000000 00000000  33        0 4711 1 x";
            TcpTableRow::parse(&format!("   1: {local} 0100007F:1F90 {state} {rest}"))
        };
        for (local, address) in [
            ("0100007F:01BB", "127.0.0.1:443"),
            ("00000000:0050", "0.0.0.0:80"),
            ("00000000000000000000000000000000:01BB", "[::]:443"),
            ("B80D0120000000000000000001000000:01BB", "[2001:db8::1]:443"),
        ] {
            for (state, meaning) in
                [("0A", TcpRowState::Listening), ("01", TcpRowState::Other), ("06", TcpRowState::Other)]
            {
                let (local_end, remote) = (address.parse().unwrap(), "127.0.0.1:8080".parse().unwrap());
                let wanted = TcpTableRow { local: local_end, remote, state: meaning, user: 33, inode: 4711 };
                assert_eq!(row(local, state), Some(wanted), "{local}");
            }
        }
        assert_eq!(row("B80D012000000000000000000100000:01BB", "0A"), None);
        assert_eq!(TcpTableRow::parse("  sl  local_address rem_address   st tx_queue"), None);
    }

    #[test]
    fn the_user_of_a_connection_is_that_of_its_process() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let server = listener.local_addr().unwrap();
            let client = TcpStream::connect(server).unwrap();
            let accepted = listener.accept().unwrap();
            let address = client.local_addr().unwrap();
            let own = nix::unistd::geteuid().as_raw();
            assert_eq!(TcpTable::read().connected_user(address, server), ConnectedUser::Is(own), "{address}");
            drop(client);
            assert_eq!(TcpTable::read().connected_user(address, server), ConnectedUser::Nobody, "{address}");
            drop(accepted);
        }
        let nowhere = "192.0.2.1:1".parse().unwrap();
        assert_eq!(TcpTable::read().connected_user(nowhere, nowhere), ConnectedUser::Hidden);
    }
}
