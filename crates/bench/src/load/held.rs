//! Connections that are held: idle ones, and ones that drip a byte now and then.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::load::conn::Conn;
use crate::load::relay::open;
use crate::load::{Gate, Tally, join};
use crate::protocol::{Exchange, LoadResult, LoadSpec, Work};

/// Runs `Work::Idle`: `ready` when all connections have made their exchange and fell silent; at `go` each
/// makes one more, which shows that the proxy kept them all.
///
/// # Errors
/// When not every connection could be made.
pub(crate) async fn idle(spec: &LoadSpec, gate: &mut Gate) -> Result<LoadResult> {
    let Work::Idle { connections, exchange } = spec.work else {
        return Err(Error::Measure("not an idle load".into()));
    };
    let request = match exchange {
        Exchange::Bytes { request, .. } => vec![b'q'; request],
        Exchange::Get => GET.to_vec(),
    };
    let mut conns = open(spec, connections).await?;
    for conn in &mut conns {
        ask(conn, &request, exchange).await?;
    }
    gate.pass().await?;
    let start = Instant::now();
    let mut tally = Tally::new();
    for conn in &mut conns {
        let begin = Instant::now();
        match ask(conn, &request, exchange).await {
            Ok(()) => tally.success(begin.elapsed()),
            Err(error) => tally.failure(&error),
        }
    }
    Ok(tally.result(start))
}

/// A request as a browser's simplest relative makes it.
const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

async fn ask(conn: &mut Conn, request: &[u8], exchange: Exchange) -> Result<()> {
    match exchange {
        Exchange::Bytes { response, .. } => conn.exchange(request, response).await,
        Exchange::Get => {
            conn.write(request).await?;
            conn.read_response().await
        }
    }
}

/// Runs `Work::Drip`: `ready` when all connections are there; at `go` they begin to drip, at the next word
/// they stop.
///
/// # Errors
/// When not every connection could be made.
pub(crate) async fn drip(spec: &LoadSpec, gate: &mut Gate) -> Result<LoadResult> {
    let Work::Drip { connections, interval } = spec.work else {
        return Err(Error::Measure("not a drip load".into()));
    };
    let conns = open(spec, connections).await?;
    gate.pass().await?;
    let start = Instant::now();
    let period = Duration::from_secs_f64(interval);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut tasks = JoinSet::new();
    for (index, mut conn) in conns.into_iter().enumerate() {
        let mut stopped = stopped.clone();
        // Spread over the interval, so that they do not all drip at once.
        let phase = period.mul_f64(fraction(index, connections));
        tasks.spawn(async move {
            let mut tally = Tally::new();
            let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + phase, period);
            loop {
                tokio::select! {
                    _ = stopped.changed() => return tally,
                    _ = ticks.tick() => {}
                }
                match conn.write(b"q").await {
                    Ok(()) => tally.units += 1,
                    Err(error) => {
                        tally.failure(&error);
                        return tally;
                    }
                }
            }
        });
    }
    gate.wait().await?;
    // The receivers live in the tasks; where none is left there is nothing to stop.
    let _ = stop.send(true);
    let mut tally = Tally::new();
    for part in join(tasks).await? {
        tally.add(part);
    }
    Ok(tally.result(start))
}

fn fraction(index: usize, of: usize) -> f64 {
    index as f64 / of.max(1) as f64
}
