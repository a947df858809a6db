//! The table of malformed input from the command line.
//!
//! `cargo run -p offramp-testkit --example verdicts` prints what plain rustls does in each case, and how
//! long it takes. With an address behind it (`-- 127.0.0.1:8443`) it compares the TLS-terminating echo
//! server there with plain rustls, and fails where that server falls short.

use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Instant;

use offramp_testkit::Error;
use offramp_testkit::ca::{Ca, Key, Leaf};
use offramp_testkit::cases::{Target, compare_all, run, table};
use offramp_testkit::oracle::Oracle;
use offramp_testkit::process::temp_dir;

fn main() -> Result<ExitCode, Error> {
    let directory = temp_dir();
    let ca = Ca::new(directory.path())?;
    let oracle = Oracle::start(&ca.issue("oracle", &Leaf::server(Key::P256, &["localhost"]))?)?;
    let Some(argument) = std::env::args().nth(1) else {
        print_verdicts(oracle.address());
        return Ok(ExitCode::SUCCESS);
    };
    let address: SocketAddr = argument.parse().map_err(|_| Error::Setup("not an address and port".into()))?;
    let differences = compare_all(address, oracle.address());
    differences.iter().for_each(|difference| println!("{difference}"));
    println!("{} differences", differences.len());
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_verdicts(address: SocketAddr) {
    for case in table() {
        for suite in case.suites() {
            let start = Instant::now();
            let outcome = run(&case, suite, Target::Oracle, || TcpStream::connect(address))
                .map_or_else(|error| error.to_string(), |verdict| format!("{:?}", verdict.outcome()));
            let (took, note) = (start.elapsed().as_millis(), case.rustls.map_or("", |differs| differs.why));
            println!("{outcome:14} {took:5} ms  {:?} {:?}  {case:?}  {note}", suite.version, suite.cipher);
        }
    }
}
