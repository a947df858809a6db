//! Orders one certificate without a server (`offramp cert order`): challenges are answered by a listener that is open for
//! the time of the order alone.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use offramp_certs::acme::Subject;
use offramp_config::model::{self, AcmeAuthority, Challenge};
use offramp_net::Address;
use offramp_observe::Log;
use offramp_process::Error;
use offramp_proxy::Challenges;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;

use super::attempt::{Meanwhile, attempt};
use super::context::AcmeContext;
use super::pause::Bars;
use super::{Orders, Want};

/// Connections that are answered at a time; authorities look from a handful of places.
const AT_ONCE: usize = 64;
/// The time limit of one connection.
const LIMIT: Duration = Duration::from_secs(10);
/// The longest head of a request.
const LONGEST: usize = 8 * 1024;

/// A certificate that is ordered once.
#[derive(Clone, Debug)]
pub struct OneOrder {
    /// The directory of account, key and certificate.
    pub state_dir: PathBuf,
    /// The names; at least one.
    pub names: Vec<String>,
    /// The kind of the key.
    pub key_type: model::AcmeKeyType,
    /// The authority to ask.
    pub authority: AcmeAuthority,
    /// The addresses that answer the authority's check; none for dns-01.
    pub listen: Vec<SocketAddr>,
    /// The file that gets the chain, if any, and with `key` absent the key too.
    pub cert: Option<PathBuf>,
    /// The file that gets the key, if not that of `cert`.
    pub key: Option<PathBuf>,
}

/// A certificate that was issued.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Until when it is valid.
    pub until: String,
    /// The file in the state directory with the chain and the key.
    pub kept: PathBuf,
}

/// Orders the certificate and writes it to its files. Takes as long as the authority does, an hour at most.
///
/// # Errors
/// What is in the way: of listening, of the state directory, or what the authority says.
pub fn order_once(order: OneOrder, log: Log) -> Result<Issued, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::one(format!("cannot start: {error}")))?;
    runtime.block_on(obtain(order, log))
}

async fn obtain(order: OneOrder, log: Log) -> Result<Issued, Error> {
    let key = super::key_type(order.key_type);
    let subject = Subject::new(&order.names, key).map_err(|error| Error::one(error.to_string()))?;
    let challenges = Challenges::none();
    let (announce, _announced) = unbounded_channel();
    let orders = Arc::<Orders>::default();
    let context = AcmeContext::new(&order.state_dir, Arc::clone(&challenges), orders, log, announce);
    context.lead_once().map_err(Error::one)?;
    for address in &order.listen {
        let listener = TcpListener::bind(address).await.map_err(|error| in_the_way(*address, &error))?;
        tokio::spawn(serve(listener, order.authority.challenge, Arc::clone(&challenges)));
    }
    let want = Want { subject, reuse_key: false, authorities: vec![order.authority], on_demand: None };
    let until =
        attempt(&want, &context, Meanwhile::Nobody, &mut Bars::default()).await.map_err(Error::one)?;
    if let Some(cert) = &order.cert {
        let written = context.storage.export(&want.subject, cert, order.key.as_deref());
        written.map_err(|error| Error::one(error.to_string()))?;
    }
    Ok(Issued { until, kept: context.storage.file(&want.subject) })
}

fn in_the_way(address: SocketAddr, error: &io::Error) -> Error {
    let place = Address::Tcp(address);
    let help = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another server listens there: let it pass the challenge on, and listen elsewhere with --listen"
        }
        io::ErrorKind::PermissionDenied => "; only root may listen there: use sudo, or --challenge dns-01",
        _ => "",
    };
    Error::one(format!("cannot listen on {place}, where the authority looks: {error}{help}"))
}

async fn serve(listener: TcpListener, challenge: Challenge, challenges: Arc<Challenges>) {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        // The semaphore is never closed.
        let permit = Arc::clone(&permits).acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let challenges = Arc::clone(&challenges);
        tokio::spawn(async move {
            let _permit = permit;
            // The authority may disconnect at any time, and connects again.
            let _ = match challenge {
                Challenge::TlsAlpn01 => timeout(LIMIT, by_handshake(stream, &challenges)).await,
                _ => timeout(LIMIT, by_response(stream, &challenges)).await,
            };
        });
    }
}

/// Answers tls-alpn-01 (RFC 8737): the handshake is all.
async fn by_handshake(stream: TcpStream, challenges: &Challenges) -> io::Result<()> {
    let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
    let name = hello.client_hello().server_name().unwrap_or_default().to_ascii_lowercase();
    let Some(configs) = challenges.handshake_for(&name) else { return Ok(()) };
    let mut stream = hello.into_stream(Arc::clone(configs.for_client(&[]))).await?;
    stream.shutdown().await
}

/// Answers http-01 (RFC 8555 section 8.3); whatever else is asked for is not there.
async fn by_response(mut stream: TcpStream, challenges: &Challenges) -> io::Result<()> {
    let head = head(&mut stream).await?;
    let mut words = head.split(' ');
    let found = match (words.next(), words.next()) {
        (Some("GET"), Some(path)) => challenges.response(path),
        _ => None,
    };
    let (status, body) = match found {
        Some(body) => ("200 OK", body),
        None => ("404 Not Found", Bytes::new()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).await?;
    stream.shutdown().await
}

/// The head of a request, as text.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 1024]);
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        let length = stream.read(&mut piece).await?;
        if length == 0 || bytes.len() > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.extend_from_slice(&piece[..length]);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client that sends `request` gets.
    async fn asked(request: &[u8]) -> String {
        let challenges = Challenges::none();
        challenges.set_response("token", Some(&Bytes::from_static(b"token.print")));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, Challenge::Http01, challenges));
        let mut client = TcpStream::connect(address).await.unwrap();
        // It may have been enough before all is sent.
        let _ = client.write_all(request).await;
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer).await;
        server.abort();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn only_the_response_is_there() {
        let found = asked(b"GET /.well-known/acme-challenge/token HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        assert!(
            found.starts_with("HTTP/1.1 200 OK\r\n") && found.ends_with("\r\n\r\ntoken.print"),
            "{found}"
        );
        for other in
            ["GET / HTTP/1.1\r\n\r\n", "POST /.well-known/acme-challenge/token HTTP/1.1\r\n\r\n", "\r\n\r\n"]
        {
            let answer = asked(other.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 404 "), "{other}: {answer}");
        }
        // Without an end, or without a beginning.
        assert_eq!(asked(&[b'a'; 64 * 1024]).await, "");
    }
}
