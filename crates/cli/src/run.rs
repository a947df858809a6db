//! The commands, wired together: the only place that knows every crate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::CommandFactory as _;
use offramp_certs::local_ca::{LocalCa, trust_instructions};
use offramp_config::model::{
    CertificateName, CertificateSource, Level, ListenAddress, Mode, Name, ProxyV2, Sandbox, SendProxy,
    ServerAddress, Workers,
};
use offramp_config::{Config, Environment};
use offramp_control::{Bound, Heir, Helper, Origin, Server, Start, outputs};
use offramp_net::{Address, notify};
use offramp_observe::Panics;
use offramp_observe::prometheus::Build;

use crate::admin;
use crate::banner::{self, Banner, Service};
use crate::demo::Demo;
use crate::failure::Failure;
use crate::flags::{self, Cli, Command, Identity, Listening};
use crate::listen::Place;
use crate::single::{Answers, Single, local};
use crate::surroundings::{self, print, say};
use crate::trial::Trial;
use crate::{cert, check, ctl, event_store, logs, man, password, target};

/// Does what the command line says.
///
/// # Errors
/// It could not be done; the failure has the text for the user and the exit code.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::To(arguments) => as_heir(|from| to(arguments, from)),
        Command::Serve(arguments) => as_heir(|from| files(arguments, from)),
        Command::Run(arguments) => as_heir(|from| from_file(arguments, from)),
        Command::Check(arguments) => check::check(arguments),
        Command::Demo(arguments) => as_heir(|from| demo(arguments, from)),
        Command::Ca(arguments) => ca(arguments),
        Command::Cert(arguments) => cert::run(arguments),
        Command::Ctl(arguments) => ctl::run(arguments),
        Command::Logs(arguments) => logs::run(arguments),
        Command::Password(arguments) => password::run(&arguments),
        Command::Version => print(format!("offramp {VERSION}\n").as_bytes()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "offramp", &mut script);
            print(&script)
        }
        Command::Man => {
            let mut page = Vec::new();
            man::write(Cli::command(), &mut page).map_err(Failure::runtime)?;
            print(&page)
        }
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a process that serves begins with.
struct From {
    /// Starts programs for it.
    helper: Option<Helper>,
    /// What it only tries, of what its sandbox should refuse.
    trial: Option<Trial>,
    /// What comes from the process whose place it takes, if there is one.
    heir: Option<Heir>,
}

/// Does `work` with what the process hands over whose place this one takes, if there is one, and tells that process
/// why nothing comes of it.
fn as_heir(work: impl FnOnce(From) -> Result<(), Failure>) -> Result<(), Failure> {
    // Before anything else: it is to know no keys, nor what is handed over.
    let helper = surroundings::program().map(Helper::fork).transpose().map_err(|error| {
        Failure::runtime(format_args!("error: cannot start the process that starts programs: {error}"))
    })?;
    let heir = surroundings::heir()?;
    let refuser = heir.as_ref().and_then(Heir::refuser);
    let outcome = work(From { helper, trial: None, heir });
    if let (Err(failure), Some(refuser)) = (&outcome, refuser) {
        let reason = failure.to_string();
        let lines: Vec<&str> =
            reason.lines().map(|line| line.strip_prefix("error: ").unwrap_or(line)).collect();
        refuser.refuse(&lines.join("\n"));
    }
    outcome
}

fn from_file(arguments: flags::Run, from: From) -> Result<(), Failure> {
    let environment = surroundings::environment();
    let path = check::find(arguments.file)?;
    let config = match &from.heir {
        None => check::load(&path, &environment)?,
        Some(_) => check::load_in_lines(&path, &environment)?,
    };
    // What it is to reload must not depend on where the process is then.
    let path = std::path::absolute(path).map_err(Failure::runtime)?;
    let from = From { trial: arguments.sandbox_trial.map(Trial::prepare).transpose()?, ..from };
    serve(config, Origin::File(path), environment, None, from)
}

fn to(arguments: flags::To, from: From) -> Result<(), Failure> {
    let environment = surroundings::environment();
    let (listen, public) = places(&arguments.listening, &arguments.identity)?;
    let (place, state_dir) = (arguments.listening.listen.clone(), arguments.state_dir.clone());
    let what = arguments.target.to_string();
    let service = if arguments.http { Service::Http } else { Service::Bytes };
    let missing = target::missing_socket(&arguments.target.address).map(Path::to_owned);
    let verbose = arguments.verbose;
    let mut single = Single::to(arguments, listen, surroundings::events()).map_err(Failure::usage)?;
    single.redirect = if public { port_80(from.heir.as_ref()) } else { None };
    let config = kept_in(state_dir, single.config(&environment))?;
    let config = told_at(verbose, config);
    let told = config.clone();
    let announce = move |addresses: &[Address]| {
        say(&introduction(what, service, addresses, &told));
        if let Some(path) = missing {
            let path = path.display();
            say(&format!("  Nothing listens at {path} yet: until then clients are refused.\n"));
        }
    };
    serve(config, Origin::CommandLine, environment, Some(Box::new(announce)), from)
        .map_err(|failure| elsewhere(failure, &place))
}

fn files(arguments: flags::Serve, from: From) -> Result<(), Failure> {
    let environment = surroundings::environment();
    if let Err(error) = std::fs::read_dir(&arguments.directory) {
        let directory = arguments.directory.display();
        return Err(Failure::usage(format_args!("error: cannot read the directory {directory}: {error}")));
    }
    let (listen, public) = places(&arguments.listening, &arguments.identity)?;
    let (place, state_dir) = (arguments.listening.listen.clone(), arguments.state_dir.clone());
    let what = std::path::absolute(&arguments.directory).map_err(Failure::usage)?.display().to_string();
    let verbose = arguments.verbose;
    let mut single = Single::serve(arguments, listen, surroundings::events()).map_err(Failure::usage)?;
    single.redirect = if public { port_80(from.heir.as_ref()) } else { None };
    let config = told_at(verbose, kept_in(state_dir, single.config(&environment))?);
    let told = config.clone();
    let announce = move |addresses: &[Address]| {
        say(&introduction(what, Service::Files, addresses, &told));
    };
    serve(config, Origin::CommandLine, environment, Some(Box::new(announce)), from)
        .map_err(|failure| elsewhere(failure, &place))
}

/// Where to listen, and whether that is where a site for everyone does: for a certificate of an authority, where nothing
/// else is said.
fn places(listening: &Listening, identity: &Identity) -> Result<(Vec<ListenAddress>, bool), Failure> {
    let public = identity.acme.is_some() && listening.listen == Place::DEFAULT && !listening.public;
    Ok((if public { vec![everywhere(443)] } else { listen(listening)? }, public))
}

fn demo(arguments: flags::Demo, from: From) -> Result<(), Failure> {
    let environment = surroundings::environment();
    let listen = listen(&arguments.listening)?;
    let place = arguments.listening.listen;
    let demo = Demo::start()
        .map_err(|error| Failure::runtime(format_args!("error: cannot start the application: {error}")))?;
    let single = Single {
        answers: Answers::Application {
            server: ServerAddress::Unix(demo.socket()),
            tls: None,
            send_proxy: Some(SendProxy::V2(ProxyV2::default())),
        },
        certificate: Some(local(&listen)),
        authority: None,
        redirect: None,
        listen,
        mode: Mode::Tcp,
        workers: Workers::Auto,
        events: surroundings::events(),
        log_store: None,
    };
    let mut config = told_at(arguments.verbose, kept_in(arguments.state_dir, single.config(&environment))?);
    // The socket is this user's alone, and browsers keep connections open for nothing.
    config.user = None;
    config.limits.drain_timeout = Duration::from_secs(1);
    // The application is a thread of this very process.
    config.sandbox = Sandbox::Off;
    let told = config.clone();
    let announce = move |addresses: &[Address]| {
        let what = "the demo's application; Ctrl-C ends it".to_owned();
        say(&introduction(what, Service::Demo, addresses, &told));
    };
    serve(config, Origin::CommandLine, environment, Some(Box::new(announce)), from)
        .map_err(|failure| elsewhere(failure, &place))
}

/// Every address of this machine.
fn everywhere(port: u16) -> ListenAddress {
    let any: IpAddr =
        if surroundings::has_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    ListenAddress::Ip((any, port).into())
}

/// Where browsers come that know no https yet, if this process may listen there. A certificate is obtained without.
fn port_80(heir: Option<&Heir>) -> Option<ListenAddress> {
    let address = everywhere(80);
    let ListenAddress::Ip(tcp) = &address else { return None };
    if heir.is_some_and(|heir| heir.listens_on(&Address::Tcp(*tcp))) {
        return Some(address);
    }
    match TcpListener::bind(tcp) {
        Ok(_) => Some(address),
        Err(error) => {
            say(&format!("  Port 80 is not served ({error}): browsers must be told https:// themselves.\n"));
            None
        }
    }
}

/// The addresses that `--listen` and `--public` mean on this machine.
fn listen(listening: &Listening) -> Result<Vec<ListenAddress>, Failure> {
    listening.addresses(surroundings::has_ipv6()).map_err(Failure::Usage)
}

/// The configuration, with the log at level debug if requested.
fn told_at(verbose: bool, mut config: Config) -> Config {
    if verbose {
        config.log.level = Level::Debug;
    }
    config
}

/// Adds the option that listens elsewhere, where an address is taken.
fn elsewhere(failure: Failure, place: &Place) -> Failure {
    match failure {
        Failure::Runtime(why) if why.contains("cannot listen on") => {
            Failure::Runtime(format!("{why}\nTo listen elsewhere: --listen {}", place.another()))
        }
        other => other,
    }
}

fn ca(arguments: flags::Ca) -> Result<(), Failure> {
    let environment = surroundings::environment();
    let config = match arguments.config {
        Some(path) => check::load(&path, &environment)?,
        None => kept_in(arguments.state_dir, Config::for_environment(&environment))?,
    };
    print(trust_instructions(&open_ca(&config.state_dir)?.certificate_path()).as_bytes())
}

/// The configuration, with another state directory if requested.
fn kept_in(state_dir: Option<PathBuf>, config: Config) -> Result<Config, Failure> {
    match state_dir {
        None => Ok(config),
        Some(dir) => {
            let state_dir = std::path::absolute(dir).map_err(Failure::usage)?;
            Ok(Config { state_dir, ..config })
        }
    }
}

fn open_ca(state_dir: &Path) -> Result<LocalCa, Failure> {
    LocalCa::open_or_create(state_dir, SystemTime::now())
        .map_err(|error| Failure::runtime(format_args!("error: {error}")))
}

/// What is called with the addresses as soon as clients can connect.
type Announce = Box<dyn FnOnce(&[Address])>;

/// Starts the server, calls `announce` as soon as clients can connect, and runs until an order to stop. One that takes
/// the place of another process announces nothing: that has said it.
fn serve(
    config: Config,
    origin: Origin,
    environment: Environment,
    announce: Option<Announce>,
    from: From,
) -> Result<(), Failure> {
    let From { helper, trial, heir } = from;
    let journal = surroundings::journal();
    let log = outputs::open_log(&config, journal)
        .map_err(|error| Failure::runtime(format_args!("error: the log: {error}")))?;
    let panics = Panics::default();
    panics.watch(log.clone());
    let bound = announce.filter(|_| heir.is_none()).map(|announce| -> Bound {
        Box::new(|listening: &[(String, Address)]| {
            let addresses: Vec<Address> = listening.iter().map(|(_, address)| address.clone()).collect();
            announce(&addresses);
        })
    });
    let bound = bound.or_else(|| trial.as_ref().map(Trial::look));
    let prepared = admin::prepare(&config, &origin, &log)?;
    let mut also = event_store::reach(&config);
    also.files.extend(surroundings::of_libraries());
    also.sockets = surroundings::runtime_directories();
    also.abstract_sockets = surroundings::notify_socket().is_some_and(|name| notify::is_abstract(&name));
    let start = Start {
        config: config.clone(),
        origin,
        environment,
        log: log.clone(),
        journal,
        terminals: surroundings::terminals(),
        panics,
        bound,
        build: Build { version: VERSION, commit: "" },
        notify_socket: surroundings::notify_socket(),
        open_store: Some(event_store::opener()),
        program: surroundings::program(),
        helper,
        also,
        heir,
        activated: surroundings::activated(),
        watchdog: surroundings::watchdog(),
        signals: true,
    };
    let mut server = Server::start(start).map_err(|error| not_started(&error, &config))?;
    // After the start, so that its socket belongs to the user that was switched to.
    admin::add(&mut server, prepared, &config, &log)?;
    if let Some(trial) = trial {
        trial.show(&config)?;
        server.handle().stop();
    }
    // It is not needed for days of running.
    drop(config);
    let exit = server.run();
    match exit.panicked {
        0 => Ok(()),
        1 => Err(Failure::runtime("error: a worker panicked, see above; please report it")),
        workers => Err(Failure::runtime(format_args!(
            "error: {workers} workers panicked, see above; please report it"
        ))),
    }
}

/// Why the server did not start, told apart by whose the fault is: the configuration's, where it names what
/// is not there or does not fit, or the machine's.
fn not_started(error: &offramp_control::Error, config: &Config) -> Failure {
    let lines: Vec<String> = error.findings().iter().map(|finding| format!("error: {finding}")).collect();
    let why = lines.join("\n");
    let fits = check::disk::look(config, SystemTime::now()).errors.is_empty();
    if fits { Failure::Runtime(why) } else { Failure::Usage(why) }
}

/// What there is to say about the one application or directory that is served. The keys were read a moment ago; what cannot be
/// read now is not told.
fn introduction(what: String, service: Service, addresses: &[Address], config: &Config) -> String {
    let mut names = Vec::new();
    let mut origin = match config.certificates.is_empty() {
        true => banner::Origin::PlainText,
        false => banner::Origin::LocalCa(config.state_dir.clone()),
    };
    for certificate in &config.certificates {
        origin = match &certificate.source {
            CertificateSource::Files { cert, key, .. } => {
                names.extend(names_of(&cert.path, key.as_ref().map(|key| key.path.as_path())));
                banner::Origin::File(cert.path.clone())
            }
            // No command line has one.
            CertificateSource::Directory { path } => banner::Origin::File(path.path.clone()),
            CertificateSource::Acme(acme) => {
                names.extend(acme.names.iter().cloned().map(CertificateName::Host));
                let asked: Vec<&str> = acme.authorities.iter().map(Name::as_str).collect();
                banner::Origin::Authority(asked.join(" or "))
            }
            CertificateSource::Local { names: local } => {
                names.extend_from_slice(local);
                let authority = open_ca(&config.state_dir).map(|authority| authority.certificate_path());
                banner::Origin::LocalCa(authority.unwrap_or_else(|_| config.state_dir.clone()))
            }
        };
    }
    Banner { what, addresses, service, names, origin }.text()
}

/// The names in a certificate that clients can request.
fn names_of(cert: &Path, key: Option<&Path>) -> Vec<CertificateName> {
    let Ok(loaded) = offramp_certs::file::load(cert, key, SystemTime::now()) else { return Vec::new() };
    let dns = loaded.certificate.names.iter().filter_map(|name| name.to_string().parse().ok());
    let addresses = loaded.certificate.addresses.iter().copied().map(CertificateName::Ip);
    dns.chain(addresses).collect()
}
