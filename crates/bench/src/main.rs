//! `offramp-bench`: measures Offramp beside everything a user might pick instead, on this machine.
//!
//! What it is not: a test of correctness (those are with each crate), nor a claim about networks: all
//! traffic is on the loopback.

mod application;
mod args;
mod backend;
mod campaign;
mod compare;
mod contestant;
mod error;
mod gate;
mod h2load;
mod helper;
mod load;
mod machine;
mod measure;
mod metrics;
mod network;
mod pki;
mod process;
mod progress;
mod protocol;
mod report;
mod run;
mod scenario;
mod stats;
mod web;
mod wrk;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::error::{Error, Result};
use crate::gate::Gates;
use crate::report::Summary;

fn main() -> ExitCode {
    match run_command(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("offramp-bench: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run_command(command: &Command) -> Result<()> {
    match command {
        Command::Run(args) => {
            // First of all: this may become another process.
            let network = network::settle(args)?;
            runtime()?.block_on(run::run(args, network))
        }
        Command::Compare { a, b } => {
            print!("{}", compare::table(&Summary::read(a)?, &Summary::read(b)?));
            Ok(())
        }
        Command::Gate { run, gates, bounds } => {
            let gates = Gates::parse(&error::read_text(gates)?)?;
            let dir = run.clone().map_or_else(run::latest, Ok)?;
            gate::conclude(&gates.judge(&Summary::read(&dir)?, *bounds))
        }
        Command::List => {
            list();
            Ok(())
        }
        Command::Enter { congestion, keep, program } => {
            network::namespace::prepare(congestion, keep, program)
        }
        Command::Backend => runtime()?.block_on(backend::main()),
        Command::Load => runtime()?.block_on(load::main()),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("starting the runtime", e))
}

fn list() {
    println!("scenarios (* in the short selection):");
    for scenario in scenario::SCENARIOS {
        let mark = if scenario.short { '*' } else { ' ' };
        println!("  {mark} {:<18} {}", scenario.name, scenario.what);
    }
    println!("contestants:");
    for peer in contestant::peers::PEERS {
        let given = if peer.name == "offramp" { run::offramp(None) } else { None };
        match contestant::Contestant::find(peer, given.as_deref(), Path::new(args::NEXT)) {
            Ok(found) => println!("    {:<18} {}; {}", peer.name, peer.what, found.version),
            Err(error) => println!("    {:<18} {}; {error}", peer.name, peer.what),
        }
    }
}
