//! What the process may do with files and ports: what its configuration needed when it started, and what libraries need.
//! Later configurations get no more than that.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use offramp_certs::{directory, read_secret};
use offramp_config::model::{NotifyTarget, NotifyUrl, Webhook};
use offramp_config::{Config, sources};
use offramp_net::sandbox::bounds::{PathRule, Ports, Restricted, Rights, SandboxRules, real};

use super::needs::{Need, What, needs};
use super::{Reach, Scope, UPGRADE};
use crate::error::Finding;
use crate::origin::{Origin, Source};

/// The rights of the process, for as long as it runs.
#[derive(Debug)]
pub(crate) struct Grants {
    bounds: SandboxRules,
    /// The needs of the first configuration. That they can be met was found out at the start.
    named: HashSet<What>,
    _restricted: Option<Restricted>,
}

impl Grants {
    /// The grants of a configuration. `strict`: reading and ports are restricted, too.
    pub(super) fn of(config: &Config, scope: Scope<'_>, strict: bool) -> Self {
        let Scope { source, program, also } = scope;
        let needs = all_needs(config);
        let home = source.environment.home.as_deref();
        let mut places: BTreeMap<PathBuf, Rights> = BTreeMap::new();
        let mut give = |place: PathRule| {
            let rights = places.entry(place.path).or_default();
            *rights = rights.and(place.rights);
        };
        needs.iter().flat_map(|need| given(&need.what, home)).for_each(&mut give);
        give(PathRule { path: PathBuf::from("/dev/null"), rights: Rights::KEEP });
        for folder in &also.sockets {
            give(PathRule { path: real(folder), rights: Rights::SOCKETS });
        }
        if let Origin::File(path) = &source.origin {
            persist(path).into_iter().for_each(&mut give);
        }
        if strict {
            let libraries = FILES.iter().map(|path| What::Read(PathBuf::from(path)));
            let libraries = libraries.chain(FOLDERS.iter().map(|path| What::ReadAll(PathBuf::from(path))));
            let all = libraries.chain(also.files.iter().cloned().map(What::Read)).chain(of_source(source));
            all.flat_map(|what| given(&what, home)).for_each(&mut give);
            program.iter().flat_map(|program| of_program(&program.path)).for_each(&mut give);
        }
        // Only to read says nothing where everything may be read.
        let rules = |rights: Rights| strict || rights.files || rights.sockets || rights.folders;
        // What is not there gets no rule, and what comes there later none either.
        let places = places.into_iter().filter(|(path, rights)| rules(*rights) && path.exists());
        let places = places.map(|(path, rights)| PathRule { path, rights }).collect();
        let ports = strict.then(|| ports(&needs, also));
        let named = needs.into_iter().map(|need| need.what).collect();
        let bounds = SandboxRules { places, reading: strict, ports, abstract_sockets: also.abstract_sockets };
        Self { bounds, named, _restricted: None }
    }

    pub(super) fn bounds(&self) -> &SandboxRules {
        &self.bounds
    }

    /// Keeps what holds the restriction.
    pub(super) fn entered(self, restricted: Restricted) -> Self {
        Self { _restricted: Some(restricted), ..self }
    }

    /// The needs of a configuration beyond it.
    pub(super) fn missing(&self, config: &Config) -> Vec<Finding> {
        let needs = all_needs(config);
        let fresh = needs.iter().filter(|need| !self.named.contains(&need.what));
        fresh.filter(|need| !self.cover(&need.what)).map(denied).collect()
    }

    fn cover(&self, what: &What) -> bool {
        let Some(ports) = &self.bounds.ports else { return self.allow(what) };
        match what {
            What::Listen(port) => ports.listen.contains(port),
            What::Connect(port) => ports.connect.contains(port),
            _ => self.allow(what),
        }
    }

    /// True if the files may be used; ports always may.
    fn allow(&self, what: &What) -> bool {
        used(what).iter().all(|used| {
            let above = self.bounds.places.iter().filter(|place| used.path.starts_with(&place.path));
            let rights = above.fold(Rights::default(), |rights, place| rights.and(place.rights));
            rights.and(Rights { read: !self.bounds.reading, ..Rights::default() }).include(used.rights)
        })
    }

    /// True if reading is restricted: then what is denied may be so by the sandbox.
    pub(super) fn restrict_reading(&self) -> bool {
        self.bounds.reading
    }
}

/// Everything that a configuration names, with the ports of the URLs that it has in files. A file that cannot be read
/// has none: that is a mistake of its own.
fn all_needs(config: &Config) -> Vec<Need> {
    let ports = config.telemetry.notify.iter().filter_map(|receiver| {
        let NotifyTarget::Webhook(Webhook { url_file: Some(file), .. }) = &receiver.to else { return None };
        let url = read_secret(&file.path).ok()?.as_str().parse::<NotifyUrl>().ok()?;
        let what = What::Connect(url.port());
        Some(Need { key: "notify.url_file", at: receiver.at.clone(), what })
    });
    let mut all = needs(config);
    all.extend(ports);
    all
}

/// The reason why a configuration cannot be used.
fn denied(need: &Need) -> Finding {
    let what = match &need.what {
        What::Read(path) | What::ReadAll(path) | What::Certificates(path) => {
            format!("read {}", path.display())
        }
        What::Log(path) | What::Database(path) => format!("write {}", path.display()),
        What::State(path) => format!("use {}", path.display()),
        What::Socket(path) => format!("make the socket {}", path.display()),
        What::Listen(port) => format!("listen on port {port}"),
        What::Connect(port) => format!("connect to port {port}"),
    };
    Finding::new(&need.at, format!("`{}`: the sandbox does not let Offramp {what}; {UPGRADE}", need.key))
}

fn ports(needs: &[Need], also: &Reach) -> Ports {
    let mut ports = Ports::default();
    ports.connect.extend(PORTS.into_iter().chain(also.ports.iter().copied()));
    for need in needs {
        match need.what {
            What::Listen(port) => ports.listen.insert(port),
            What::Connect(port) => ports.connect.insert(port),
            _ => false,
        };
    }
    // What an authority names in its directory may be at other ports than that.
    if needs.iter().any(|need| need.key == "acme.*.directory") {
        ports.connect.insert(443);
    }
    ports
}

/// The places that are granted for a need: a folder rather than a file, as files are replaced by others of the same name.
fn given(what: &What, home: Option<&Path>) -> Vec<PathRule> {
    let place = |path: PathBuf, rights| PathRule { path, rights };
    let beside = |path: &Path, rights| {
        let real = real(path);
        let mut places: Vec<PathRule> = folders(path, &real).map(|folder| place(folder, rights)).collect();
        places.retain(|place| !is_shared(&place.path, home));
        places.push(PathRule { path: real, rights });
        places
    };
    match what {
        What::Read(path) => beside(path, Rights::READ),
        What::ReadAll(path) => {
            let own = real(path);
            // A link that is to lead elsewhere later.
            let beside = path.is_symlink().then(|| own.parent().map(Path::to_owned)).flatten();
            let beside = beside.filter(|folder| !is_shared(folder, home));
            beside.into_iter().chain([own]).map(|path| place(path, Rights::READ)).collect()
        }
        What::Certificates(path) => {
            let all = given(&What::ReadAll(path.clone()), home);
            let archives = archives(path).filter(|folder| !is_shared(folder, home));
            let archives = archives.map(|folder| place(folder, Rights::READ));
            let files = pairs(path).flat_map(|file| beside(&file, Rights::READ));
            all.into_iter().chain(archives).chain(files).collect()
        }
        What::Log(path) if is_special(path) || is_stream(path) => vec![place(real(path), Rights::FILES)],
        What::Log(path) => {
            let real = real(path);
            let mut folders: Vec<PathBuf> = folders(path, &real).collect();
            // A link in a folder with much else: what it leads to is written, and the link stays as it is.
            folders.retain(|folder| !path.is_symlink() || !is_shared(folder, home));
            let file = path.is_symlink().then_some(real);
            folders.into_iter().chain(file).map(|path| place(path, Rights::FILES)).collect()
        }
        What::Database(path) => {
            folders(path, &real(path)).map(|folder| place(folder, Rights::KEEP)).collect()
        }
        What::State(path) => vec![place(real(path), Rights::ALL)],
        What::Socket(path) => vec![place(folder(path), Rights::SOCKETS)],
        What::Listen(_) | What::Connect(_) => Vec::new(),
    }
}

/// The places that a need uses, as the kernel sees them.
fn used(what: &What) -> Vec<PathRule> {
    let one = |path, rights| vec![PathRule { path, rights }];
    match what {
        What::Read(path) | What::ReadAll(path) => one(real(path), Rights::READ),
        What::Certificates(path) => {
            let files = pairs(path).map(|file| real(&file));
            let files = files.map(|path| PathRule { path, rights: Rights::READ });
            files.chain(one(real(path), Rights::READ)).collect()
        }
        What::Log(path) => one(real(path), Rights::FILES),
        What::Database(path) => one(real(path), Rights::KEEP),
        What::State(path) => one(real(path), Rights::ALL),
        What::Socket(path) => one(folder(path), Rights::SOCKETS),
        What::Listen(_) | What::Connect(_) => Vec::new(),
    }
}

/// The certificates and keys of a folder, as far as it can be listed.
fn pairs(path: &Path) -> impl Iterator<Item = PathBuf> {
    let listing = directory::pairs(path).unwrap_or_default();
    listing.pairs.into_iter().flat_map(|(cert, key)| [Some(cert), key]).flatten()
}

/// The folders for what the certificates and keys of a folder lead to, also those that come later: certbot keeps
/// `live/NAME/cert.pem` as a link to `archive/NAME/cert1.pem`, so that `archive` is one.
fn archives(path: &Path) -> impl Iterator<Item = PathBuf> {
    let own = real(path);
    let archive = move |file: PathBuf| {
        let (named, target) = (file.parent()?.strip_prefix(path).ok()?.to_owned(), folder(&real(&file)));
        let is_like_it =
            !named.as_os_str().is_empty() && target.ends_with(&named) && !target.starts_with(&own);
        let above = target.ancestors().nth(named.components().count());
        above.filter(|_| is_like_it).map(Path::to_owned)
    };
    pairs(path).filter_map(archive)
}

/// The place in which the file of the configuration is written anew if a change has `persist`. In a folder of the whole system it is
/// not: everything in there could be.
fn persist(path: &Path) -> Option<PathRule> {
    let folder = folder(&real(path));
    (!is_shared(&folder, None)).then_some(PathRule { path: folder, rights: Rights::FILES })
}

/// The files that a process reads for the backtrace of a panic: the program and its symbols, and nothing of what lies beside them.
fn of_program(program: &Path) -> [PathRule; 2] {
    [program.to_owned(), folder(program).join(".debug")]
        .map(|path| PathRule { path: real(&path), rights: Rights::READ })
}

/// The files that a process reads that was started from a file.
fn of_source(source: &Source) -> Vec<What> {
    let mut read = Vec::new();
    if let Origin::File(path) = &source.origin {
        let sources = sources(path);
        read.extend(sources.files.into_iter().map(What::Read));
        read.extend(sources.folders.into_iter().map(What::ReadAll));
    }
    read
}

/// The folder that a path is in, without symbolic links.
fn folder(path: &Path) -> PathBuf {
    let named = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    real(named.unwrap_or(Path::new(if path.is_absolute() { "/" } else { "." })))
}

/// The folder that has the name of a file, and that which has the file.
fn folders(path: &Path, real: &Path) -> impl Iterator<Item = PathBuf> {
    let (named, own) = (folder(path), folder(real));
    let other = (own != named).then_some(own);
    [named].into_iter().chain(other)
}

/// True if a path stands for a descriptor of the process, such as `/dev/stdout`: nothing is made or renamed beside it.
fn is_stream(path: &Path) -> bool {
    let folder = folder(path);
    folder == Path::new("/dev") || folder.starts_with("/proc")
}

/// True if a path is there and no regular file: a terminal, a pipe, `/dev/stdout`.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file())
}

/// True if a folder has much that is not Offramp's: then only single files of it are given.
fn is_shared(folder: &Path, home: Option<&Path>) -> bool {
    SHARED.iter().any(|shared| folder == Path::new(shared)) || home.is_some_and(|home| folder == home)
}

/// Folders of the whole system, by their names.
const SHARED: [&str; 27] = [
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib64",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/local",
    "/usr/local/bin",
    "/usr/local/etc",
    "/var",
    "/var/lib",
    "/var/tmp",
];

/// Files that libraries read, and what takes their place where they are links.
const FILES: [&str; 17] = [
    // Look-ups of names (getaddrinfo(3)), of users (getpwnam(3)), and the libraries for both.
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/passwd",
    "/etc/group",
    "/etc/ld.so.cache",
    // Times.
    "/etc/localtime",
    "/etc/timezone",
    // What the process reads about itself and the machine.
    "/proc/stat",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
];

/// Folders that libraries read.
const FOLDERS: [&str; 12] = [
    // Authorities of the system.
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/usr/share/zoneinfo",
    // Libraries for look-ups.
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/proc/self",
    "/sys/devices/system/cpu",
];

/// Ports that are always connected: DNS, where an answer is too long for UDP.
const PORTS: [u16; 1] = [53];

#[cfg(test)]
mod tests;
