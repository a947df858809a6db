//! Cases whose contestants are arrangements of one application: alone, with TLS of its own, or with a
//! proxy in front. What is measured is the whole side of the server, application and proxy together.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::application::{Application, Runtime, Wish};
use crate::campaign::measure::Figures;
use crate::contestant::{Contestant, Running, Setup, Site};
use crate::error::{Error, Result};
use crate::machine::Cores;
use crate::measure::cpu::CpuTime;
use crate::measure::syscalls::Tracer;
use crate::metrics;
use crate::pki::Identity;
use crate::process::Process;
use crate::scenario::Case;
use crate::scenario::apps::{Arrangement, Served};
use crate::{web, wrk};

/// An arrangement that runs.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) arrangement: Arrangement,
    app: Application,
    proxy: Option<Running>,
}

/// Everything around the arrangements of a case.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) case: &'a Case,
    pub(crate) served: Served,
    pub(crate) dir: &'a Path,
    pub(crate) identity: &'a Identity,
    pub(crate) cores: &'a Cores,
    pub(crate) contestants: &'a [Contestant],
}

impl Stage<'_> {
    /// Starts an arrangement.
    ///
    /// # Errors
    /// What the application or the proxy said.
    pub(crate) async fn start(&self, arrangement: Arrangement) -> Result<Stack> {
        let front = arrangement.front();
        let wish = Wish {
            runtime: self.served.runtime,
            manner: self.served.manner,
            tls: (arrangement == Arrangement::Https).then_some(self.identity),
            unix: front.is_some() && self.served.unix,
        };
        let dir = crate::error::make_dir(&self.dir.join(arrangement.name()))?;
        let app = Application::start(wish, &dir, &self.cores.proxy).await?;
        let mut proxy = None;
        if let Some((name, mode)) = front {
            let contestant = self
                .contestants
                .iter()
                .find(|c| c.peer.name == name)
                .ok_or_else(|| Error::Missing(format!("{name} is not among the contestants")))?;
            let site = Site {
                root: self.dir,
                dir: &dir,
                backend: &app.found,
                identity: self.identity,
                clients: None,
                setup: Setup { mode, ..self.case.setup },
                cores: &self.cores.proxy,
            };
            proxy = Some(contestant.start(&site).await?);
        }
        let stack = Stack { arrangement, app, proxy };
        self.warm_up(&stack).await?;
        Ok(stack)
    }

    /// Runtimes interpret first and compile what they run often; what they cost before is not what they
    /// cost in use. Counted in requests, as a busy machine answers few in a second.
    async fn warm_up(&self, stack: &Stack) -> Result<()> {
        const MOST_SECONDS: u32 = 12;
        let enough = if self.served.runtime == Runtime::Java { 30_000 } else { 10_000 };
        let order = wrk::Order { seconds: 1, ..self.order(stack)? };
        let mut answered = 0;
        for _ in 0..MOST_SECONDS {
            // A second without an answer is followed by another try; the measurement will tell. A load generator
            // that hung took half a minute: one of those is enough.
            let begun = Instant::now();
            answered += wrk::run(order, self.dir, &self.cores.load).await.map_or(0, |a| a.requests);
            if answered >= enough || begun.elapsed() > Duration::from_secs(20) {
                break;
            }
        }
        Ok(())
    }

    fn order(&self, stack: &Stack) -> Result<wrk::Order> {
        let target = match &stack.proxy {
            Some(proxy) => Some(proxy.listen),
            None => stack.app.address(),
        };
        Ok(wrk::Order {
            target: target.ok_or_else(|| Error::Measure("the application has no address".into()))?,
            tls: stack.arrangement != Arrangement::Http,
            body: self.served.body,
            connections: self.served.connections,
            seconds: self.served.seconds,
            files: None,
        })
    }

    /// Measures an arrangement once.
    ///
    /// # Errors
    /// When wrk or strace is missing or fails.
    pub(crate) async fn measure(&self, stack: &Stack) -> Result<Figures> {
        let order = self.order(stack)?;
        if self.served.traced {
            return self.trace(stack, order).await;
        }
        let pids: Vec<u32> = [Some(&stack.app.process), stack.proxy.as_ref().map(|p| &p.process)]
            .into_iter()
            .flatten()
            .map(Process::pid)
            .collect();
        let used = || pids.iter().map(|&pid| CpuTime::of_tree(pid)).fold(CpuTime::default(), CpuTime::plus);
        let before = used();
        let answer = wrk::run(order, self.dir, &self.cores.load).await?;
        Ok(self.figures(&answer, used().since(before)))
    }

    fn figures(&self, answer: &web::Answer, server: CpuTime) -> Figures {
        let units = answer.requests as f64;
        let per_unit = server.total / units * 1e6;
        let mut figures: Figures = [
            (metrics::CPU, per_unit),
            (metrics::CPU_USER, per_unit * server.user_share()),
            (metrics::CPU_SYSTEM, per_unit * (1.0 - server.user_share())),
            (metrics::PER_SECOND, units / answer.seconds),
            (metrics::EFFICIENCY, units / (100.0 * server.total)),
            (metrics::PROXY_BUSY, server.total / answer.seconds / self.cores.proxy.len() as f64),
            (metrics::LOAD_BUSY, answer.cpu / answer.seconds / self.cores.load.len() as f64),
            (metrics::ERRORS, answer.errors as f64),
            (metrics::REQUESTS, units),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        figures.extend(answer.latency.iter().map(|(name, value)| (name.clone(), *value)));
        figures
    }

    /// System calls of the application alone: the proxy's are another scenario's.
    async fn trace(&self, stack: &Stack, order: wrk::Order) -> Result<Figures> {
        let tracer = Tracer::attach(stack.app.process.pid(), self.dir, &self.cores.load).await?;
        let answer = wrk::run(order, self.dir, &self.cores.load).await?;
        let calls = tracer.finish().await?;
        let units = answer.requests as f64;
        let total: u64 = calls.values().sum();
        let mut figures = vec![(metrics::SYSCALLS.to_owned(), total as f64 / units)];
        figures.extend(calls.iter().map(|(name, &n)| (format!("syscalls/{name}"), n as f64 / units)));
        Ok(figures)
    }
}

impl Stack {
    /// Ends what was started.
    pub(crate) async fn stop(self) {
        if let Some(proxy) = self.proxy {
            proxy.process.stop().await;
        }
        self.app.process.stop().await;
    }
}
