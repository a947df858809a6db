//! Handshakes, full or resumed, with or without one exchange, each on a connection of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::load::conn::Fresh;
use crate::load::tls::{self, Stock};
use crate::load::{Gate, Tally, join};
use crate::protocol::{LoadResult, LoadSpec, Version, Work};

/// What each connection does.
#[derive(Clone)]
struct Plan {
    target: SocketAddr,
    config: Arc<ClientConfig>,
    /// Where tickets come from and go to, when sessions are resumed.
    stock: Option<Arc<Stock>>,
    /// Only TLS 1.3 sends tickets after the handshake, and uses up one per connection.
    await_ticket: bool,
    exchange: Option<(usize, usize)>,
    /// From the start of one connection of a loop to the start of its next.
    every: Duration,
}

/// Runs `Work::Handshake`.
///
/// # Errors
/// When the first handshakes fail, or sessions are to be resumed and the proxy does not.
pub(crate) async fn run(spec: &LoadSpec, gate: &mut Gate) -> Result<LoadResult> {
    let Work::Handshake { concurrency, resumed, exchange, every, seconds, warmup } = spec.work else {
        return Err(Error::Measure("not a handshake load".into()));
    };
    let stock = resumed.then(|| Arc::new(Stock::default()));
    let plan = Plan {
        target: spec.target,
        config: tls::client(spec, stock.clone())?,
        stock,
        await_ticket: resumed && spec.version == Version::Tls13,
        exchange,
        every: Duration::from_secs_f64(every),
    };
    plan.fill(concurrency).await?;
    let warm = plan.many(concurrency, warmup.max(0.05)).await?;
    if let Some(error) = warm.first_error {
        return Err(Error::Measure(format!("while warming up: {error}")));
    }
    if resumed && warm.resumed * 10 < warm.units * 9 {
        let (resumed, units) = (warm.resumed, warm.units);
        return Err(Error::Measure(format!("the proxy resumed only {resumed} of {units} sessions")));
    }
    gate.pass().await?;
    let start = Instant::now();
    let tally = plan.many(concurrency, seconds).await?;
    Ok(tally.result(start))
}

impl Plan {
    /// A ticket for each loop that will want one at the same time; each that is used brings another.
    async fn fill(&self, concurrency: usize) -> Result<()> {
        if let Some(stock) = &self.stock {
            stock.close(true);
        }
        for _ in 0..concurrency {
            self.once().await?;
        }
        if let Some(stock) = &self.stock {
            stock.close(false);
        }
        Ok(())
    }

    /// One connection from SYN to FIN; whether it resumed a session.
    async fn once(&self) -> Result<bool> {
        let mut fresh = Fresh::connect(self.target, &self.config).await?;
        let resumed = fresh.resumed();
        if let (Some(stock), true) = (&self.stock, self.await_ticket) {
            fresh.ticket(stock).await?;
        }
        match self.exchange {
            None => fresh.close().await?,
            Some((request, response)) => {
                let mut conn = fresh.into_conn()?;
                conn.exchange(&vec![b'q'; request], response).await?;
                conn.close().await?;
            }
        }
        Ok(resumed)
    }

    /// `concurrency` loops of connections until `seconds` are over.
    async fn many(&self, concurrency: usize, seconds: f64) -> Result<Tally> {
        let start = Instant::now();
        let deadline = start + Duration::from_secs_f64(seconds);
        let mut tasks = JoinSet::new();
        for loops in 0..concurrency {
            let plan = self.clone();
            tasks.spawn(async move {
                let mut tally = Tally::new();
                // Spread, so that connections that come at fixed times do not all come at once.
                let mut due = start + plan.every.mul_f64(loops as f64 / concurrency as f64);
                tokio::time::sleep_until(due.into()).await;
                let mut begin = Instant::now();
                while begin < deadline {
                    let outcome = plan.once().await;
                    let end = Instant::now();
                    match outcome {
                        Ok(resumed) => {
                            tally.success(end - begin);
                            tally.resumed += u64::from(resumed);
                        }
                        Err(error) => tally.failure(&error),
                    }
                    begin = end;
                    if !plan.every.is_zero() {
                        due += plan.every;
                        tokio::time::sleep_until(due.into()).await;
                        begin = Instant::now();
                    }
                }
                tally
            });
        }
        let mut tally = Tally::new();
        for part in join(tasks).await? {
            tally.add(part);
        }
        Ok(tally)
    }
}
