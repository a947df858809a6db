//! The applications that TLS is taken out of: one echo server each for Node.js, Java and Python, with TLS
//! of their own or without.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result, write_file};
use crate::pki::Identity;
use crate::process::{Launch, Process, find_program, free_port};
use crate::protocol::Found;

/// A runtime with an echo server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    Node,
    Java,
    Python,
}

impl Runtime {
    pub(crate) const ALL: [Self; 3] = [Self::Node, Self::Java, Self::Python];

    /// As case names have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Java => "java",
            Self::Python => "python",
        }
    }

    /// The program, the package that brings it, the file and text of the server.
    fn parts(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Node => ("node", "nodejs", "echo.mjs", include_str!("../apps/echo.mjs")),
            Self::Java => ("java", "openjdk-17-jdk-headless", "Echo.java", include_str!("../apps/Echo.java")),
            Self::Python => ("python3", "python3", "echo.py", include_str!("../apps/echo.py")),
        }
    }
}

/// How an application is to be run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) runtime: Runtime,
    /// One of the manners of `echo.mjs`; the others have but one.
    pub(crate) manner: Option<&'static str>,
    /// With TLS of its own.
    pub(crate) tls: Option<&'a Identity>,
    /// Listen on a Unix socket (Node.js only) instead of TCP.
    pub(crate) unix: bool,
}

/// An application that runs.
#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) process: Process,
    pub(crate) found: Found,
}

impl Application {
    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// When the runtime is missing (with its package), or the program ends at start (with its words).
    pub(crate) async fn start(wish: Wish<'_>, dir: &Path, cores: &[usize]) -> Result<Self> {
        let (program, package, file, text) = wish.runtime.parts();
        let program = find_program(program)
            .ok_or_else(|| Error::Missing(format!("{program} is not installed (package {package})")))?;
        let source = dir.join(file);
        write_file(&source, text)?;
        let found = if wish.unix {
            let path = dir.join(format!("{}.sock", wish.runtime.name()));
            let _ = std::fs::remove_file(&path);
            Found::Unix(path)
        } else {
            Found::Tcp(SocketAddr::from(([127, 0, 0, 1], free_port()?)))
        };
        let launch = Launch {
            name: wish.runtime.name().to_owned(),
            program,
            args: arguments(wish, source, &found),
            env: Vec::new(),
            cores: cores.to_vec(),
            log: dir.join(format!("{}.log", wish.runtime.name())),
            piped: false,
        };
        let mut process = Process::start(&launch)?;
        // Java compiles its source first.
        process.listening(&found, Duration::from_secs(30)).await?;
        Ok(Self { process, found })
    }

    /// The address of one that listens on TCP.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self.found {
            Found::Tcp(address) => Some(address),
            Found::Unix(_) => None,
        }
    }
}

fn arguments(wish: Wish<'_>, source: PathBuf, found: &Found) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    if wish.runtime == Runtime::Java {
        // Head and body are two writes; with Nagle each answer would wait for an acknowledgement.
        args.push("-Dsun.net.httpserver.nodelay=true".into());
    }
    args.push(source.into());
    let listen = match found {
        Found::Tcp(address) => address.to_string(),
        Found::Unix(path) => format!("unix:{}", path.display()),
    };
    args.extend(["--listen".into(), listen.into()]);
    if let Some(identity) = wish.tls {
        args.extend(["--cert".into(), (&identity.cert).into(), "--key".into(), (&identity.key).into()]);
    }
    if let Some(manner) = wish.manner {
        args.extend(["--manner".into(), manner.into()]);
    }
    args
}
