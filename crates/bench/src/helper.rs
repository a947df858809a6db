//! The two helper processes of a run, seen from the harness: started from the own binary, spoken to in
//! lines of JSON.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};

use crate::error::{Error, Result};
use crate::process::{Launch, Process};
use crate::protocol::{BackendSpec, Event, Found, LoadResult, LoadSpec};

/// A helper that runs; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Helper {
    pub(crate) process: Process,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Connecting ten thousand clients to a busy proxy takes its time.
const TO_GET_READY: Duration = Duration::from_secs(90);
/// Beyond the agreed time of the work: what is under way may finish.
const TO_FINISH: Duration = Duration::from_secs(30);

impl Helper {
    /// Starts a backend and learns where it listens.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) async fn backend(spec: &BackendSpec, dir: &Path, cores: &[usize]) -> Result<(Self, Found)> {
        let mut helper = Self::start("backend", spec, dir, cores).await?;
        match helper.hear(Duration::from_secs(10)).await? {
            Event::Listening(found) => Ok((helper, found)),
            other => Err(helper.process.failed(&format!("said {other:?}"))),
        }
    }

    /// Starts a load and waits until it is ready.
    ///
    /// # Errors
    /// What it says itself when it cannot begin.
    pub(crate) async fn load(spec: &LoadSpec, dir: &Path, cores: &[usize]) -> Result<Self> {
        let mut helper = Self::start("load", spec, dir, cores).await?;
        match helper.hear(TO_GET_READY).await? {
            Event::Ready => Ok(helper),
            Event::Failed(why) => Err(Error::Measure(format!("the load could not begin: {why}"))),
            other => Err(helper.process.failed(&format!("said {other:?}"))),
        }
    }

    /// Lets a load begin; or, for one that is held, end.
    ///
    /// # Errors
    /// When it has gone.
    pub(crate) async fn go(&mut self) -> Result<()> {
        let sent = self.input.write_all(b"go\n").await;
        sent.map_err(|_| self.process.failed("has gone"))
    }

    /// Waits for the result of work that takes `seconds`.
    ///
    /// # Errors
    /// When it fails, or takes much longer.
    pub(crate) async fn result(&mut self, seconds: f64) -> Result<LoadResult> {
        match self.hear(Duration::from_secs_f64(seconds) + TO_FINISH).await? {
            Event::Done(result) => Ok(result),
            Event::Failed(why) => Err(Error::Measure(format!("the load failed: {why}"))),
            other => Err(self.process.failed(&format!("said {other:?}"))),
        }
    }

    async fn start(kind: &str, order: &impl Serialize, dir: &Path, cores: &[usize]) -> Result<Self> {
        let launch = Launch {
            name: kind.to_owned(),
            program: std::env::current_exe().map_err(|e| Error::io("finding the own program", e))?,
            args: vec![kind.into()],
            env: Vec::new(),
            cores: cores.to_vec(),
            log: dir.join(format!("{kind}.log")),
            piped: true,
        };
        let mut process = Process::start(&launch)?;
        let pipes = process.child.stdin.take().zip(process.child.stdout.take());
        let Some((input, output)) = pipes else { return Err(process.failed("has no pipes")) };
        let mut helper = Self { process, input, lines: BufReader::new(output).lines() };
        let mut line = serde_json::to_vec(order)
            .map_err(|e| Error::io("encoding an order", std::io::Error::other(e)))?;
        line.push(b'\n');
        let sent = helper.input.write_all(&line).await;
        sent.map_err(|_| helper.process.failed("took no order"))?;
        Ok(helper)
    }

    async fn hear(&mut self, patience: Duration) -> Result<Event> {
        let line = tokio::time::timeout(patience, self.lines.next_line()).await;
        let line = line.map_err(|_| self.process.failed(&format!("said nothing for {patience:?}")))?;
        let line = line.ok().flatten().ok_or_else(|| self.process.failed("ended"))?;
        serde_json::from_str(&line).map_err(|_| self.process.failed(&format!("said {line:?}")))
    }
}
