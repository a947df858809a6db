//! HTTP load by `wrk`, which measures it well; only its answer is read here.
//!
//! wrk waits for each answer before it asks again, so that its latencies are those of a closed loop.

use std::net::SocketAddr;
use std::path::Path;

use crate::error::{Error, Result, write_file};
use crate::process::{Launch, find_program};
use crate::scenario::Asked;
use crate::web::{Answer, SETTINGS, call};

/// What wrk is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) target: SocketAddr,
    pub(crate) tls: bool,
    /// Bytes of each request's body; 0: a GET.
    pub(crate) body: usize,
    /// Files to ask for in turn; none: the path `/`.
    pub(crate) files: Option<Asked>,
    pub(crate) connections: usize,
    /// wrk knows whole seconds only.
    pub(crate) seconds: u32,
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
            ("BENCH_PATH".to_owned(), order.files.map_or("", Asked::path).to_owned()),
            ("BENCH_PATHS".to_owned(), order.files.map_or(0, Asked::count).to_string()),
            ("BENCH_ENCODING".to_owned(), order.files.map_or("", Asked::encoding).to_owned()),
            ("OPENSSL_CONF".to_owned(), settings.display().to_string()),
        ],
        cores: cores.to_vec(),
        log: dir.join("wrk.log"),
        piped: true,
    };
    call(&launch, order.seconds, read).await
}

/// Reads the line of the script.
fn read(text: &str) -> Option<Answer> {
    let line = text.lines().rev().find(|line| line.starts_with('{'))?;
    serde_json::from_str(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_script_is_read() {
        let line = r#"{"requests":12,"errors":1,"seconds":1.5,"mean":2.5,"stdev":1,"p50":2,"p90":3,"p99":4,"p999":5,"max":6}"#;
        let answer = read(&format!("Running 1s test\n{line}\n")).unwrap();
        assert_eq!((answer.requests, answer.errors, answer.seconds), (12, 1, 1.5));
        assert_eq!(answer.latency["p999"], 5.0);
        // The script and this file must name the same figures.
        for name in answer.latency.keys().map(String::as_str).chain(["requests", "errors", "seconds"]) {
            assert!(include_str!("../apps/echo.lua").contains(&format!("\"{name}\":")), "{name}");
        }
    }
}
