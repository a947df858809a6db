//! The proxies that are compared: how each is found, configured, started, and what it cannot do.
//!
//! Their configurations are whole files under `peers/`, so that whoever doubts a figure can read and
//! improve them; only the places marked `{{so}}` are filled in here.

pub(crate) mod folder;
pub(crate) mod peers;
pub(crate) mod template;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contestant::folder::Folder;
use crate::error::{Error, Result, make_dir, write_file};
use crate::pki::{Clients, Identity, KeyKind};
use crate::process::{Launch, Process, find_program, free_port, output_of};
use crate::protocol::{Found, Group, Version};

/// What a contestant is to be set up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) version: Version,
    pub(crate) key: KeyKind,
    pub(crate) group: Group,
    /// Worker threads or processes.
    pub(crate) workers: usize,
    /// Whether clients must show a certificate.
    pub(crate) clients: bool,
    pub(crate) mode: Mode,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            version: Version::Tls13,
            key: KeyKind::P256,
            group: Group::X25519,
            workers: 1,
            clients: false,
            mode: Mode::Stream,
        }
    }
}

/// What a proxy makes of the bytes of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// It does not look at them: any protocol.
    Stream,
    /// The same, to an application that speaks TLS, whose certificate it checks.
    BothSides,
    /// It reads the server name and leaves TLS to the application.
    Passthrough,
    /// HTTP/1.1, which it parses, routes and forwards request by request.
    Http1,
    /// HTTP/2 from the clients, HTTP/1.1 to the application.
    Http2,
    /// HTTP/2 from the clients and to the application, where calls of gRPC go.
    Grpc,
    /// HTTP/1.1, answered from files below a directory.
    Files,
}

impl Mode {
    /// The protocol's name for ALPN (RFC 7301).
    pub(crate) fn alpn(self) -> &'static str {
        match self {
            Self::Stream | Self::BothSides | Self::Passthrough | Self::Http1 | Self::Files => "http/1.1",
            Self::Http2 | Self::Grpc => "h2",
        }
    }

    /// Whether the application speaks TLS.
    pub(crate) fn has_tls_behind(self) -> bool {
        matches!(self, Self::BothSides | Self::Passthrough)
    }
}

/// A proxy as a table row: everything that the harness must know of it.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The name in reports and on the command line.
    pub(crate) name: &'static str,
    /// What it is, for the report.
    pub(crate) what: &'static str,
    /// The program looked for in `PATH`.
    pub(crate) program: &'static str,
    /// The Debian package that brings it, or the command that does.
    pub(crate) package: &'static str,
    /// The arguments that make it print its version.
    pub(crate) version_args: &'static [&'static str],
    /// Its TLS library.
    pub(crate) library: Library,
    /// The name of the file that its configuration goes to.
    pub(crate) file: &'static str,
    /// Its configuration as a proxy of byte streams; none where it knows HTTP alone.
    pub(crate) stream: Option<&'static str>,
    /// The same with TLS to the application; none where it cannot, or nobody has written one.
    pub(crate) both_sides: Option<&'static str>,
    /// Its configuration for choosing by the server name alone, in the same way.
    pub(crate) passthrough: Option<&'static str>,
    /// Its configuration as a proxy of HTTP; none where it knows no HTTP.
    pub(crate) http: Option<&'static str>,
    /// The same for gRPC; none where it cannot speak HTTP/2 to the application, or nobody has written one.
    pub(crate) grpc: Option<&'static str>,
    /// Its configuration as a server of files; none where it serves none, or nobody has written one.
    pub(crate) files: Option<&'static str>,
    /// Its arguments; `{{config}}` and `{{dir}}` are filled in.
    pub(crate) args: &'static [&'static str],
    /// Whether it can do X25519MLKEM768.
    pub(crate) post_quantum: bool,
    /// Whether it has a number of workers that can be set.
    pub(crate) scales: bool,
    /// No bound refers to it: the selection measures it in the headline cases alone.
    pub(crate) aside: bool,
    /// It is looked for in the folder with the next Debian, and runs there by chroot.
    pub(crate) next: bool,
}

/// How a proxy's TLS library is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// Its version print names it after one of these words.
    Said(&'static [&'static str]),
    /// It says nothing about it.
    Is(&'static str),
}

impl Peer {
    /// Its configuration in a mode; none where it has no such mode.
    pub(crate) fn config(&self, mode: Mode) -> Option<&'static str> {
        match mode {
            Mode::Stream => self.stream,
            Mode::BothSides => self.both_sides,
            Mode::Passthrough => self.passthrough,
            Mode::Http1 | Mode::Http2 => self.http,
            Mode::Grpc => self.grpc,
            Mode::Files => self.files,
        }
    }
}

/// A contestant that is installed.
#[derive(Clone, Debug)]
pub(crate) struct Contestant {
    pub(crate) peer: &'static Peer,
    /// For a contestant of a folder: the path within it.
    pub(crate) program: PathBuf,
    /// The folder with another Debian that it runs in; none: this system.
    pub(crate) folder: Option<Folder>,
    /// As the program itself says it, shortened to one line.
    pub(crate) version: String,
}

impl Contestant {
    /// Finds the program: `given`, else the one in the folder `next` for a contestant of the next Debian, else the
    /// one in `PATH`.
    ///
    /// # Errors
    /// `Missing` with the package that brings it.
    pub(crate) fn find(peer: &'static Peer, given: Option<&Path>, next: &Path) -> Result<Self> {
        let folder = peer.next.then(|| Folder::open(next)).transpose();
        let folder = folder.map_err(|error| Error::Missing(format!("{}: {error}", peer.name)))?;
        let found = match (given, &folder) {
            (Some(path), _) if path.is_file() => Some(path.to_owned()),
            (Some(path), _) => {
                return Err(Error::Missing(format!("{}: there is no file {}", peer.name, path.display())));
            }
            (None, Some(folder)) => folder.find_program(peer.program),
            (None, None) => find_program(peer.program),
        };
        let program = found.ok_or_else(|| {
            let place = folder.as_ref().map_or_else(String::new, |folder| format!(" in {folder}"));
            Error::Missing(format!("{} is not installed{place} (package {})", peer.name, peer.package))
        })?;
        let said = match &folder {
            None => output_of(&program, peer.version_args),
            Some(folder) => folder.output_of(&program, peer.version_args),
        };
        let version = peers::version_line(&said.unwrap_or_default(), peer.library);
        Ok(Self { peer, program, folder, version })
    }

    /// Why this contestant cannot be measured with a setup; none when it can.
    pub(crate) fn lacks(&self, setup: Setup) -> Option<&'static str> {
        if setup.group == Group::X25519MlKem768 && !self.peer.post_quantum {
            return Some("its TLS library does not know X25519MLKEM768");
        }
        if setup.clients && !self.peer.config(setup.mode).is_some_and(|text| text.contains("{{clients_")) {
            return Some("its configuration here asks clients for nothing");
        }
        if setup.workers > 1 && !self.peer.scales {
            return Some("it has no number of workers to set");
        }
        None
    }

    /// Starts it in front of a backend and waits until it listens.
    ///
    /// # Errors
    /// What it said itself when it did not start.
    pub(crate) async fn start(&self, site: &Site<'_>) -> Result<Running> {
        let name = self.peer.name;
        let dir = make_dir(&site.dir.join(name))?;
        let template = self.peer.config(site.setup.mode);
        let template = template.ok_or_else(|| Error::Measure(format!("{name} has no such mode")))?;
        // The port may be taken between the look and the start; two more tries settle that.
        let mut tries = 0;
        loop {
            tries += 1;
            let listen = SocketAddr::from(([127, 0, 0, 1], free_port()?));
            let root = self.folder.as_ref().map_or(Path::new("/"), Folder::root);
            let values = template::values(&dir, root, listen, site);
            let config = dir.join(self.peer.file);
            write_file(&config, template::fill(template, &values)?)?;
            let mut args: Vec<OsString> = Vec::new();
            for arg in self.peer.args {
                let arg = arg.replace("{{config}}", &config.display().to_string());
                args.push(arg.replace("{{dir}}", &dir.display().to_string()).into());
            }
            let (program, args) = match &self.folder {
                None => (self.program.clone(), args),
                Some(folder) => folder.within(site.dir, &self.program, args)?,
            };
            let launch = Launch {
                name: name.to_owned(),
                program,
                args,
                env: Vec::new(),
                cores: site.cores.to_vec(),
                log: dir.join("output.log"),
                piped: false,
            };
            let mut process = Process::start(&launch)?;
            match process.listening(&Found::Tcp(listen), Duration::from_secs(10)).await {
                Ok(()) => return Ok(Running { process, listen }),
                Err(error) if tries == 3 => return Err(error),
                Err(_) => process.stop().await,
            }
        }
    }
}

/// Where and in front of what a contestant is started.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    /// Its files go to a directory of its name below this one.
    pub(crate) dir: &'a Path,
    pub(crate) backend: &'a Found,
    pub(crate) identity: &'a Identity,
    /// Who is let in, where that is asked.
    pub(crate) clients: Option<&'a Clients>,
    pub(crate) setup: Setup,
    /// What is served where no application is asked.
    pub(crate) root: &'a Path,
    pub(crate) cores: &'a [usize],
}

/// A contestant that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) process: Process,
    pub(crate) listen: SocketAddr,
}
