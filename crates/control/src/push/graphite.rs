//! Figures in Graphite's plaintext protocol, over one connection that is reopened when it is lost.

use std::io;
use std::time::{Duration, SystemTime};

use offramp_config::model::{GraphitePrefix, Metrics, ServerAddress};
use offramp_observe::{Exposition, Log};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{PATIENCE, Teller};

/// The destination of figures in Graphite's plaintext protocol, and the interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Graphite {
    server: ServerAddress,
    every: Duration,
    prefix: GraphitePrefix,
}

impl Graphite {
    /// The destination of the configuration.
    pub(super) fn of(metrics: &Metrics) -> Option<Self> {
        let server = metrics.graphite.clone()?;
        Some(Self { server, every: metrics.graphite_interval, prefix: metrics.graphite_prefix.clone() })
    }

    /// Pushes until it is dropped.
    pub(super) async fn run(self, page: Exposition, log: Log) {
        let mut due = interval(self.every);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut teller = Teller::new("Graphite", &self.server, log);
        let mut connection = None;
        let mut lines = Vec::new();
        loop {
            due.tick().await;
            lines.clear();
            page.render_graphite(self.prefix.as_str(), SystemTime::now(), &mut lines);
            let push = push(&self.server, &mut connection, &lines);
            let outcome = match timeout(self.every.min(PATIENCE), push).await {
                Ok(outcome) => outcome,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            };
            if outcome.is_err() {
                // What was written in part must not be continued.
                connection = None;
            }
            teller.tell(&outcome);
        }
    }
}

/// Writes the lines to the open connection, or to a new one.
async fn push(server: &ServerAddress, connection: &mut Option<Connection>, lines: &[u8]) -> io::Result<()> {
    if let Some(open) = connection
        && open.is_closed().await
    {
        *connection = None;
    }
    let open = match connection {
        Some(open) => open,
        None => connection.insert(Connection::open(server).await?),
    };
    open.write(lines).await
}

/// A connection to wherever figures go.
enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Connection {
    async fn open(server: &ServerAddress) -> io::Result<Self> {
        match server {
            ServerAddress::Unix(path) => UnixStream::connect(path).await.map(Self::Unix),
            ServerAddress::Ip(address) => TcpStream::connect(address).await.map(Self::Tcp),
            ServerAddress::Name { host, port } => {
                TcpStream::connect((host.as_str(), *port)).await.map(Self::Tcp)
            }
        }
    }

    /// True if the other side has closed; it never sends anything.
    async fn is_closed(&mut self) -> bool {
        async fn closed(stream: &mut (impl AsyncRead + Unpin)) -> bool {
            let mut byte = [0];
            // It answers at once if there is something to read, an end or an error; else it is open.
            !matches!(timeout(Duration::ZERO, stream.read(&mut byte)).await, Err(_) | Ok(Ok(1)))
        }
        match self {
            Self::Tcp(stream) => closed(stream).await,
            Self::Unix(stream) => closed(stream).await,
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
            stream.write_all(bytes).await?;
            stream.flush().await
        }
        match self {
            Self::Tcp(stream) => write(stream, bytes).await,
            Self::Unix(stream) => write(stream, bytes).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Graphite, PATIENCE};
    use offramp_config::model::{GraphitePrefix, ServerAddress};
    use offramp_observe::prometheus::Build;
    use offramp_observe::{Counters, Exposition, Log};
    use std::time::Duration;
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    fn page() -> Exposition {
        Exposition::new(Counters::new(1).0, Build { version: "0.0.0", commit: "" })
    }

    /// Reads one push, up to its last figure.
    async fn receive(listener: &TcpListener) -> Vec<String> {
        let (stream, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        let mut lines = BufReader::new(stream).lines();
        let mut read = Vec::new();
        while let Some(line) = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap() {
            let is_last = line.starts_with("instance.process_start_time_seconds ");
            read.push(line);
            if is_last {
                break;
            }
        }
        read
    }

    #[test]
    fn figures_are_pushed_and_a_lost_connection_is_made_anew() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let graphite = Graphite {
                server: ServerAddress::Ip(listener.local_addr().unwrap()),
                every: Duration::from_millis(20),
                prefix: "instance".parse::<GraphitePrefix>().unwrap(),
            };
            let task = tokio::spawn(graphite.run(page(), Log::silent()));
            // Each receives one push and hangs up, and the next comes by a new connection.
            for _ in 0..3 {
                let lines = receive(&listener).await;
                assert!(lines.iter().any(|line| line.starts_with("instance.workers 1 ")), "{lines:#?}");
                for line in &lines {
                    let words: Vec<_> = line.split(' ').collect();
                    assert_eq!(words.len(), 3, "{line}");
                    assert!(words[1].parse::<f64>().is_ok() && words[2].parse::<u64>().is_ok(), "{line}");
                }
            }
            task.abort();
        });
    }
}
