//! One measurement of one contestant: the clocks are read while nothing is under way, before and after a
//! known number of units.

use std::path::Path;
use std::time::Duration;

use crate::contestant::{Contestant, Running, Site};
use crate::error::{Error, Result};
use crate::helper::Helper;
use crate::machine::Cores;
use crate::measure::cpu::CpuTime;
use crate::measure::memory::Memory;
use crate::measure::syscalls::Tracer;
use crate::metrics;
use crate::protocol::{LoadResult, LoadSpec, Work};
use crate::scenario::{Case, Method};
use crate::web;

/// Names and values of one measurement.
pub(crate) type Figures = Vec<(String, f64)>;

/// Everything around the contestant of a case.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) case: &'a Case,
    pub(crate) site: &'a Site<'a>,
    pub(crate) cores: &'a Cores,
    pub(crate) backend: &'a Helper,
    pub(crate) dir: &'a Path,
    /// Arrivals per second, for a paced case.
    pub(crate) rate: Option<f64>,
    /// Whether the running proxies have not worked yet.
    pub(crate) cold: bool,
}

/// Memory is read when allocators and kernels have settled.
const SETTLE: Duration = Duration::from_millis(300);
/// What a proxy keeps for a connection that may go on at any moment is not yet the cost of an idle one.
const FALL_SILENT: Duration = Duration::from_millis(2500);
/// Connections before the first look at memory: what they map and allocate once is no cost of each further one.
const WARM_UP: usize = 4;

impl Bench<'_> {
    /// Measures one contestant once; `running` is where it runs, unless the case starts it anew.
    ///
    /// # Errors
    /// When the contestant or a helper fails, or the load saw nothing but errors.
    pub(crate) async fn measure(
        &self,
        contestant: &Contestant,
        running: &mut Option<Running>,
    ) -> Result<Figures> {
        match (&self.case.method, running) {
            (Method::Start, _) => self.start(contestant).await,
            (&Method::Idle { connections, exchange, seconds }, _) => {
                self.idle(contestant, Work::Idle { connections, exchange }, seconds).await
            }
            (_, None) => Err(Error::Measure("it does not run".into())),
            (_, Some(running)) => {
                let mut figures = self.running(running).await;
                if let (Ok(figures), Some(rate)) = (&mut figures, self.case.method.arrivals()) {
                    figures.push((metrics::RATE.to_owned(), rate));
                }
                if !running.process.alive() {
                    return Err(running.process.failed("ended during the measurement"));
                }
                figures
            }
        }
    }

    async fn running(&self, running: &Running) -> Result<Figures> {
        match &self.case.method {
            Method::Window(work) => self.window(running, work).await,
            Method::Syscalls(work) => self.syscalls(running, work).await,
            Method::Web { load, connections, seconds, drip } => {
                let alpn = self.case.setup.mode.alpn();
                let order = web::Order { load: *load, alpn, connections: *connections, seconds: *seconds };
                self.beside(running, drip.as_ref(), self.web(running, order)).await
            }
            &Method::Paced { connections, size, .. } => {
                let rate = self.rate.ok_or_else(|| Error::Measure("the capacity is not known".into()))?;
                let (seconds, warmup) = (3.0, 0.5);
                let work = Work::Rate { connections, request: size, response: size, rate, seconds, warmup };
                let mut figures = self.window(running, &work).await?;
                figures.push((metrics::RATE.to_owned(), rate));
                Ok(figures)
            }
            Method::BesideDrip { work, drip } => {
                self.beside(running, Some(drip), self.window(running, work)).await
            }
            Method::Idle { .. } | Method::Start | Method::Served(_) => {
                Err(Error::Measure("not a case of running proxies".into()))
            }
        }
    }

    /// Requests per second that a contestant can answer when they come as fast as they can.
    ///
    /// # Errors
    /// When the load fails.
    pub(crate) async fn capacity(&self, running: &Running) -> Result<f64> {
        let work = Work::Relay { connections: 64, request: 10, response: 10, seconds: 1.0, warmup: 0.3 };
        let mut load = Helper::load(&self.spec(running, &work), self.dir, &self.cores.load).await?;
        load.go().await?;
        let result = load.result(1.0).await?;
        Ok(count(result.units) / result.seconds)
    }

    async fn window(&self, running: &Running, work: &Work) -> Result<Figures> {
        let mut load = Helper::load(&self.spec(running, work), self.dir, &self.cores.load).await?;
        let pids = [running.process.pid(), load.process.pid(), self.backend.process.pid()];
        let before = pids.map(CpuTime::of_tree);
        load.go().await?;
        let result = load.result(seconds_of(work)).await?;
        let after = pids.map(CpuTime::of_tree);
        let used = [0, 1, 2].map(|i| after[i].since(before[i]));
        answered(&result)?;
        Ok(self.figures(&result, used))
    }

    /// Measures while other clients drip.
    async fn beside(
        &self,
        running: &Running,
        drip: Option<&Work>,
        measurement: impl Future<Output = Result<Figures>>,
    ) -> Result<Figures> {
        let Some(drip) = drip else { return measurement.await };
        let mut other = Helper::load(&self.spec(running, drip), self.dir, &self.cores.load).await?;
        other.go().await?;
        let figures = measurement.await?;
        other.go().await?;
        let held = other.result(0.0).await?;
        if held.errors > 0 {
            let first = held.first_error.unwrap_or_default();
            return Err(Error::Measure(format!("{} slow clients were cut off: {first}", held.errors)));
        }
        Ok(figures)
    }

    async fn web(&self, running: &Running, order: web::Order) -> Result<Figures> {
        let (target, cores) = (running.listen, self.cores.load.as_slice());
        // The tools connect anew each time: it is the proxy that is warmed up, and it stays warm.
        if self.cold {
            web::run(web::Order { seconds: 1, ..order }, target, self.dir, cores).await?;
        }
        let pids = [running.process.pid(), self.backend.process.pid()];
        let before = pids.map(CpuTime::of_tree);
        let answer = web::run(order, target, self.dir, cores).await?;
        let after = pids.map(CpuTime::of_tree);
        let resident = count(Memory::of_tree(running.process.pid())?.resident) / f64::from(1 << 20);
        let load = CpuTime { total: answer.cpu, ..CpuTime::default() };
        let result = LoadResult {
            units: answer.requests,
            errors: answer.errors,
            seconds: answer.seconds,
            latency: answer.latency,
            ..LoadResult::default()
        };
        let used = after[0].since(before[0]);
        let mut figures = self.figures(&result, [used, load, after[1].since(before[1])]);
        figures.push((metrics::RESIDENT.to_owned(), resident * f64::from(1 << 20)));
        figures.push((metrics::INDEX.to_owned(), count(result.units) / used.total / resident));
        Ok(figures)
    }

    fn figures(&self, result: &LoadResult, [proxy, load, backend]: [CpuTime; 3]) -> Figures {
        let units = count(result.units);
        let per_unit = proxy.total / units * 1e6;
        let proxy_cores = self.cores.proxy.len().min(self.case.setup.workers) as f64;
        let load_cores = self.cores.outside() as f64;
        let mut figures: Figures = [
            (metrics::CPU, per_unit),
            (metrics::CPU_USER, per_unit * proxy.user_share()),
            (metrics::CPU_SYSTEM, per_unit * (1.0 - proxy.user_share())),
            (metrics::PER_SECOND, units / result.seconds),
            // Units per second over percent of CPU used in that time.
            (metrics::EFFICIENCY, units / (100.0 * proxy.total)),
            (metrics::PROXY_BUSY, proxy.total / result.seconds / proxy_cores),
            (metrics::LOAD_BUSY, (load.total + backend.total) / result.seconds / load_cores),
            (metrics::ERRORS, count(result.errors)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        figures.extend(result.latency.iter().map(|(name, value)| (name.clone(), *value)));
        figures
    }

    async fn syscalls(&self, running: &Running, work: &Work) -> Result<Figures> {
        let mut load = Helper::load(&self.spec(running, work), self.dir, &self.cores.load).await?;
        let tracer = Tracer::attach(running.process.pid(), self.dir, &self.cores.load).await?;
        load.go().await?;
        let result = load.result(seconds_of(work)).await?;
        let calls = tracer.finish().await?;
        answered(&result)?;
        let units = count(result.units);
        let total: u64 = calls.values().sum();
        let mut figures = vec![(metrics::SYSCALLS.to_owned(), count(total) / units)];
        figures.extend(calls.iter().map(|(name, &n)| (format!("syscalls/{name}"), count(n) / units)));
        Ok(figures)
    }

    async fn idle(&self, contestant: &Contestant, work: Work, seconds: f64) -> Result<Figures> {
        let Work::Idle { connections, exchange } = work else {
            return Err(Error::Measure("not an idle load".into()));
        };
        let running = contestant.start(self.site).await?;
        let first = Work::Idle { connections: WARM_UP, exchange };
        let mut load = Helper::load(&self.spec(&running, &first), self.dir, &self.cores.load).await?;
        load.go().await?;
        answered(&load.result(30.0).await?)?;
        tokio::time::sleep(SETTLE).await;
        let pid = running.process.pid();
        let before = Memory::of_tree(pid)?;
        let mut load = Helper::load(&self.spec(&running, &work), self.dir, &self.cores.load).await?;
        tokio::time::sleep(FALL_SILENT).await;
        let held = Memory::of_tree(pid)?;
        let cpu = CpuTime::of_tree(pid);
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        let idle = CpuTime::of_tree(pid).since(cpu);
        load.go().await?;
        let result = load.result(30.0).await?;
        answered(&result)?;
        if result.errors > 0 {
            return Err(Error::Measure(format!("{} idle connections were lost", result.errors)));
        }
        running.process.stop().await;
        let grown = held.without_files().saturating_sub(before.without_files());
        let each = count(grown) / connections as f64;
        Ok(vec![
            (metrics::CONNECTION_BYTES.to_owned(), each),
            (metrics::IDLE_CPU.to_owned(), idle.total * 1e3 / seconds),
            (metrics::ERRORS.to_owned(), 0.0),
        ])
    }

    async fn start(&self, contestant: &Contestant) -> Result<Figures> {
        let running = contestant.start(self.site).await?;
        tokio::time::sleep(SETTLE).await;
        let memory = Memory::of_tree(running.process.pid())?;
        running.process.stop().await;
        Ok(vec![
            (metrics::START_RESIDENT.to_owned(), count(memory.resident)),
            (metrics::START_PROPORTIONAL.to_owned(), count(memory.proportional)),
            (metrics::START_ANONYMOUS.to_owned(), count(memory.anonymous)),
        ])
    }

    fn spec(&self, running: &Running, work: &Work) -> LoadSpec {
        let setup = self.case.setup;
        let client = self.site.clients.map(|clients| clients.client.clone());
        let (version, group) = (setup.version, setup.group);
        LoadSpec { target: running.listen, version, group, client, work: work.clone() }
    }
}

fn answered(result: &LoadResult) -> Result<()> {
    if result.units == 0 {
        let first = result.first_error.as_deref().unwrap_or("no error was seen either");
        return Err(Error::Measure(format!("not one unit succeeded: {first}")));
    }
    Ok(())
}

fn seconds_of(work: &Work) -> f64 {
    match *work {
        Work::Relay { seconds, .. } | Work::Handshake { seconds, .. } | Work::Rate { seconds, .. } => seconds,
        Work::Idle { .. } | Work::Drip { .. } => 0.0,
    }
}

fn count(n: u64) -> f64 {
    n as f64
}
