//! HTTP load by `h2load`, which measures it well; only its answer is read here.
//!
//! h2load keeps so many streams busy on each connection, a closed loop, and its latencies are those of one; or it
//! sends requests at a fixed rate, by either version.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use crate::error::{Error, Result, write_file};
use crate::process::{Launch, find_program};
use crate::web::{Answer, SETTINGS, call};

/// What h2load is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) target: SocketAddr,
    pub(crate) connections: usize,
    pub(crate) load: Load,
    /// The protocol's name for ALPN.
    pub(crate) alpn: &'static str,
    pub(crate) seconds: u32,
}

/// When h2load sends the next request of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// As soon as fewer than these are under way.
    Streams(usize),
    /// The same, with unary calls of gRPC whose messages have so many bytes.
    Grpc { streams: usize, message: usize },
    /// So many times a second.
    Rate(usize),
}

/// Runs h2load to its end.
///
/// # Errors
/// When it is missing, fails, or got no answer at all.
pub(crate) async fn run(order: Order, dir: &Path, cores: &[usize]) -> Result<Answer> {
    let program = find_program("h2load")
        .ok_or_else(|| Error::Missing("h2load is not installed (package nghttp2-client)".to_owned()))?;
    let settings = dir.join("openssl.cnf");
    write_file(&settings, SETTINGS)?;
    let mut args = vec![
        "--threads=1".to_owned(),
        format!("--clients={}", order.connections),
        match order.load {
            Load::Streams(streams) | Load::Grpc { streams, .. } => {
                format!("--max-concurrent-streams={streams}")
            }
            Load::Rate(rate) => format!("--rps={rate}"),
        },
        format!("--duration={}", order.seconds),
        format!("--npn-list={}", order.alpn),
        format!("--connect-to={}", order.target),
    ];
    let mut path = "";
    if let Load::Grpc { message, .. } = order.load {
        let body = dir.join("message");
        write_file(&body, framed(message))?;
        args.push(format!("--data={}", body.display()));
        args.extend(["--header=content-type: application/grpc", "--header=te: trailers"].map(Into::into));
        path = "bench.Echo/Unary";
    }
    // By name, so that the name is in the ClientHello and in :authority: some proxies choose by it.
    args.push(format!("https://localhost:{}/{path}", order.target.port()));
    let launch = Launch {
        name: "h2load".to_owned(),
        program,
        args: args.into_iter().map(Into::into).collect(),
        env: vec![("OPENSSL_CONF".to_owned(), settings.display().to_string())],
        cores: cores.to_vec(),
        log: dir.join("h2load.log"),
        piped: true,
    };
    call(&launch, order.seconds, read).await
}

/// A message of so many bytes as gRPC frames it: not compressed, and its length.
pub(crate) fn framed(message: usize) -> Vec<u8> {
    // Messages here are short.
    let mut framed = [&[0], (message as u32).to_be_bytes().as_slice()].concat();
    framed.resize(framed.len() + message, b'x');
    framed
}

/// Reads what h2load prints at its end.
fn read(text: &str) -> Option<Answer> {
    let line = |mark: &str| text.lines().find_map(|line| line.trim_start().strip_prefix(mark));
    let seconds = microseconds(line("finished in ")?.split(',').next()?)? / 1e6;
    let counts = line("requests: ")?;
    let count = |what: &str| -> Option<u64> {
        counts.split(", ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok())
    };
    let times: Vec<f64> = line("time for request:")?.split_whitespace().map_while(microseconds).collect();
    let &[_, max, mean, stdev, ..] = times.as_slice() else { return None };
    let latency = [("mean", mean), ("stdev", stdev), ("max", max)];
    Some(Answer {
        requests: count(" succeeded")?,
        errors: count(" failed")? + count(" errored")? + count(" timeout")?,
        seconds,
        latency: latency
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
        cpu: 0.0,
    })
}

/// A time such as `1.20ms`; none for anything else.
fn microseconds(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    units.into_iter().find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_grpc_say_their_length() {
        assert_eq!(framed(3), b"\0\0\0\0\x03xxx");
    }

    #[test]
    fn what_h2load_prints_is_read() {
        let text = "\
starting benchmark...
finished in 1.01s, 51234.00 req/s, 1.95MB/s
requests: 51250 total, 51330 started, 51250 done, 51234 succeeded, 16 failed, 14 errored, 2 timeout
status codes: 51240 2xx, 0 3xx, 0 4xx, 10 5xx
                     min         max         mean         sd        +/- sd
time for request:      115us     10.53ms      1.52ms       301us    85.32%
time for connect:     3.05ms      6.60ms      4.89ms      1.20ms    62.50%
";
        let answer = read(text).unwrap();
        assert_eq!((answer.requests, answer.errors, answer.seconds), (51_234, 32, 1.01));
        assert_eq!(answer.latency["mean"], 1_520.0);
        assert_eq!(answer.latency["max"], 10_530.0);
        assert_eq!(answer.latency["stdev"], 301.0);
        assert!(read("nothing").is_none());
    }
}
