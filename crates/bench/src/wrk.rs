//! HTTP load by `wrk`, which measures it well; only its answer is read here.
//!
//! wrk waits for each answer before it asks again, so that its latencies are those of a closed loop.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::AsyncReadExt;

use crate::error::{Error, Result, write_file};
use crate::measure::cpu::CpuTime;
use crate::process::{Launch, Process, find_program};

/// What wrk is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) target: SocketAddr,
    pub(crate) tls: bool,
    /// Bytes of each request's body; 0: a GET.
    pub(crate) body: usize,
    pub(crate) connections: usize,
    /// wrk knows whole seconds only.
    pub(crate) seconds: u32,
}

/// What wrk saw; times in microseconds.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Answer {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    /// `mean`, `stdev`, `p50` … `max`.
    #[serde(flatten)]
    pub(crate) latency: BTreeMap<String, f64>,
    /// CPU seconds of wrk itself.
    #[serde(skip)]
    pub(crate) cpu: f64,
}

/// Runs wrk to its end.
///
/// # Errors
/// When it is missing, fails, or got no answer at all.
pub(crate) async fn run(order: Order, dir: &Path, cores: &[usize]) -> Result<Answer> {
    let program =
        find_program("wrk").ok_or_else(|| Error::Missing("wrk is not installed (package wrk)".to_owned()))?;
    let (script, settings) = (dir.join("echo.lua"), dir.join("openssl.cnf"));
    write_file(&script, include_str!("../apps/echo.lua"))?;
    write_file(&settings, SETTINGS)?;
    // With TLS by name, so that the name is in the ClientHello: some proxies choose by it.
    let url = if order.tls {
        format!("https://localhost:{}/", order.target.port())
    } else {
        format!("http://{}/", order.target)
    };
    let args = [
        "-t1".to_owned(),
        format!("-c{}", order.connections),
        format!("-d{}s", order.seconds),
        "--timeout".to_owned(),
        "10s".to_owned(),
        "-s".to_owned(),
        script.display().to_string(),
        url,
    ];
    let launch = Launch {
        name: "wrk".to_owned(),
        program,
        args: args.map(Into::into).into(),
        env: vec![
            ("BENCH_BODY".to_owned(), order.body.to_string()),
            ("OPENSSL_CONF".to_owned(), settings.display().to_string()),
        ],
        cores: cores.to_vec(),
        log: dir.join("wrk.log"),
        piped: true,
    };
    // Once wrk has been waited for, its CPU time is in the account of this process.
    let before = CpuTime::of_ended_children();
    let mut process = Process::start(&launch)?;
    let Some(mut output) = process.child.stdout.take() else { return Err(process.failed("has no output")) };
    let patience = Duration::from_secs(u64::from(order.seconds) + 30);
    let mut text = String::new();
    let read = tokio::time::timeout(patience, output.read_to_string(&mut text)).await;
    let _ = tokio::time::timeout(patience, process.child.wait()).await;
    let line = read.ok().and_then(|_| text.lines().rev().find(|line| line.starts_with('{')));
    let answer: Option<Answer> = line.and_then(|line| serde_json::from_str(line).ok());
    let mut answer = answer.ok_or_else(|| process.failed("gave no result"))?;
    answer.cpu = CpuTime::of_ended_children() - before;
    if answer.requests == 0 {
        return Err(process.failed("got no answer to any request"));
    }
    Ok(answer)
}

/// The same version, suite and group for every server that wrk talks to.
const SETTINGS: &str = "\
openssl_conf = all
[all]
ssl_conf = programs
[programs]
system_default = tls
[tls]
MinProtocol = TLSv1.3
Ciphersuites = TLS_AES_128_GCM_SHA256
Groups = X25519
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_script_is_read() {
        let line = r#"{"requests":12,"errors":1,"seconds":1.5,"mean":2.5,"stdev":1,"p50":2,"p90":3,"p99":4,"p999":5,"max":6}"#;
        let answer: Answer = serde_json::from_str(line).unwrap();
        assert_eq!((answer.requests, answer.errors, answer.seconds), (12, 1, 1.5));
        assert_eq!(answer.latency["p999"], 5.0);
        // The script and this file must name the same figures.
        for name in answer.latency.keys().map(String::as_str).chain(["requests", "errors", "seconds"]) {
            assert!(include_str!("../apps/echo.lua").contains(&format!("\"{name}\":")), "{name}");
        }
    }
}
