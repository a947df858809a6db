//! The command line: one declaration, from which parsing, `--help`, man page and completions follow.
//!
//! Values are parsed into their types at once, so a wrong one is refused with advice before anything happens.
//! Parsing has no side effects.
//!
//! Doc comments on arguments and subcommands are the text of `--help`.

pub(crate) mod bench;
pub(crate) mod ca;
pub(crate) mod cert;
pub(crate) mod compare;
pub(crate) mod ctl;
pub(crate) mod import;
pub(crate) mod logs;
pub(crate) mod notify;
pub(crate) mod order;
#[cfg(test)]
mod reference;
pub(crate) mod setup;
pub(crate) mod top;
pub(crate) mod ui;
pub(crate) mod why;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use offramp_config::model::{CertificateName, DirectoryUrl, StoreUrl, TlsName};

use crate::listen::ListenArgument;
use crate::target::ServerTarget;
use crate::{help, target, version};

/// Arguments of the program.
#[derive(Debug, Parser)]
#[command(
    name = "offramp",
    version = version::NUMBER,
    long_version = version::LONG,
    about = "Terminates TLS for any application",
    long_about = "Terminates TLS for any application.\n\n\
        Clients speak TLS to Offramp. It decrypts the bytes, forwards them to an application over a Unix \
        socket or TCP, and encrypts the response. The application needs no TLS code. Offramp uses every core.",
    after_long_help = help::text(),
    after_help = "offramp --help shows more: examples, exit codes, signals, environment, files.",
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses the arguments of this process; prints help or an error and exits where [`Parser::parse`] does.
    pub(crate) fn of_process() -> Self {
        Self::of(std::env::args_os()).unwrap_or_else(Self::parse)
    }

    /// Parses a well-formed line of a command that serves; `None` leaves everything else to the whole declaration.
    ///
    /// The declarations of all other commands are 600 KB of code and text, which would stay in the memory of a
    /// process that runs for months.
    fn of(line: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let command = match ServingLine::try_parse_from(line).ok()?.command {
            ServingCommand::Run(run) => Command::Run(run),
            ServingCommand::To(to) => Command::To(to),
            ServingCommand::Serve(serve) => Command::Serve(serve),
        };
        Some(Self { command })
    }
}

/// The command line of the commands that serve until they are stopped.
#[derive(Debug, Parser)]
#[command(name = "offramp", disable_help_subcommand = true)]
struct ServingLine {
    #[command(subcommand)]
    command: ServingCommand,
}

/// Commands that serve until they are stopped, declared as in [`Command`].
#[derive(Debug, Subcommand)]
enum ServingCommand {
    Run(Run),
    To(To),
    Serve(Serve),
}

/// Subcommands, one variant each.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put TLS in front of one application, without a configuration file
    ///
    /// The local CA issues the certificate (see `offramp ca`), unless --cert names one. Offramp relays the bytes of
    /// any protocol and writes one event per connection to standard output: text on a terminal, else JSON. With
    /// --http it writes one per request. Only this machine can connect, unless --public or an address after
    /// --listen admits others.
    To(To),
    /// Serve the files of a directory over https://localhost:8443, without a configuration file
    ///
    /// Over HTTP/1.1 and HTTP/2, with conditional requests and ranges. A directory without index.html is listed. Nothing outside of the directory is served, and
    /// no name that begins with a dot. The local CA issues the certificate (see `offramp ca`), unless --cert or --acme
    /// says otherwise. Only this machine can connect, unless --public or an address after --listen admits others.
    Serve(Serve),
    /// Run with a configuration file
    ///
    /// SIGTERM and SIGINT stop it. SIGHUP makes it read the file and all certificates again.
    Run(Run),
    /// Report every mistake in a configuration
    ///
    /// Reads the files that it names, as `run` does, but does not listen. The exit code is 0 without mistakes, else 2.
    Check(Check),
    /// Lay out a configuration in the canonical form
    ///
    /// Prints the text with one blank line between sections, one space around `=`, double quotes, and arrays that are
    /// divided at 100 columns. Comments, the order and the meaning stay. A file that it includes is laid out when it is
    /// named. A file that is no TOML is left as it is, and the exit code is 2.
    Fmt(Fmt),
    /// Turn the configuration of another proxy into one of Offramp
    ///
    /// Reads an nginx.conf with all that it includes, a haproxy.cfg or a hitch.conf, and prints a configuration that passes
    /// `check`, with the file and the line that each piece came from. The report goes to standard error: every directive is
    /// taken, changed (how) or not taken (why, and what to do). The exit code is 1 if one was not taken, unless --partial is
    /// given. Nothing else is changed.
    Import(import::ImportArguments),
    /// Send recorded requests to an old server and a new one, and report how the answers differ
    ///
    /// Takes requests from an access log, the log store or a HAR file, and sends each to both sides: only GET, HEAD and OPTIONS
    /// unless --methods names others, and only to this machine unless --remote names another. Where two answers differ, both sides
    /// are asked once more, so that what differs each time is not taken for a difference. Redirects are not followed. The report
    /// ends with a verdict; the exit code is 0 if all answers are the same, 1 if some differ, and 2 if they could not be compared.
    Compare(Box<compare::CompareArguments>),
    /// Print the JSON Schema of the configuration, for editors
    ///
    /// offramp schema > offramp.schema.json
    Schema,
    /// Serve a built-in application over https://localhost:8443
    ///
    /// It has a page that shows what an application behind Offramp sees, /hello, POST /echo, and
    /// /large?bytes=N. Ctrl-C stops it.
    Demo(Demo),
    /// Set this machine up: configuration, user and service
    ///
    /// Asks for the name of the site, the application and an e-mail address, or takes them as options. Checks ports, DNS, the
    /// firewall and the application, and tells all problems at once. Then it writes the configuration, creates the user
    /// `offramp`, installs the unit of systemd and starts it. What is there already stays. --undo takes exactly that back. Without
    /// root it prints the commands.
    Setup(Box<setup::SetupArguments>),
    /// Show the certificate of the local CA and how to trust it; have this machine trust it
    ///
    /// Creates the CA if there is none.
    Ca(ca::Ca),
    /// List certificates, say what is wrong with one, order or renew one
    Cert(cert::Cert),
    /// See and change the running Offramp
    ///
    /// It asks the admin interface of the Offramp that runs with this configuration: by default the Unix socket
    /// admin.sock in its state directory, which root and the user of Offramp may use.
    Ctl(ctl::Ctl),
    /// Open the page of the running Offramp in a browser
    ///
    /// Listens on this machine alone, passes requests of the page on to the admin interface, and opens a link that is good
    /// once and for a minute. It ends when the page was closed for a minute, or by Ctrl-C. Only the user that has started it,
    /// and root, can use the page.
    Ui(ui::Ui),
    /// Watch the running Offramp in this terminal
    ///
    /// Rates, latencies, and tables of hosts, routes, servers, clients, connections, causes of errors, and requests. Servers
    /// can be drained and connections closed, after a question. The key ? lists all keys. It asks the admin interface, as
    /// `offramp ctl` does. --once prints one reading instead.
    Top(top::TopArguments),
    /// Say why: why this status, this route, this refusal
    ///
    /// Asks the running Offramp, and prints one sentence, the evidence with its sources, and what to do. Where no Offramp answers, the
    /// way of a URL is told from the configuration file.
    Why(why::Why),
    /// Measure an application alone and behind Offramp
    ///
    /// Starts an Offramp in front of the application, and asks both in turns for the same, at a fixed rate over kept
    /// connections. Each request is timed from the moment at which it was due, so that pauses are not left out. The result has
    /// the percentiles of both, the CPU time, and a sentence.
    Bench(bench::Bench),
    /// Try the receivers of notifications
    ///
    /// The running Offramp sends the messages: its configuration, its sandbox and its network are tried, too.
    Notify(notify::Notify),
    /// Query the log store: who, what, how much; import access logs into it
    ///
    /// The store is that of `[log_store]` in the configuration, which `offramp run` writes to, or any other
    /// that --store names.
    Logs(logs::Logs),
    /// Read a password, and print the line of a user for `basic_auth`
    ///
    /// On a terminal the password is asked for twice and not shown; else it is one line of standard input. Append what is
    /// printed to the file: offramp password anna >> /etc/offramp/users
    Password(Password),
    /// Print version, commit and build of this program
    Version,
    /// Print completions for a shell
    ///
    /// For bash: offramp completions bash > ~/.local/share/bash-completion/completions/offramp
    Completions {
        /// The shell that completes commands
        shell: Shell,
    },
    /// Print a man page
    ///
    /// To read it: offramp man | man -l -
    Man {
        /// The page: of the program, or of the configuration file
        #[arg(default_value = "offramp")]
        page: ManPage,
    },
}

/// A page of `offramp man`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ManPage {
    /// offramp(1): commands and options
    Offramp,
    /// offramp.toml(5): every key of the configuration
    #[value(name = "offramp.toml")]
    Configuration,
}

/// Arguments of `offramp password`.
#[derive(Debug, Args)]
pub(crate) struct Password {
    /// The name of the user
    pub(crate) name: String,
}

/// Arguments of `offramp to`.
#[derive(Debug, Args)]
pub(crate) struct To {
    /// The application: 127.0.0.1:3000, localhost:3000, unix:/run/app.sock, or a port of 127.0.0.1; one that speaks
    /// TLS itself is tls://host:port, and PostgreSQL with ssl = on is postgres+tls://host:port
    #[arg(value_parser = target::target)]
    pub(crate) target: ServerTarget,
    #[command(flatten)]
    pub(crate) listening: ListenOptions,
    #[command(flatten)]
    pub(crate) identity: CertificateOptions,
    /// Listen in plain text: with a TARGET such as tls://host:port, a tunnel for programs without TLS
    #[arg(long, conflicts_with_all = ["name", "cert"])]
    pub(crate) no_tls: bool,
    /// The authorities that the certificate of tls://host:port is checked against, in PEM [default: the system's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) server_ca: Option<PathBuf>,
    /// The name that the certificate of tls://host:port must be valid for [default: its host]
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<TlsName>,
    /// Speak HTTP: HTTP/1.1 and HTTP/2 to clients, HTTP/1.1 to the application. The fields Forwarded and
    /// X-Forwarded-For, -Proto, -Host and -Port describe each client to the application
    #[arg(long)]
    pub(crate) http: bool,
    /// Describe each client to the application in a PROXY protocol header, which it must expect
    #[arg(long, value_name = "VERSION")]
    pub(crate) send_proxy: Option<ProxyProtocolVersion>,
    /// Keep events in a store too, for `offramp logs --store URL`: sqlite:/path or postgres://user@host/database
    #[arg(long, value_name = "URL", value_parser = target::store)]
    pub(crate) log_store: Option<StoreUrl>,
    /// Worker threads, 1 to 1024 [default: one per core that the process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,
    /// The directory of the local CA [default: the default state_dir, see offramp --help]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Log at level debug, and show all details of each connection or request
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Arguments of `offramp serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The directory with the files
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) listening: ListenOptions,
    #[command(flatten)]
    pub(crate) identity: CertificateOptions,
    /// The file that is served where there is no other, such as /index.html: for single-page applications
    #[arg(long, value_name = "PATH", value_parser = target::fallback)]
    pub(crate) fallback: Option<String>,
    /// Refuse directories without an index.html, instead of listing what they have
    #[arg(long)]
    pub(crate) no_listing: bool,
    /// Serve hidden files and directories too: those with a name that begins with a dot
    #[arg(long)]
    pub(crate) hidden: bool,
    /// Keep events in a store too, for `offramp logs --store URL`: sqlite:/path or postgres://user@host/database
    #[arg(long, value_name = "URL", value_parser = target::store)]
    pub(crate) log_store: Option<StoreUrl>,
    /// Worker threads, 1 to 1024 [default: one per core that the process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,
    /// The directory of the local CA [default: the default state_dir, see offramp --help]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Log at level debug, and show all details of each request
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Certificate options of `to` and `serve`.
#[derive(Debug, Args)]
pub(crate) struct CertificateOptions {
    /// A host name or address for the certificate; may be repeated [default: localhost, 127.0.0.1, ::1]
    #[arg(long, short, value_name = "NAME", conflicts_with = "cert")]
    pub(crate) name: Vec<CertificateName>,
    /// Have the certificate issued by Let's Encrypt, and agree to its terms of service; the address is for the account
    ///
    /// The names of --name must lead to this machine. Unless --listen says otherwise, Offramp listens on port 443 of every
    /// address, and on port 80, if it may, to send browsers to https. Until the certificate is issued, clients get one
    /// from the local CA.
    #[arg(long, value_name = "EMAIL", requires = "name", conflicts_with = "cert", value_parser = target::email)]
    pub(crate) acme: Option<String>,
    /// With --acme: the directory of another authority
    #[arg(long, value_name = "URL", requires = "acme", value_parser = target::directory)]
    pub(crate) acme_directory: Option<DirectoryUrl>,
    /// With --acme-directory: the authorities in PEM that its API is checked against [default: the system's]
    #[arg(long, value_name = "FILE", requires = "acme_directory", value_hint = ValueHint::FilePath)]
    pub(crate) acme_ca: Option<PathBuf>,
    /// A certificate chain in PEM, instead of one from the local CA; its key may be in the same file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cert: Option<PathBuf>,
    /// The key of --cert in PEM
    #[arg(long, value_name = "FILE", requires = "cert", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<PathBuf>,
}

/// Listener options of `to`, `serve` and `demo`.
// The help shows addresses as they are typed, without the marks of code; they are no links.
#[allow(rustdoc::broken_intra_doc_links)]
#[derive(Debug, Args)]
pub(crate) struct ListenOptions {
    /// Where to listen: a port, an address and a port, or unix: and a path
    ///
    /// A port alone (8443, :8443 or localhost:8443) is open to this machine only: 127.0.0.1 and, with IPv6, [::1]. An
    /// address such as 192.0.2.7:443 or [::]:443 is open to everyone who can reach it; [::] is every address of this
    /// machine, including IPv4. Port 0 is any free port.
    #[arg(long, short, value_name = "ADDR", default_value = DEFAULT_LISTEN, value_parser = ListenArgument::parse)]
    pub(crate) listen: ListenArgument,
    /// Listen on every address of this machine, so that other machines can connect
    #[arg(long)]
    pub(crate) public: bool,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProxyProtocolVersion {
    /// One line of text with the addresses
    V1,
    /// Binary; also has ALPN, server name and the negotiated TLS parameters
    V2,
}

/// Arguments of `offramp run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Start from the configuration that was in force when Offramp ended, by a crash or otherwise
    ///
    /// It is `running.toml` in state_dir, which has the changes that were made by `offramp ctl` without --persist. The
    /// configuration file is used instead if running.toml is missing, damaged or not valid. If the file was changed since,
    /// the changes are made to it as it is now, as far as they fit. The log says which one is used, and why.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Only try what the sandbox should refuse, with the files of this directory, and print what came of it
    #[arg(long, hide = true, value_name = "DIRECTORY")]
    pub(crate) sandbox_trial: Option<PathBuf>,
}

/// Arguments of `offramp check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Print the effective configuration with every default
    #[arg(long)]
    pub(crate) print: bool,
}

/// Arguments of `offramp fmt`.
#[derive(Debug, Args)]
pub(crate) struct Fmt {
    /// The files, or - for standard input [default: ./offramp.toml, else /etc/offramp/offramp.toml]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Write the text to the file, instead of printing it
    #[arg(long, short = 'w', conflicts_with_all = ["diff", "check"])]
    pub(crate) overwrite: bool,
    /// Print what would change
    #[arg(long, short)]
    pub(crate) diff: bool,
    /// Print no text; name the first line that would change, and exit with 1
    #[arg(long)]
    pub(crate) check: bool,
}

/// Option for the configuration file.
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// The configuration [default: ./offramp.toml, else /etc/offramp/offramp.toml]
    #[arg(long = "config", short = 'c', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) path: Option<PathBuf>,
}

/// Arguments of `offramp demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    #[command(flatten)]
    pub(crate) listening: ListenOptions,
    /// The directory of the local CA [default: the default state_dir, see offramp --help]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Log at level debug, and show all details of each connection
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Default of `--listen`: unprivileged, and for this machine only, since others may connect only if the user
/// says so.
const DEFAULT_LISTEN: &str = "localhost:8443";

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::{Cli, Command, ListenArgument};

    #[test]
    fn the_declaration_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn to_has_its_defaults() {
        let Command::To(to) = Cli::parse_from(["offramp", "to", ":3000"]).command else { unreachable!() };
        assert_eq!(to.target.to_string(), "127.0.0.1:3000");
        assert_eq!(to.listening.listen, ListenArgument::DEFAULT);
        assert!(
            !to.http
                && !to.listening.public
                && !to.verbose
                && to.identity.name.is_empty()
                && to.identity.cert.is_none()
                && to.send_proxy.is_none()
                && to.workers.is_none()
        );
    }

    #[test]
    fn commands_that_serve_are_parsed_alike_without_the_others() {
        for line in [
            "offramp run",
            "offramp run -c /etc/offramp/offramp.toml --resume",
            "offramp to 3000 --http --listen :8443",
            "offramp serve . --public --name a.example --name b.example",
        ] {
            let alone = Cli::of(line.split(' ').map(Into::into)).map(|cli| format!("{cli:?}"));
            assert_eq!(alone, Some(format!("{:?}", Cli::parse_from(line.split(' ')))), "{line}");
        }
        for line in [
            "offramp",
            "offramp run --help",
            "offramp --version",
            "offramp to",
            "offramp check",
            "offramp rum",
        ] {
            assert!(Cli::of(line.split(' ').map(Into::into)).is_none(), "{line}");
        }
    }

    #[test]
    fn contradictory_arguments_are_refused() {
        for line in [
            "offramp",
            "offramp to",
            "offramp to 3000 --key k.pem",
            "offramp to 3000 --cert c.pem --name a.example",
            "offramp to 3000 --workers 0",
            "offramp to 3000 --workers 1025",
            "offramp to 3000 --send-proxy v3",
            "offramp to 3000 --listen 127.0.0.1",
            "offramp to 3000 4000",
            "offramp serve",
            "offramp serve . --key k.pem",
            "offramp serve . --http",
            "offramp serve . --fallback ../x",
            "offramp completions basic",
        ] {
            assert_eq!(Cli::try_parse_from(line.split(' ')).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
