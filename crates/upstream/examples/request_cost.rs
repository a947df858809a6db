//! Cost of a request to a server apart from system calls: sequential requests of a worker's pool over one
//! kept connection. Measured in instructions, which do not depend on the load of the machine:
//!
//! ```text
//! cargo build --release -p offramp-upstream --example request_cost
//! perf stat -e instructions:u target/release/examples/request_cost 200000
//! ```
//!
//! The server is a thread that looks for the end of each head and writes a constant response; it costs a few
//! hundred instructions per request. The difference of two runs of different length, divided by that of their
//! counts, removes the cost of the start.

use std::future::poll_fn;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use http::Request;
use offramp_net::Address;
use offramp_upstream::{Affinity, Backend, Candidate, Pools, Server};
use tokio::runtime::{Builder, LocalOptions};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nserver: app\r\n\
    date: Sun, 22 Nov 2026 00:00:00 GMT\r\ncontent-length: 10\r\n\r\n0123456789";
const REQUESTS: u32 = 100_000;

fn main() -> io::Result<()> {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(REQUESTS);
    let address = serve()?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let begun = Instant::now();
    runtime.block_on(ask(address, count)).map_err(io::Error::other)?;
    println!("{count} requests, {:.2} us each", begun.elapsed().as_secs_f64() * 1e6 / f64::from(count));
    Ok(())
}

async fn ask(address: SocketAddr, count: u32) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let server = (Server::at(Address::Tcp(address)), Candidate::default());
    let backend = Arc::new(Backend::new("app", [server]));
    let pools = Pools::new(0);
    let about = Affinity {
        client: None,
        tls: true,
        private: None,
        progress: &|_| (),
        interim: None,
        timeouts: offramp_upstream::Timeouts::default(),
    };
    let mut template = Request::get("/api/v1/things?page=2").body(String::new())?;
    for (name, value) in [
        ("host", "app.test"),
        ("user-agent", "request-cost/1"),
        ("accept", "*/*"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "app.test"),
        ("x-request-id", "0193d1f0-7"),
    ] {
        template.headers_mut().insert(name, value.parse()?);
    }
    for _ in 0..count {
        let answer = pools.send(&backend, template.clone(), &about).await.map_err(|failure| failure.fault)?;
        let (mut body, mut length) = (answer.response.into_body(), 0);
        while let Some(frame) = poll_fn(|cx| body.poll_frame(cx)).await {
            length += frame?.data_len();
        }
        assert_eq!(length, 10);
    }
    Ok(())
}

/// A server of one connection.
fn serve() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut head = [0; 4096];
        let mut filled = 0;
        loop {
            match stream.read(&mut head[filled..])? {
                0 => return Ok(()),
                n => filled += n,
            }
            if head[..filled].ends_with(b"\r\n\r\n") {
                filled = 0;
                stream.write_all(ANSWER)?;
            }
        }
    });
    Ok(address)
}
