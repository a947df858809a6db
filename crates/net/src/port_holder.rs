//! Processes that listen on a TCP port, as `/proc` shows them (`/proc/net/tcp`, proc_pid_fd(5)).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use nix::unistd::{Uid, User};

use crate::tcp_table::{self, TcpRowState, TcpTableRow};

/// A listening TCP socket, and the process that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortHolder {
    /// Address of the socket.
    pub address: SocketAddr,
    /// Number of the user that opened it.
    pub user: u32,
    /// The process; `None` if this user may not see its descriptors.
    pub process: Option<HolderProcess>,
}

/// A process that holds a listening socket. Of several, as a server and its workers, it is the one with the lowest number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HolderProcess {
    /// Number of the process.
    pub id: u32,
    /// Name, at most 15 bytes, which the process may choose (proc_pid_comm(5)); control characters are replaced.
    pub name: String,
    /// Path of its program; `None` if this user may not see it (proc_pid_exe(5)).
    pub program: Option<PathBuf>,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Some(process) => write!(f, "{} (pid {})", process.name, process.id),
            None => match User::from_uid(Uid::from_raw(self.user)) {
                Ok(Some(user)) => write!(f, "a process of user {}", user.name),
                _ => write!(f, "a process of the user with number {}", self.user),
            },
        }
    }
}

/// The listening sockets of a port, one for each address and process. Empty where `/proc` cannot be read.
#[must_use]
pub fn holders(port: u16) -> Vec<PortHolder> {
    let mut listening = tcp_table::rows();
    listening.retain(|row| row.state == TcpRowState::Listening && row.local.port() == port);
    if listening.is_empty() {
        return Vec::new();
    }
    let owners = owners(&listening.iter().map(|socket| socket.inode).collect());
    let mut found: Vec<PortHolder> = Vec::new();
    for TcpTableRow { local, user, inode, .. } in listening {
        let holder = PortHolder { address: local, user, process: owners.get(&inode).cloned() };
        // One socket for each worker is one holder.
        if !found.contains(&holder) {
            found.push(holder);
        }
    }
    found
}

/// Advice for a port that is in use: the process that has it, or the command that finds it.
#[must_use]
pub fn advice(port: u16) -> String {
    let others = holders(port)
        .into_iter()
        .filter(|holder| holder.process.as_ref().is_none_or(|process| process.id != std::process::id()));
    let find = format!("`ss -ltnp 'sport = :{port}'`");
    let mut named = BTreeSet::new();
    let mut is_hidden = false;
    for holder in others {
        is_hidden |= holder.process.is_none();
        named.insert(holder.to_string());
    }
    let named = named.into_iter().collect::<Vec<_>>().join(", ");
    match (named.as_str(), is_hidden) {
        ("", _) => format!("find the process with {find}, stop it or choose another port"),
        (named, true) => {
            format!(
                "{named} listens on port {port} ({find} as root names it): stop it or choose another port"
            )
        }
        (named, false) => format!("{named} listens on port {port}: stop it or choose another port"),
    }
}

/// A name without what could drive a terminal.
fn harmless(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The processes that hold sockets, by inode, as far as this user may see them.
fn owners(inodes: &BTreeSet<u64>) -> BTreeMap<u64, HolderProcess> {
    let mut owners: BTreeMap<u64, HolderProcess> = BTreeMap::new();
    let Ok(entries) = fs::read_dir("/proc") else { return owners };
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    for id in ids {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{id}/fd")) else { continue };
        let held = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let held = held.filter_map(|target| {
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
        });
        for inode in held.filter(|inode| inodes.contains(inode)) {
            let name = fs::read(format!("/proc/{id}/comm")).unwrap_or_default();
            let name = String::from_utf8_lossy(&name);
            let program = fs::read_link(format!("/proc/{id}/exe")).ok();
            let process = HolderProcess { id, name: harmless(name.trim_end()), program };
            let first = owners.entry(inode).or_insert_with(|| process.clone());
            if process.id < first.id {
                *first = process;
            }
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_of_this_process_is_found() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(address) else { continue };
            let address = listener.local_addr().unwrap();
            let found = holders(address.port());
            let own = found.iter().find(|holder| holder.address == address).unwrap();
            assert_eq!(own.process.as_ref().unwrap().id, std::process::id());
            assert!(own.to_string().ends_with(&format!("(pid {})", std::process::id())));
            // This process is no obstacle that somebody could stop.
            assert!(advice(address.port()).starts_with("find the process"));
            drop(listener);
            assert!(!holders(address.port()).iter().any(|holder| holder.address == address));
        }
    }

    #[test]
    fn a_name_drives_no_terminal() {
        assert_eq!(harmless("\u{1b}[2J\rok"), "\u{fffd}[2J\u{fffd}ok");
    }

    #[test]
    fn a_process_that_is_hidden_is_told_by_its_user() {
        let holder = |user| PortHolder { address: ([0, 0, 0, 0], 443).into(), user, process: None };
        assert_eq!(holder(0).to_string(), "a process of user root");
        assert_eq!(holder(4_000_001).to_string(), "a process of the user with number 4000001");
    }
}
