//! The application behind both proxies: one port on all addresses of the loopback, so that each address is another server.
//! It answers with what it has got.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::support::instance::PATIENCE;

/// The running application.
pub(super) struct EchoApplication {
    pub(super) port: u16,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EchoApplication {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let ends = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                // A peer that leaves early is no fault.
                std::thread::spawn(move || drop(serve(stream)));
            }
        });
        EchoApplication { port, ends, thread: Some(thread) }
    }
}

impl Drop for EchoApplication {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Wakes the thread, which waits for a connection.
        let _ = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)));
        self.thread.take().map(JoinHandle::join);
    }
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let server = stream.local_addr()?.ip();
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let first = line.trim_end().trim_end_matches(" HTTP/1.1").trim_end_matches(" HTTP/1.0").to_owned();
        let (mut fields, mut length, mut chunked) = (Vec::new(), 0, false);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            let (name, value) = (name.to_ascii_lowercase(), value.trim().to_owned());
            match name.as_str() {
                "content-length" => length = value.parse().unwrap_or(0),
                "transfer-encoding" => chunked = true,
                _ => {}
            }
            fields.push((name, value));
        }
        let body = if chunked { chunks(&mut reader)? } else { exactly(&mut reader, length)? };
        if fields.iter().any(|(name, value)| name == "upgrade" && value == "websocket") {
            let head =
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
            stream.write_all(head.as_bytes())?;
            stream.write_all(first.as_bytes())?;
            return stream.shutdown(Shutdown::Write);
        }
        stream.write_all(&respond(&first, server, &fields, &body))?;
    }
}

/// The response; `status`, `to` and `page` of the query say which.
fn respond(first: &str, server: impl std::fmt::Display, fields: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let query = first.split_once('?').map(|(_, query)| query).unwrap_or_default();
    let asked = |name: &str| {
        query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    let status = asked("status").unwrap_or_else(|| "200".to_owned());
    let mut text = format!("{first}\n");
    let mut lines: Vec<String> = fields
        .iter()
        .filter(|(name, _)| !OWN.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    lines.sort();
    text.extend(lines);
    text.push_str(&format!("body: {}\n", String::from_utf8_lossy(body)));
    let page = asked("page").map(|_| "<p>many words, again and again</p>\n".repeat(200));
    let media = if page.is_some() { "text/html; charset=utf-8" } else { "text/x-echo" };
    let text = page.unwrap_or(text);
    let mut head = format!(
        "HTTP/1.1 {status} Echo\r\nServer: echo\r\nX-Powered-By: echo\r\nX-App: {server}\r\nContent-Type: {media}\r\n\
         Content-Length: {}\r\nCache-Control: no-cache\r\n",
        text.len()
    );
    if let Some(to) = asked("to") {
        head.push_str(&format!("Location: {to}\r\nSet-Cookie: session=1; Path=/app\r\n"));
    }
    let sent = if first.starts_with("HEAD ") || status == "204" || status == "304" { "" } else { &text };
    format!("{head}\r\n{sent}").into_bytes()
}

fn exactly(reader: &mut BufReader<TcpStream>, length: u64) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body)?;
    Ok(body)
}

fn chunks(reader: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        body.extend(exactly(reader, size)?);
        reader.read_line(&mut String::new())?;
        if size == 0 {
            return Ok(body);
        }
    }
}

/// Fields that belong to one connection, which are no matter of configurations.
const OWN: [&str; 4] = ["connection", "keep-alive", "content-length", "transfer-encoding"];
