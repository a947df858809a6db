//! `offramp`: terminates TLS for any application.

mod admin;
mod banner;
mod cert;
mod check;
mod ctl;
mod demo;
mod event_store;
mod failure;
mod flags;
mod help;
mod listen;
mod logs;
mod man;
mod password;
mod run;
mod single;
mod surroundings;
mod target;
mod trial;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    offramp_net::process::return_large_blocks();
    match run::run(flags::Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.code()
        }
    }
}
