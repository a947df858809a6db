//! Closed-loop exchanges on kept connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::load::conn::Conn;
use crate::load::{Gate, Tally, join, tls};
use crate::protocol::{LoadResult, LoadSpec, Work};

/// Runs `Work::Relay`.
///
/// # Errors
/// When not every connection could be made.
pub(crate) async fn run(spec: &LoadSpec, gate: &mut Gate) -> Result<LoadResult> {
    let Work::Relay { connections, request, response, seconds, warmup } = spec.work else {
        return Err(Error::Measure("not a relay load".into()));
    };
    let mut conns = open(spec, connections).await?;
    let request: Arc<[u8]> = vec![b'q'; request].into();
    if warmup > 0.0 {
        let (back, tally) = exchange(conns, &request, response, warmup).await?;
        if let Some(error) = tally.first_error {
            return Err(Error::Measure(format!("while warming up: {error}")));
        }
        conns = back;
    }
    gate.pass().await?;
    let start = Instant::now();
    let (conns, tally) = exchange(conns, &request, response, seconds).await?;
    let result = tally.result(start);
    drop(conns);
    Ok(result)
}

/// Makes `count` connections, at most 64 at a time.
///
/// # Errors
/// When one of them fails.
pub(crate) async fn open(spec: &LoadSpec, count: usize) -> Result<Vec<Conn>> {
    const AT_ONCE: usize = 64;
    let config = tls::client(spec, None)?;
    let target = spec.target;
    let mut conns = Vec::with_capacity(count);
    while conns.len() < count {
        let mut tasks = JoinSet::new();
        for _ in 0..AT_ONCE.min(count - conns.len()) {
            let config = Arc::clone(&config);
            tasks.spawn(async move { Conn::connect(target, &config).await });
        }
        for conn in join(tasks).await? {
            conns.push(conn?);
        }
    }
    Ok(conns)
}

/// Exchanges on all connections until `seconds` are over; gives back those that still work.
async fn exchange(
    conns: Vec<Conn>,
    request: &Arc<[u8]>,
    response: usize,
    seconds: f64,
) -> Result<(Vec<Conn>, Tally)> {
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let mut tasks = JoinSet::new();
    for mut conn in conns {
        let request = Arc::clone(request);
        tasks.spawn(async move {
            let mut tally = Tally::new();
            let mut begin = Instant::now();
            while begin < deadline {
                if let Err(error) = conn.exchange(&request, response).await {
                    tally.failure(&error);
                    return (None, tally);
                }
                let end = Instant::now();
                tally.success(end - begin);
                begin = end;
            }
            (Some(conn), tally)
        });
    }
    let mut tally = Tally::new();
    let mut back = Vec::new();
    for (conn, part) in join(tasks).await? {
        back.extend(conn);
        tally.add(part);
    }
    Ok((back, tally))
}
