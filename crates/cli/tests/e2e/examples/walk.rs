//! A walk through a folder of `examples/`: every command of its README is run as it stands there, and prints what it says.
//!
//! Only places are other ones: directories of the machine become those of a home, and ports become free ones.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use offramp_testkit::process::{Process, Ready, free_port, require};

use crate::http_documents::is_like;
use crate::support::instance::{Home, Instance, LIFE, PATIENCE, ask};
use crate::support::offramp::offramp;

/// How a README starts Offramp.
const RUN: &str = "offramp run -c offramp.toml &";

/// A folder with its README, `offramp.toml` and whatever else it needs.
pub(crate) struct Walk {
    folder: PathBuf,
    /// Until Offramp runs.
    home: Option<Home>,
    directory: PathBuf,
    places: Vec<(String, String)>,
    ports: Vec<(u16, u16)>,
    variables: Vec<(&'static str, OsString)>,
    /// The port that HTTPS is asked for, where it is not that of Offramp.
    front: Option<u16>,
    running: Vec<Process>,
    /// Whether a program was started that may not be ready.
    is_fresh: bool,
    pub(crate) instance: Option<Instance>,
}

impl Walk {
    /// Through this folder. Nothing is done yet.
    pub(crate) fn through(name: &str) -> Self {
        let home = Home::new();
        let directory = home.path().to_owned();
        let places = [
            ("/etc/offramp/", "etc/"),
            ("/var/lib/offramp/", "state/"),
            ("/var/log/offramp/", "log/"),
            ("/run/", "run/"),
            ("/srv/", "srv/"),
        ];
        for name in ["etc", "log", "run", "srv"] {
            fs::create_dir(directory.join(name)).unwrap();
        }
        let here = |(old, new): (&str, &str)| (old.to_owned(), format!("{}/{new}", directory.display()));
        Self {
            folder: examples().join(name),
            home: Some(home),
            places: places.map(here).to_vec(),
            directory,
            ports: Vec::new(),
            variables: Vec::new(),
            front: None,
            running: Vec::new(),
            is_fresh: false,
            instance: None,
        }
    }

    /// Has `new` wherever the folder says `old`.
    pub(crate) fn place(mut self, old: &str, new: impl std::fmt::Display) -> Self {
        self.places.insert(0, (old.to_owned(), new.to_string()));
        self
    }

    /// Has another port wherever the folder says this one.
    pub(crate) fn port(mut self, old: u16, new: u16) -> Self {
        self.ports.push((old, new));
        self
    }

    /// Has a free port wherever the folder says this one.
    pub(crate) fn free(self, old: u16) -> Self {
        self.port(old, free_port())
    }

    /// Has clients of HTTPS connect to this port of the loopback, on which another program listens.
    pub(crate) fn front(mut self, port: u16) -> Self {
        self.front = Some(port);
        self
    }

    /// Sets a variable of the environment of every command.
    pub(crate) fn variable(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// Fails where this program is missing, and names its Debian package.
    pub(crate) fn needs(self, program: &str, package: &str) -> Self {
        let _ = require(program, package);
        self
    }

    /// Runs every command in turn. What it has started goes on.
    pub(crate) fn go(mut self) -> Self {
        self.copy(&self.folder.clone());
        let text = self.configuration();
        self.home.as_ref().unwrap().configure(&text);
        let readme = fs::read_to_string(self.folder.join("README.md")).unwrap();
        let commands = commands(&readme);
        let checks = commands.iter().any(|(line, _)| line == "offramp check -c offramp.toml");
        assert!(checks, "{} does not check its configuration", self.folder.display());
        for (line, expected) in commands {
            self.step(line.strip_prefix("sudo ").unwrap_or(&line), &expected);
        }
        assert!(self.instance.is_some(), "{} does not run Offramp", self.folder.display());
        self
    }

    /// Ends the programs that were started first.
    pub(crate) fn stop_first(&mut self, count: usize) {
        self.running.drain(..count);
    }

    /// Stops Offramp, then all other programs.
    pub(crate) fn end(mut self) {
        self.instance.take().unwrap().stop();
    }

    fn step(&mut self, line: &str, expected: &str) {
        if line == RUN {
            return self.run();
        }
        let command = self.here(line);
        if let Some(program) = command.strip_suffix(" &") {
            let process = Process::start(self.shell(&format!("exec {program}")), LIFE).unwrap();
            self.running.push(process);
            self.is_fresh = true;
            return;
        }
        let (deadline, expected) = (Instant::now() + PATIENCE, self.here(expected));
        loop {
            let output = ask(self.shell(&self.aimed(&command)), b"", PATIENCE);
            let said = String::from_utf8_lossy(&output.stdout).replace('\r', "");
            if output.status.success() && is_like(&said, &expected) {
                break;
            }
            let complaint = String::from_utf8_lossy(&output.stderr);
            let programs: String = self.running.iter().map(Process::transcript).collect();
            let offramp = self.instance.as_ref().map(|one| one.process.transcript()).unwrap_or_default();
            assert!(
                self.is_fresh && Instant::now() < deadline,
                "{command}\n{said}{complaint}instead of\n{expected}{programs}{offramp}"
            );
            std::thread::sleep(POLL);
        }
        self.is_fresh = false;
    }

    /// Starts Offramp when the servers that it is for are there.
    fn run(&mut self) {
        let text = self.configuration();
        let servers = text.lines().filter(|line| line.starts_with("server"));
        for server in servers.flat_map(|line| line.split('"').skip(1).step_by(2)) {
            let address = server.split(' ').next().unwrap_or_default();
            let ready = match address.strip_prefix("unix:") {
                Some(path) => Ready::Unix(self.directory.join(path)),
                None => Ready::Tcp(address.parse::<SocketAddr>().unwrap()),
            };
            if let Some(last) = self.running.last() {
                last.wait_for(&ready, PATIENCE).unwrap();
            }
        }
        let instance = self.home.take().unwrap().run(&text);
        for (name, port) in listeners(&fs::read_to_string(self.folder.join("offramp.toml")).unwrap()) {
            self.ports.push((port, instance.address_of(&name).port()));
        }
        self.instance = Some(instance);
        self.is_fresh = false;
        // Programs that are for Offramp learn where it listens.
        self.copy(&self.folder.clone());
    }

    /// The configuration, on free ports of the loopback.
    fn configuration(&self) -> String {
        let written = fs::read_to_string(self.folder.join("offramp.toml")).unwrap();
        let mut text = self.here(&written);
        for (_, port) in listeners(&written) {
            text = text.replace(&format!("\"[::]:{port}\""), "\"127.0.0.1:0\"");
        }
        text
    }

    /// Copies the files of the folder, with the places of this walk.
    fn copy(&self, from: &Path) {
        let to = self.directory.join(from.strip_prefix(&self.folder).unwrap());
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
            if path.is_dir() {
                self.copy(&path);
            } else if name != "README.md" && name != "offramp.toml" {
                fs::write(to.join(name), self.here(&fs::read_to_string(path).unwrap())).unwrap();
            }
        }
    }

    /// The text with the places and ports of this walk.
    fn here(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (old, new) in &self.places {
            text = text.replace(old, new);
        }
        for (old, new) in &self.ports {
            text = numbered(&text, &old.to_string(), &new.to_string());
        }
        text
    }

    /// The command, with every curl sent to the listener of its scheme.
    fn aimed(&self, command: &str) -> String {
        let Some(instance) = &self.instance else { return command.to_owned() };
        if !command.contains("curl ") {
            return command.to_owned();
        }
        let port = match self.front {
            Some(front) => front,
            None if command.contains(" http://") => instance.address_of("plain").port(),
            None => {
                let web = self.configuration().contains("name = \"web\"");
                instance.address_of(if web { "web" } else { "default" }).port()
            }
        };
        let curl = format!(
            "curl -q --silent --show-error --noproxy '*' --connect-to ::127.0.0.1:{port} --max-time 60 "
        );
        command.replacen("curl ", &curl, 1)
    }

    /// A shell that runs this in the home, with the binary under test as `offramp`.
    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        let like = offramp(&self.directory, &[]);
        for (name, value) in like.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let binary = Path::new(env!("CARGO_BIN_EXE_offramp")).parent().unwrap().to_owned();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
        let all = std::iter::once(binary).chain(std::env::split_paths(&path)).chain(more);
        shell.env("PATH", std::env::join_paths(all).unwrap());
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        shell.arg("-c").arg(command).current_dir(&self.directory);
        shell
    }
}

/// The text with one number for another, where it is a whole one.
fn numbered(text: &str, old: &str, new: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(old) {
        let (before, after) = (&rest[..at], &rest[at + old.len()..]);
        let inner = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let whole = !inner(before.chars().last()) && !inner(after.chars().next());
        result.push_str(before);
        result.push_str(if whole { new } else { old });
        rest = after;
    }
    result + rest
}

/// The folder of all examples.
pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// The commands of a README, and what it says that they print.
fn commands(readme: &str) -> Vec<(String, String)> {
    let blocks = readme.split("\n```console\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let mut commands = Vec::new();
    for block in blocks {
        for command in format!("\n{block}\n").split("\n$ ").skip(1) {
            let (line, output) = command.split_once('\n').unwrap_or((command, ""));
            commands.push((line.to_owned(), output.to_owned()));
        }
    }
    commands
}

/// The names and ports of the listeners on all addresses.
fn listeners(configuration: &str) -> Vec<(String, u16)> {
    let section = |text: &str| {
        let text = text.split("\n[").next()?;
        let name = text.split("name = \"").nth(1).and_then(|rest| rest.split('"').next());
        let port = text.split("\"[::]:").nth(1)?.split('"').next()?.parse().ok()?;
        Some((name.unwrap_or("default").to_owned(), port))
    };
    configuration.split("[[listener]]").skip(1).filter_map(section).collect()
}

/// Between two tries.
const POLL: std::time::Duration = std::time::Duration::from_millis(50);
