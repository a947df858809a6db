//! The application that is measured: its address, from a URL or the path of a socket.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hyper::Uri;
use offramp_net::port_holder;
use tokio::net::{UnixStream, lookup_host};

use super::line::{DialledAddress, Dialler};
use crate::failure::{Failure, chain};
use crate::flags::bench::Bench;
use crate::measured_url::MeasuredUrl;
use crate::other_machine::{confirm, is_here};

/// The application, found.
#[derive(Debug)]
pub(super) struct Application {
    name: String,
    pub(super) address: DialledAddress,
    /// The name or address that clients call it by.
    pub(super) host: String,
    /// The value of `Host`.
    pub(super) authority: String,
    /// The path with its query.
    pub(super) path: String,
    /// For `https://`, the name in the certificate, and where its authorities are.
    pub(super) tls: Option<ApplicationTls>,
}

/// TLS of the application itself.
#[derive(Clone, Debug)]
pub(super) struct ApplicationTls {
    pub(super) name: String,
    pub(super) authorities: Option<PathBuf>,
}

impl Application {
    /// Resolves the URL, and refuses other machines unless `--remote` names them.
    ///
    /// # Errors
    /// The name has no address, or is that of another machine.
    pub(super) async fn find(arguments: &Bench) -> Result<Self, Failure> {
        let path = arguments.path.as_deref();
        let uri = match &arguments.url {
            MeasuredUrl::Http(_) if path.is_some() => {
                return Err(Failure::usage(
                    "error: --path is for unix:; elsewhere the path is part of the URL",
                ));
            }
            MeasuredUrl::Unix(socket) => return Self::behind_socket(socket, path.unwrap_or("/")),
            MeasuredUrl::Http(uri) => uri,
        };
        let tls = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        if arguments.cacert.is_some() && !tls {
            return Err(Failure::usage("error: --cacert is for https://"));
        }
        let found = lookup_host((host.as_str(), port)).await.map(Iterator::collect::<Vec<SocketAddr>>);
        let found = found.map_err(|error| Failure::runtime(format_args!("error: {host}: {error}")))?;
        let Some(&address) = found.first() else {
            return Err(Failure::runtime(format_args!("error: {host} has no address")));
        };
        let harm = "a load may harm it and the network on the way";
        confirm(&host, address.ip(), arguments.remote.as_slice(), harm, "measure")?;
        Ok(Self {
            name: uri.to_string(),
            address: DialledAddress::Tcp(address),
            host: host.clone(),
            authority: uri.authority().map(ToString::to_string).unwrap_or_default(),
            path: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
            tls: tls.then(|| ApplicationTls { name: host.clone(), authorities: arguments.cacert.clone() }),
        })
    }

    fn behind_socket(socket: &Path, path: &str) -> Result<Self, Failure> {
        if !path.starts_with('/') || path.parse::<Uri>().is_err() {
            return Err(Failure::usage(format_args!("error: --path {path}: a path of a URL begins with /")));
        }
        Ok(Self {
            name: format!("unix:{}{}", socket.display(), if path == "/" { "" } else { path }),
            address: DialledAddress::Unix(socket.to_owned()),
            host: "localhost".to_owned(),
            authority: "localhost".to_owned(),
            path: path.to_owned(),
            tls: None,
        })
    }

    /// The address for people.
    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    /// Connections straight to it.
    ///
    /// # Errors
    /// The authorities cannot be read.
    pub(super) fn dialler(&self) -> Result<Dialler, Failure> {
        match &self.tls {
            None => Ok(Dialler::plain(self.address.clone())),
            Some(ApplicationTls { name, authorities: None }) => {
                Dialler::trusting_system(self.address.clone(), name)
            }
            Some(ApplicationTls { name, authorities: Some(file) }) => {
                Dialler::trusting(self.address.clone(), name, file, SystemTime::now())
            }
        }
    }

    /// The process that serves it, if it is on this machine and this user may see it.
    pub(super) fn process(&self) -> Option<u32> {
        match &self.address {
            // The same port of this machine belongs to another program.
            DialledAddress::Tcp(address) if !is_here(address.ip()) => None,
            DialledAddress::Tcp(address) => {
                let holders = port_holder::holders(address.port());
                let serves = |at: IpAddr| at == address.ip() || at.is_unspecified();
                let holder = holders.into_iter().find(|holder| serves(holder.address.ip().to_canonical()))?;
                Some(holder.process?.id)
            }
            DialledAddress::Unix(path) => {
                // The credentials are those of the process that called listen(2), unix(7).
                let stream = std::os::unix::net::UnixStream::connect(path).ok()?;
                stream.set_nonblocking(true).ok()?;
                let peer = UnixStream::from_std(stream).ok()?.peer_cred().ok()?.pid()?;
                u32::try_from(peer).ok()
            }
        }
    }

    /// The failure of the first request.
    pub(super) fn silent(&self, why: &impl fmt::Display) -> Failure {
        Failure::runtime(format_args!(
            "error: {} does not answer: {why}\nStart the application first; `curl` must get an answer from the same address",
            self.name
        ))
    }
}

/// Text of an error of a socket.
pub(super) fn of_socket(error: &io::Error) -> String {
    chain(error)
}
