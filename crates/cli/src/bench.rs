//! `offramp bench`: an application alone and behind Offramp, measured in turns on this machine.
//!
//! Requests are sent at a fixed rate, whether or not earlier ones were answered (open loop), and each is timed from the moment at
//! which it was due: a pause of the application delays all requests of that pause, as it would delay their users.
//!
//! - `application`: the address of the application, from its URL
//! - `front`: the Offramp that is started in front of it
//! - `line`: connections of the load, in plain text or TLS
//! - `open_loop`: requests at a fixed rate, and their times
//! - `usage`: CPU time of processes
//! - `report`: the table, the sentence and JSON; `chart`: the picture

mod application;
mod chart;
mod front;
mod line;
mod open_loop;
mod report;
mod usage;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use application::Application;
use front::Front;
use line::{Dialler, Line};
use open_loop::LoopPlan;
use report::{Arrangement, BenchReport};
use usage::ProcessUsage;

use crate::failure::Failure;
use crate::flags::bench::Bench;
use crate::surroundings::{is_watched, print, say, say_over};

/// The time for the first answer of each arrangement.
const FIRST: Duration = Duration::from_secs(10);
/// The time of the trial that finds the rate.
const TRIAL: Duration = Duration::from_millis(700);
/// The highest rate that is chosen without being asked for, in requests a second: the load itself needs CPU time.
const MOST: f64 = 5000.0;

/// Measures, and prints the result.
///
/// # Errors
/// The application is on another machine and --remote does not name that, it does not answer, or no Offramp can be started.
pub(crate) fn run(arguments: &Bench) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::runtime(format_args!("error: cannot wait: {error}")))?;
    let report = runtime.block_on(async {
        tokio::select! {
            report = measure(arguments) => report,
            // The Offramp in front must not outlive this process.
            () = stopped() => Err(Failure::runtime("error: stopped before the end, so there is no result")),
        }
    });
    // A connection that hangs must not delay the end.
    runtime.shutdown_background();
    let report = report?;
    if let Some(file) = &arguments.svg {
        std::fs::write(file, chart::draw(&report)).map_err(|error| {
            Failure::runtime(format_args!("error: cannot write {}: {error}", file.display()))
        })?;
    }
    let text = if arguments.json { format!("{:#}\n", report.json()) } else { report.text() };
    print(text.as_bytes())?;
    match report.failure() {
        Some(failure) => Err(Failure::runtime(failure)),
        None => Ok(()),
    }
}

/// Waits for Ctrl-C, or another order to end.
async fn stopped() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
    let mut signals: Vec<Signal> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    poll_fn(|context| {
        let came = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
        if came { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn measure(arguments: &Bench) -> Result<BenchReport, Failure> {
    let app = Arc::new(Application::find(arguments).await?);
    let alone = app.dialler()?;
    let answer = first_answer(&alone, &app).await.map_err(|why| app.silent(&why))?;
    let pid = app.process();
    let front = Front::start(&app).await?;
    let behind = front.dialler(&app)?;
    let through = first_answer(&behind, &app).await;
    let through = through.map_err(|why| front.failed(&format_args!("behind Offramp: {why}")))?;
    if answer != through {
        say(&format!("note: alone the application answers {answer}, behind Offramp {through}"));
    }
    let connections = usize::from(arguments.connections);
    let rate = match arguments.rate {
        Some(rate) => f64::from(rate),
        None => {
            let slower =
                capacity(&alone, &app, connections).await.min(capacity(&behind, &app, connections).await);
            rounded((slower / 2.0).clamp(1.0, MOST))
        }
    };
    let plan = LoopPlan { rate, time: arguments.time, connections };
    let mut measured = [Arrangement::default(), Arrangement::default()];
    for round in 1..=arguments.rounds {
        for (arrangement, dialler) in measured.iter_mut().zip([&alone, &behind]) {
            if is_watched() {
                say_over(&format!("round {round} of {}, {rate} requests a second", arguments.rounds));
            }
            let own = ProcessUsage::of_this();
            let before = [pid.map(ProcessUsage::of_tree), Some(ProcessUsage::of_tree(front.pid()))];
            let times = open_loop::run(&plan, dialler, &app).await;
            let now = [pid.map(ProcessUsage::of_tree), Some(ProcessUsage::of_tree(front.pid()))];
            let [app_cpu, front_cpu] = [0, 1].map(|of| Some(now[of]?.since(before[of]?)));
            arrangement.add(&times, app_cpu, front_cpu, ProcessUsage::of_this().since(own));
        }
    }
    if is_watched() {
        say_over("");
    }
    drop(front);
    let [alone, behind] = measured;
    Ok(BenchReport { url: app.name(), plan, alone, behind, rounds: arguments.rounds, answer })
}

/// The status and the size of one answer, in words.
async fn first_answer(dialler: &Dialler, app: &Application) -> Result<String, String> {
    let answered = async {
        let mut line = Line::open(dialler).await?;
        let answer = line.ask(app).await?;
        Ok(format!("{} with {} bytes", answer.status, answer.bytes))
    };
    timeout(FIRST, answered).await.unwrap_or_else(|_| Err(format!("no answer within {} s", FIRST.as_secs())))
}

/// The requests a second that are answered when each connection asks as soon as it was answered.
async fn capacity(dialler: &Dialler, app: &Arc<Application>, connections: usize) -> f64 {
    let plan = LoopPlan { rate: f64::INFINITY, time: TRIAL, connections };
    let times = open_loop::run(&plan, dialler, app).await;
    times.answered() as f64 / TRIAL.as_secs_f64()
}

/// Two digits, so that a person can repeat it.
fn rounded(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.log10().floor() - 1.0).max(1.0);
    (rate / unit).floor() * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_two_digits() {
        let cases =
            [(1.0, 1.0), (7.3, 7.0), (99.9, 99.0), (123.0, 120.0), (4999.9, 4900.0), (5000.0, 5000.0)];
        for (rate, expected) in cases {
            assert_eq!(rounded(rate), expected, "{rate}");
        }
    }
}
