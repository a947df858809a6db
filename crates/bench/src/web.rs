//! HTTP load by the field's own tools, and what they have in common.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::AsyncReadExt;

use crate::error::Result;
use crate::measure::cpu::CpuTime;
use crate::process::{Launch, Process};
use crate::scenario::Web;
use crate::{h2load, wrk};

/// What is to be asked of a proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) load: Web,
    /// The protocol's name for ALPN, where the tool can be told.
    pub(crate) alpn: &'static str,
    pub(crate) connections: usize,
    /// The tools know whole seconds only.
    pub(crate) seconds: u32,
}

/// What a tool saw; times in microseconds.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Answer {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    /// `mean`, `stdev`, `max`, and percentiles `p50` … where the tool knows them.
    #[serde(flatten)]
    pub(crate) latency: BTreeMap<String, f64>,
    /// CPU seconds of the tool itself.
    #[serde(skip)]
    pub(crate) cpu: f64,
}

/// Has the order carried out by its tool.
///
/// # Errors
/// When the tool is missing, fails, or got no answer at all.
pub(crate) async fn run(order: Order, target: SocketAddr, dir: &Path, cores: &[usize]) -> Result<Answer> {
    let Order { load, alpn, connections, seconds } = order;
    let h2load = |load| h2load::Order { target, connections, load, alpn, seconds };
    match load {
        Web::Wrk { body } => {
            let order = wrk::Order { target, tls: true, body, files: None, connections, seconds };
            wrk::run(order, dir, cores).await
        }
        Web::Files(asked) => {
            let order = wrk::Order { target, tls: true, body: 0, files: Some(asked), connections, seconds };
            wrk::run(order, dir, cores).await
        }
        Web::Grpc { streams, message } => {
            h2load::run(h2load(h2load::Load::Grpc { streams, message }), dir, cores).await
        }
        Web::H2load { streams } => h2load::run(h2load(h2load::Load::Streams(streams)), dir, cores).await,
        Web::Rated { per_connection } => {
            h2load::run(h2load(h2load::Load::Rate(per_connection)), dir, cores).await
        }
    }
}

/// Starts a tool that ends by itself after `seconds`, and has `read` understand what it prints.
///
/// # Errors
/// When it fails, prints something else, or got no answer at all.
pub(crate) async fn call(launch: &Launch, seconds: u32, read: fn(&str) -> Option<Answer>) -> Result<Answer> {
    // Once the tool has been waited for, its CPU time is in the account of this process.
    let before = CpuTime::of_ended_children();
    let mut process = Process::start(launch)?;
    let Some(mut output) = process.child.stdout.take() else { return Err(process.failed("has no output")) };
    let patience = Duration::from_secs(u64::from(seconds) + 30);
    let mut text = String::new();
    let printed = tokio::time::timeout(patience, output.read_to_string(&mut text)).await;
    // One that has hung is not waited for twice: it is killed when it is dropped.
    if printed.is_ok() {
        let _ = tokio::time::timeout(patience, process.child.wait()).await;
    }
    let answer = printed.ok().and_then(|_| read(&text));
    let mut answer = answer.ok_or_else(|| process.failed("gave no result"))?;
    answer.cpu = CpuTime::of_ended_children() - before;
    if answer.requests == 0 {
        return Err(process.failed("got no answer to any request"));
    }
    Ok(answer)
}

/// For OpenSSL: the same version, suite and group for every server that a tool talks to.
pub(crate) const SETTINGS: &str = "\
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
