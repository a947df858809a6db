//! The `offramp` program: the command line of the proxy, and the place where all crates are wired together.
//!
//! [`flags`] declares the command line. [`run`] dispatches a parsed command: `to`, `serve`, `demo` and `run`
//! build a configuration ([`single`], [`check`]) and start a server of `offramp_control`; the other commands
//! ([`cert`], [`ctl`], [`logs`]) do one thing and exit. A command returns a [`failure::Failure`], which
//! `main` prints and maps to an exit code. This crate is the only one that reads the environment
//! ([`surroundings`]) and writes to the terminal.
//!
//! Modules:
//!
//! - [`flags`]: the arguments of each command, declared with clap
//! - [`help`], [`man`]: the sections of `--help` beside the options, and the man page
//! - [`target`], [`listen`], [`measured_url`]: values of arguments: servers, listen addresses, an application to measure
//! - [`run`]: dispatch, start of a server, and the output of `to`, `serve` and `demo`
//! - [`single`]: the configuration of one application or directory, without a file
//! - [`banner`]: the text that `to`, `serve` and `demo` print once clients can connect
//! - [`demo`]: the application behind `offramp demo`
//! - [`check`]: search, reading and validation of the configuration file
//! - [`import`]: `offramp import`: configurations of other proxies
//! - [`fmt`]: `offramp fmt`: the layout of configurations
//! - [`admin`]: the admin interface of a running proxy
//! - [`event_store`], [`log_store`]: the log store of a running proxy, and of a `logs` command
//! - [`setup`]: `offramp setup`: configuration, user and service of a fresh machine, and back
//! - [`ca`]: `offramp ca`: the stores of this machine that trust the local CA
//! - [`steps`]: changes of a machine as data, for `setup` and `ca`
//! - [`cert`]: `offramp cert`: list, inspect, order and renew certificates
//! - [`ctl`]: `offramp ctl`: requests to the admin interface
//! - [`logs`]: `offramp logs`: import and queries
//! - [`notify`]: `offramp notify`: trials of the receivers of notifications
//! - [`password`]: `offramp password`: lines of a `basic_auth` file
//! - [`top`]: `offramp top`: what it does now, in a terminal
//! - [`ui`]: `offramp ui`: the page in a browser of this machine
//! - [`why`]: `offramp why`: questions about the running Offramp, answered in words
//! - [`mod@bench`]: `offramp bench`: an application alone and behind Offramp, measured
//! - [`compare`]: `offramp compare`: recorded requests to an old and a new server, and how their answers differ
//! - [`other_machine`]: confirmation of requests to other machines, for `bench` and `compare`
//! - [`surroundings`]: environment variables, standard streams, terminal
//! - [`trial`]: probes of the sandbox, for tests
//! - [`version`]: number, commit and build of the program
//! - [`failure`]: errors of commands, and their exit codes

mod admin;
mod banner;
mod bench;
mod ca;
mod cert;
mod check;
mod compare;
mod ctl;
mod demo;
mod event_store;
mod failure;
mod flags;
mod fmt;
mod hello_file;
mod help;
mod import;
mod listen;
mod log_store;
mod logs;
mod man;
mod measured_url;
mod notify;
mod other_machine;
mod password;
mod run;
mod setup;
mod single;
mod steps;
mod surroundings;
mod target;
mod text_table;
mod top;
mod trial;
mod ui;
mod version;
mod why;

use std::io::Write as _;

use offramp_net::process;

fn main() -> ! {
    process::return_large_blocks();
    match run::run(flags::Cli::of_process().command) {
        Ok(()) => process::end(0),
        Err(failure) => {
            // Standard error may be closed, or a pipe without a reader.
            let _ = writeln!(std::io::stderr(), "{failure}");
            process::end(failure.code())
        }
    }
}
