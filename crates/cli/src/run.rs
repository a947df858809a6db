//! The commands, wired together: the only place that knows every crate.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::CommandFactory as _;
use offramp_certs::local_ca::{LocalCa, trust_instructions};
use offramp_config::model::{
    CertificateName, CertificateSource, Mode, ProxyV2, SendProxy, ServerAddress, Workers,
};
use offramp_config::{Config, Environment};
use offramp_control::{Origin, Server, Start, outputs};
use offramp_net::Address;
use offramp_observe::Log;
use offramp_observe::prometheus::Build;

use crate::admin;
use crate::banner::{self, Banner};
use crate::demo::Demo;
use crate::failure::Failure;
use crate::flags::{self, Cli, Command};
use crate::single::{Single, local};
use crate::surroundings::{self, print, say};
use crate::{check, event_store, logs, man, target};

/// Does what the command line says.
///
/// # Errors
/// It could not be done; the failure has the text for the user and the exit code.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::To(arguments) => to(arguments),
        Command::Run(arguments) => from_file(arguments),
        Command::Check(arguments) => check::check(arguments),
        Command::Demo(arguments) => demo(arguments),
        Command::Ca(arguments) => ca(arguments),
        Command::Logs(arguments) => logs::run(arguments),
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

fn from_file(arguments: flags::Run) -> Result<(), Failure> {
    let environment = surroundings::environment();
    let path = check::find(arguments.file)?;
    let config = check::load(&path, &environment)?;
    // What it is to reload must not depend on where the process is then.
    let path = std::path::absolute(path).map_err(Failure::runtime)?;
    serve(config, Origin::File(path), environment, |_, _| Ok(()))
}

fn to(arguments: flags::To) -> Result<(), Failure> {
    let environment = surroundings::environment();
    let state_dir = arguments.state_dir.clone();
    let what = arguments.target.to_string();
    let missing = target::missing_socket(&arguments.target).map(Path::to_owned);
    let single = Single::to(arguments, surroundings::events()).map_err(Failure::usage)?;
    let config = kept_in(state_dir, single.config(&environment))?;
    serve(config, Origin::CommandLine, environment, |server, config| {
        say(&introduction(what, server, config)?);
        if let Some(path) = missing {
            say(&format!(
                "  There is nothing at {} yet: clients are refused until there is.\n",
                path.display()
            ));
        }
        Ok(())
    })
}

fn demo(arguments: flags::Demo) -> Result<(), Failure> {
    let environment = surroundings::environment();
    let demo = Demo::start()
        .map_err(|error| Failure::runtime(format_args!("error: cannot start the application: {error}")))?;
    let other = banner::another_port(&arguments.listen);
    let single = Single {
        server: ServerAddress::Unix(demo.socket()),
        certificate: local(&arguments.listen),
        listen: arguments.listen,
        mode: Mode::Tcp,
        send_proxy: Some(SendProxy::V2(ProxyV2::default())),
        workers: Workers::Auto,
        events: surroundings::events(),
        log_store: None,
    };
    let mut config = kept_in(arguments.state_dir, single.config(&environment))?;
    // The socket is this user's alone, and browsers keep connections open for nothing.
    config.user = None;
    config.limits.drain_timeout = Duration::from_secs(1);
    let served = serve(config, Origin::CommandLine, environment, |server, config| {
        say(&introduction("the demo's application; Ctrl-C ends it".to_owned(), server, config)?);
        Ok(())
    });
    served.map_err(|failure| match failure {
        Failure::Runtime(why) => {
            Failure::Runtime(format!("{why}\nTo listen elsewhere: offramp demo {other}"))
        }
        usage @ Failure::Usage(_) => usage,
    })
}

fn ca(arguments: flags::Ca) -> Result<(), Failure> {
    let environment = surroundings::environment();
    let config = match arguments.config {
        Some(path) => check::load(&path, &environment)?,
        None => kept_in(arguments.state_dir, Config::for_environment(&environment))?,
    };
    print(trust_instructions(&open_ca(&config.state_dir)?.certificate_path()).as_bytes())
}

/// The configuration with its state elsewhere, if that was asked for.
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

/// Starts the server, has `announce` say so, and runs until it is told to stop.
fn serve(
    config: Config,
    origin: Origin,
    environment: Environment,
    announce: impl FnOnce(&Server, &Config) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let journal = surroundings::journal();
    let (output, format, level) = outputs::log(&config.log, journal);
    let log = Log::open(output, format, level)
        .map_err(|error| Failure::runtime(format_args!("error: the log: {error}")))?;
    let start = Start {
        config: config.clone(),
        origin,
        environment,
        log: log.clone(),
        journal,
        build: Build { version: VERSION, commit: "" },
        notify_socket: surroundings::notify_socket(),
        open_store: Some(event_store::opener()),
        signals: true,
    };
    let server = Server::start(start).map_err(|error| not_started(&error, &config))?;
    // After the start, so that its socket belongs to the user that was switched to.
    let admin = admin::of(&config, &log)?;
    announce(&server, &config)?;
    // What the demo and the banner needed of it is not needed for days of running.
    drop(config);
    let exit = server.run();
    drop(admin);
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

/// What there is to say about the one application that is served.
fn introduction(what: String, server: &Server, config: &Config) -> Result<String, Failure> {
    let addresses: Vec<Address> = server.addresses().into_iter().map(|(_, address)| address).collect();
    let mut names = Vec::new();
    let mut origin = banner::Origin::LocalCa(config.state_dir.clone());
    for certificate in &config.certificates {
        origin = match &certificate.source {
            CertificateSource::Files { cert, key } => {
                names.extend(names_of(&cert.path, key.as_ref().map(|key| key.path.as_path()))?);
                banner::Origin::File(cert.path.clone())
            }
            CertificateSource::Local { names: local } => {
                names.extend_from_slice(local);
                banner::Origin::LocalCa(open_ca(&config.state_dir)?.certificate_path())
            }
        };
    }
    Ok(Banner { what, addresses: &addresses, names, origin }.text())
}

/// The names in a certificate, as far as clients can ask for them.
fn names_of(cert: &Path, key: Option<&Path>) -> Result<Vec<CertificateName>, Failure> {
    let loaded = offramp_certs::file::load(cert, key, SystemTime::now());
    let certificate = loaded.map_err(|error| Failure::runtime(format_args!("error: {error}")))?.certificate;
    let dns = certificate.names.iter().filter_map(|name| name.to_string().parse().ok());
    Ok(dns.chain(certificate.addresses.iter().copied().map(CertificateName::Ip)).collect())
}
