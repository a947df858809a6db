//! Dispatch of commands, and the start of servers: the only module that uses every crate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::CommandFactory as _;
use offramp_config::model::{
    CertificateName, CertificateSource, ListenAddress, LogLevel, Mode, Name, ProxyProtocolHeader, ProxyV2,
    Sandbox, ServerAddress, Workers,
};
use offramp_config::{Config, Environment};
use offramp_control::outputs::{self, Streams};
use offramp_control::{Bound, Heir, Server, Start, StartFrom};
use offramp_net::{Address, notify};
use offramp_observe::Panics;
use offramp_observe::prometheus::Build;
use offramp_process::sandbox::Reach;
use offramp_process::{Helper, Origin, ServiceManager};

use crate::admin;
use crate::banner::{self, Banner, ServiceMode};
use crate::demo::DemoApplication;
use crate::failure::Failure;
use crate::flags::{self, CertificateOptions, Cli, Command, ListenOptions, ManPage};
use crate::listen::ListenArgument;
use crate::single::{Answers, Single, local};
use crate::surroundings::{self, print, say};
use crate::trial::Trial;
use crate::{
    bench, ca, cert, check, ctl, event_store, fmt, logs, man, password, setup, target, top, ui, version, why,
};

/// Runs a command.
///
/// # Errors
/// The failure has the text for the user and the exit code.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::To(arguments) => with_handover(|from| to(arguments, from)),
        Command::Serve(arguments) => with_handover(|from| files(arguments, from)),
        Command::Run(arguments) => with_handover(|from| from_file(arguments, from)),
        Command::Check(arguments) => check::check(arguments),
        Command::Fmt(arguments) => fmt::run(arguments),
        Command::Import(arguments) => crate::import::run(&arguments),
        Command::Compare(arguments) => crate::compare::run(*arguments),
        Command::Schema => print(offramp_config::keys::schema::schema().as_bytes()),
        Command::Demo(arguments) => with_handover(|from| demo(arguments, from)),
        Command::Setup(arguments) => setup::run(&arguments),
        Command::Ca(arguments) => ca::run(arguments),
        Command::Cert(arguments) => cert::run(arguments),
        Command::Ctl(arguments) => ctl::run(arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Ui(arguments) => ui::run(&arguments),
        Command::Why(arguments) => why::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Notify(arguments) => crate::notify::run(&arguments),
        Command::Logs(arguments) => logs::run(arguments),
        Command::Password(arguments) => password::run(&arguments),
        Command::Version => print(format!("offramp {}\n", version::LONG).as_bytes()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "offramp", &mut script);
            print(&script)
        }
        Command::Man { page } => {
            let mut text = Vec::new();
            match page {
                ManPage::Offramp => man::write(Cli::command(), &mut text),
                ManPage::Configuration => man::configuration::write(&mut text),
            }
            .map_err(Failure::runtime)?;
            print(&text)
        }
    }
}

/// State from before the configuration is read.
struct From {
    /// Helper process that starts programs.
    helper: Option<Helper>,
    /// Probes of `--sandbox-trial`; the server then stops at once.
    trial: Option<Trial>,
    /// Sockets and state of the previous process, in an upgrade.
    heir: Option<Heir>,
    /// Set to start from the configuration that was in force before.
    resume: bool,
}

/// Runs `work` with the state that the previous process hands over in an upgrade, and reports a failure to
/// that process.
fn with_handover(work: impl FnOnce(From) -> Result<(), Failure>) -> Result<(), Failure> {
    // The helper is forked first, so that it holds neither keys nor inherited sockets.
    let helper = surroundings::program().map(Helper::fork).transpose().map_err(|error| {
        Failure::runtime(format_args!("error: cannot start the process that starts programs: {error}"))
    })?;
    let heir = surroundings::heir()?;
    let refuser = heir.as_ref().and_then(Heir::refuser);
    let outcome = work(From { helper, trial: None, heir, resume: false });
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
    // A reload must not depend on the working directory.
    let path = offramp_config::absolute(path).map_err(Failure::runtime)?;
    let trial = arguments.sandbox_trial.map(Trial::prepare).transpose()?;
    let from = From { trial, resume: arguments.resume, ..from };
    serve(config, Origin::File(path), environment, None, from)
}

fn to(arguments: flags::To, from: From) -> Result<(), Failure> {
    let environment = surroundings::environment();
    let (listen, public) = listen_addresses(&arguments.listening, &arguments.identity)?;
    let (place, state_dir) = (arguments.listening.listen.clone(), arguments.state_dir.clone());
    let what = arguments.target.to_string();
    let service = if arguments.http { ServiceMode::Http } else { ServiceMode::Bytes };
    let missing = target::missing_socket(&arguments.target.address).map(Path::to_owned);
    let verbose = arguments.verbose;
    let mut single = Single::to(arguments, listen, surroundings::events()).map_err(Failure::usage)?;
    single.redirect = if public { port_80(from.heir.as_ref()) } else { None };
    let config = ca::with_state_dir(state_dir, single.config(&environment))?;
    let config = with_log_level(verbose, config);
    let announced = config.clone();
    let announce = move |addresses: &[Address]| {
        say(&introduction(what, service, addresses, &announced));
        if let Some(path) = missing {
            let path = path.display();
            say(&format!("  Nothing listens at {path} yet: until then clients are refused.\n"));
        }
    };
    serve(config, Origin::CommandLine, environment, Some(Box::new(announce)), from)
        .map_err(|failure| suggest_address(failure, &place))
}

fn files(arguments: flags::Serve, from: From) -> Result<(), Failure> {
    let environment = surroundings::environment();
    if let Err(error) = std::fs::read_dir(&arguments.directory) {
        let directory = arguments.directory.display();
        return Err(Failure::usage(format_args!("error: cannot read the directory {directory}: {error}")));
    }
    let (listen, public) = listen_addresses(&arguments.listening, &arguments.identity)?;
    let (place, state_dir) = (arguments.listening.listen.clone(), arguments.state_dir.clone());
    let what = offramp_config::absolute(&arguments.directory).map_err(Failure::usage)?.display().to_string();
    let verbose = arguments.verbose;
    let mut single = Single::serve(arguments, listen, surroundings::events()).map_err(Failure::usage)?;
    single.redirect = if public { port_80(from.heir.as_ref()) } else { None };
    let config = with_log_level(verbose, ca::with_state_dir(state_dir, single.config(&environment))?);
    let announced = config.clone();
    let announce = move |addresses: &[Address]| {
        say(&introduction(what, ServiceMode::Files, addresses, &announced));
    };
    serve(config, Origin::CommandLine, environment, Some(Box::new(announce)), from)
        .map_err(|failure| suggest_address(failure, &place))
}

/// Listen addresses. The flag is set for the default of a site with an ACME certificate: port 443 of every
/// address, unless `--listen` or `--public` is given.
fn listen_addresses(
    listening: &ListenOptions,
    identity: &CertificateOptions,
) -> Result<(Vec<ListenAddress>, bool), Failure> {
    let public = identity.acme.is_some() && listening.listen == ListenArgument::DEFAULT && !listening.public;
    Ok((if public { vec![everywhere(443)] } else { listen(listening)? }, public))
}

fn demo(arguments: flags::Demo, from: From) -> Result<(), Failure> {
    let environment = surroundings::environment();
    let listen = listen(&arguments.listening)?;
    let place = arguments.listening.listen;
    let demo = DemoApplication::start()
        .map_err(|error| Failure::runtime(format_args!("error: cannot start the application: {error}")))?;
    let single = Single {
        answers: Answers::Application {
            server: ServerAddress::Unix(demo.socket()),
            tls: None,
            send_proxy: Some(ProxyProtocolHeader::V2(ProxyV2::default())),
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
    let mut config = with_log_level(
        arguments.verbose,
        ca::with_state_dir(arguments.state_dir, single.config(&environment))?,
    );
    // The demo's socket is for this user only. Browsers keep idle connections open, so the drain is short.
    config.process.user = None;
    config.limits.drain_timeout = Duration::from_secs(1);
    // The application is a thread of this process, and needs more than the sandbox allows.
    config.process.sandbox = Sandbox::Off;
    let announced = config.clone();
    let announce = move |addresses: &[Address]| {
        let what = "the demo's application; Ctrl-C ends it".to_owned();
        say(&introduction(what, ServiceMode::Demo, addresses, &announced));
    };
    serve(config, Origin::CommandLine, environment, Some(Box::new(announce)), from)
        .map_err(|failure| suggest_address(failure, &place))
}

/// Listen address for a port of every address of this machine.
fn everywhere(port: u16) -> ListenAddress {
    let any: IpAddr =
        if surroundings::has_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    ListenAddress::Ip((any, port).into())
}

/// Listen address of the redirect to https, if this process can bind port 80. ACME works without it.
fn port_80(heir: Option<&Heir>) -> Option<ListenAddress> {
    let address = everywhere(80);
    let ListenAddress::Ip(tcp) = &address else { return None };
    if heir.is_some_and(|heir| heir.listens_on(&Address::Tcp(*tcp))) {
        return Some(address);
    }
    match TcpListener::bind(tcp) {
        Ok(_) => Some(address),
        Err(error) => {
            say(&format!(
                "  Port 80 is not served ({error}): browsers do not change to https:// by themselves.\n"
            ));
            None
        }
    }
}

/// Resolves `--listen` and `--public` for this machine.
fn listen(listening: &ListenOptions) -> Result<Vec<ListenAddress>, Failure> {
    listening.listen.addresses(listening.public, surroundings::has_ipv6()).map_err(Failure::Usage)
}

/// Sets the log level to debug for `--verbose`.
fn with_log_level(verbose: bool, mut config: Config) -> Config {
    if verbose {
        config.telemetry.log.level = LogLevel::Debug;
    }
    config
}

/// Adds an alternative `--listen` to a failure because of an address in use.
fn suggest_address(failure: Failure, place: &ListenArgument) -> Failure {
    match failure {
        Failure::Runtime(why) if why.contains("cannot listen on") => {
            Failure::Runtime(format!("{why}\nTo listen elsewhere: --listen {}", place.another()))
        }
        other => other,
    }
}

/// Callback for the listen addresses, called as soon as clients can connect.
type Announce = Box<dyn FnOnce(&[Address])>;

/// Starts the server, calls `announce` as soon as clients can connect, and runs until it is stopped. After an
/// upgrade nothing is announced, as the previous process has done so.
fn serve(
    config: Config,
    origin: Origin,
    environment: Environment,
    announce: Option<Announce>,
    from: From,
) -> Result<(), Failure> {
    let From { helper, trial, heir, resume } = from;
    let is_first = heir.is_none();
    let from = match heir {
        Some(heir) => StartFrom::Predecessor(Box::new(heir)),
        None if resume => StartFrom::Autosave,
        None => StartFrom::File,
    };
    let journal = surroundings::journal();
    let log = outputs::open_log(&config, journal)
        .map_err(|error| Failure::runtime(format_args!("error: the log: {error}")))?;
    let panics = Panics::default();
    panics.watch(log.clone());
    let bound = announce.filter(|_| is_first).map(announce_listening);
    let bound = bound.or_else(|| trial.as_ref().map(Trial::look));
    let prepared = admin::prepare(&config, &origin, &log)?;
    let start = Start {
        config: config.clone(),
        origin,
        environment,
        log: log.clone(),
        streams: Streams { journal, terminals: surroundings::terminals() },
        panics,
        bound,
        build: Build { version: version::NUMBER, commit: version::COMMIT },
        open_store: Some(event_store::opener()),
        program: surroundings::program(),
        helper,
        also: reach(&config),
        from,
        manager: ServiceManager {
            notify_socket: surroundings::notify_socket(),
            activated: surroundings::activated(),
            watchdog: surroundings::watchdog(),
        },
        signals: true,
    };
    let mut server = Server::start(start).map_err(|error| start_failure(&error, &config))?;
    // This follows the start, so that the socket belongs to the user of the server.
    admin::add(&mut server, prepared, &config, &log)?;
    if let Some(trial) = trial {
        trial.show(&config)?;
        server.handle().stop();
    }
    // The server does not use this copy: free its memory.
    drop(config);
    match server.run().panicked {
        0 => Ok(()),
        1 => Err(Failure::runtime("error: a worker panicked, see above; please report it")),
        workers => Err(Failure::runtime(format_args!(
            "error: {workers} workers panicked, see above; please report it"
        ))),
    }
}

/// Passes the addresses on that the listeners have got.
fn announce_listening(announce: Announce) -> Bound {
    Box::new(|listening: &[(String, Address)]| {
        let addresses: Vec<Address> = listening.iter().map(|(_, address)| address.clone()).collect();
        announce(&addresses);
    })
}

/// The files and sockets that the sandbox must leave open, besides those of the data plane: of the log store, of
/// libraries, and of the service manager.
fn reach(config: &Config) -> Reach {
    let mut reach = event_store::reach(config);
    reach.files.extend(surroundings::of_libraries());
    reach.sockets = surroundings::runtime_directories();
    reach.abstract_sockets = surroundings::notify_socket().is_some_and(|name| notify::is_abstract(&name));
    reach
}

/// Failure to start: a usage failure if the configuration does not fit the machine, else one at run time.
fn start_failure(error: &offramp_process::Error, config: &Config) -> Failure {
    let lines: Vec<String> = error.findings().iter().map(|finding| format!("error: {finding}")).collect();
    let why = lines.join("\n");
    let fits = check::disk::look(config, SystemTime::now()).errors.is_empty();
    if fits { Failure::Runtime(why) } else { Failure::Usage(why) }
}

/// Text that `to`, `serve` and `demo` print after the start. Certificates were read before; one that cannot
/// be read now is left out.
fn introduction(what: String, service: ServiceMode, addresses: &[Address], config: &Config) -> String {
    let mut names = Vec::new();
    let mut origin = match config.certificates.is_empty() {
        true => banner::BannerCertificate::PlainText,
        false => banner::BannerCertificate::LocalCa(config.process.state_dir.clone()),
    };
    for certificate in &config.certificates {
        origin = match &certificate.source {
            CertificateSource::Files { cert, key, .. } => {
                names.extend(names_of(&cert.path, key.as_ref().map(|key| key.path.as_path())));
                banner::BannerCertificate::File(cert.path.clone())
            }
            // Unreachable: no command line has a directory of certificates.
            CertificateSource::Directory { path } => banner::BannerCertificate::File(path.path.clone()),
            CertificateSource::Acme(acme) => {
                names.extend(acme.names.iter().cloned().map(CertificateName::Host));
                let asked: Vec<&str> = acme.authorities.iter().map(Name::as_str).collect();
                banner::BannerCertificate::Authority(asked.join(" or "))
            }
            CertificateSource::Local { names: local } => {
                names.extend_from_slice(local);
                let authority =
                    ca::open(&config.process.state_dir).map(|authority| authority.certificate_path());
                banner::BannerCertificate::LocalCa(
                    authority.unwrap_or_else(|_| config.process.state_dir.clone()),
                )
            }
        };
    }
    Banner { what, addresses, service, names, origin }.text()
}

/// Names of a certificate that clients can request.
fn names_of(cert: &Path, key: Option<&Path>) -> Vec<CertificateName> {
    let Ok(loaded) = offramp_certs::file::load(cert, key, SystemTime::now()) else { return Vec::new() };
    let dns = loaded.certificate.names.iter().filter_map(|name| name.to_string().parse().ok());
    let addresses = loaded.certificate.addresses.iter().copied().map(CertificateName::Ip);
    dns.chain(addresses).collect()
}
