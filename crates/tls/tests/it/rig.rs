//! Offramp on one end of a socket pair, a blocking rustls client on a thread at the other.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use offramp_net::{Buffer, Socket};
use offramp_record::aead::Library;
use offramp_record::{LibraryChoice, RecordSize};
use offramp_tls::{
    Configs, Established, HandshakeError, HandshakeQueue, HandshakeRequest, Negotiated, TlsStream, handshake,
};
use offramp_wire::{ParseStep, client_hello};
use rustls::{AlertDescription, ClientConfig, ClientConnection, HandshakeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixtures::{NAME, Setup};

/// Timeout of every operation.
const LONGEST: Duration = Duration::from_secs(60);

pub(crate) const CHOICE: LibraryChoice = LibraryChoice::always(Library::Ring);

/// Runs both ends until each is done; the server's end closes when `server` returns.
pub(crate) fn run<S, C: Send>(
    server: impl AsyncFnOnce(Socket) -> S,
    client: impl FnOnce(UnixStream) -> C + Send,
) -> (S, C) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_read_timeout(Some(LONGEST)).unwrap();
    far.set_write_timeout(Some(LONGEST)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    thread::scope(|scope| {
        let client = scope.spawn(move || client(far));
        let outcome = runtime.block_on(async {
            let socket = Socket::unix(OwnedFd::from(near)).unwrap();
            tokio::time::timeout(LONGEST, server(socket)).await
        });
        let client = client.join();
        (outcome.expect("the server hangs"), client.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Handles a new connection like the proxy: peeks at the ClientHello, selects the configuration, and does the
/// handshake on the same buffer.
pub(crate) async fn accept(
    socket: &Socket,
    configs: &Configs,
    choice: &LibraryChoice,
) -> (Result<Established, HandshakeError>, Buffer) {
    let mut buffer = Buffer::with_capacity(4096);
    let (suites, early) = loop {
        match client_hello::peek(buffer.filled()) {
            ParseStep::Done { value, .. } => {
                break (value.suites().collect::<Vec<_>>(), value.has_early_data());
            }
            ParseStep::Need(_) => {}
            ParseStep::Reject(_) => break (Vec::new(), false),
        }
        if buffer.read_from(socket, 4096).await.unwrap_or(0) == 0 {
            break (Vec::new(), false);
        }
    };
    let config = Arc::clone(configs.for_client(&suites));
    let queue = HandshakeQueue::default();
    (handshake(socket, &mut buffer, config, early, choice, &HandshakeRequest::anyone(&queue)).await, buffer)
}

/// [`accept`] that must succeed, as a [`TlsStream`].
pub(crate) async fn accept_stream(socket: Socket, configs: &Configs) -> (TlsStream, Negotiated) {
    let (outcome, buffer) = accept(&socket, configs, &CHOICE).await;
    let Established { session, negotiated, tickets, .. } = outcome.unwrap();
    (TlsStream::new(socket, session, tickets, buffer, RecordSize::Adaptive), negotiated)
}

/// A TLS client over its blocking socket.
pub(crate) struct Client {
    pub(crate) tls: ClientConnection,
    pub(crate) socket: UnixStream,
}

impl Client {
    pub(crate) fn new(config: &Arc<ClientConfig>, name: &str, socket: UnixStream) -> Self {
        let tls = ClientConnection::new(Arc::clone(config), name.to_owned().try_into().unwrap()).unwrap();
        Self { tls, socket }
    }

    pub(crate) fn stream(&mut self) -> rustls::Stream<'_, ClientConnection, UnixStream> {
        rustls::Stream::new(&mut self.tls, &mut self.socket)
    }

    pub(crate) fn handshake(&mut self) -> io::Result<()> {
        while self.tls.is_handshaking() {
            self.tls.complete_io(&mut self.socket)?;
        }
        let flight = self.flight();
        self.socket.write_all(&flight)
    }

    /// The handshake, then everything up to the server's close_notify; then closes, too.
    pub(crate) fn converse(&mut self) -> io::Result<Vec<u8>> {
        self.handshake()?;
        let mut got = Vec::new();
        self.stream().read_to_end(&mut got)?;
        self.close();
        Ok(got)
    }

    pub(crate) fn close(&mut self) {
        self.tls.send_close_notify();
        let _ = self.stream().flush();
    }

    /// Bytes that the client wants to send.
    pub(crate) fn flight(&mut self) -> Vec<u8> {
        let mut flight = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut flight).unwrap();
        }
        flight
    }

    /// Sends the ClientHello and reads the server's reply, until the next flight is ready.
    pub(crate) fn read_answer(&mut self) -> io::Result<()> {
        let hello = self.flight();
        self.socket.write_all(&hello)?;
        while !self.tls.wants_write() {
            self.read_more()?;
        }
        Ok(())
    }

    /// Reads once; the end of the stream is an error.
    pub(crate) fn read_more(&mut self) -> io::Result<()> {
        if self.tls.read_tls(&mut self.socket)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let outcome =
            self.tls.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
        outcome.map(|_| ())
    }
}

/// The alert in a client's error.
pub(crate) fn alert(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

/// A successful connection, as seen by each end.
#[derive(Debug)]
pub(crate) struct Met {
    pub(crate) server: Negotiated,
    pub(crate) kind: HandshakeKind,
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) tickets: u32,
    /// The server's leaf, in DER.
    pub(crate) leaf: Vec<u8>,
}

/// A failed connection, as seen by each end.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) server: HandshakeError,
    pub(crate) client: io::Error,
}

/// Connects; after the handshake the server sends `hi` and closes, then the client closes.
pub(crate) fn connect(setup: &Setup, config: &Arc<ClientConfig>, name: &str) -> Result<Met, Box<Refused>> {
    let configs = setup.configs();
    let server = async |socket| {
        let (outcome, buffer) = accept(&socket, &configs, &CHOICE).await;
        let Established { session, negotiated, tickets, .. } = outcome?;
        let mut stream = TlsStream::new(socket, session, tickets, buffer, RecordSize::Adaptive);
        stream.write_all(b"hi").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        Ok(negotiated)
    };
    let (server, (client, tls)) = run(server, |socket| {
        let mut client = Client::new(config, name, socket);
        (client.converse(), client.tls)
    });
    match (server, client) {
        (Ok(server), Ok(got)) => {
            assert_eq!(got, b"hi");
            Ok(Met {
                server,
                kind: tls.handshake_kind().unwrap(),
                alpn: tls.alpn_protocol().map(<[u8]>::to_vec),
                tickets: tls.tls13_tickets_received(),
                leaf: tls.peer_certificates().unwrap()[0].to_vec(),
            })
        }
        (Err(server), Err(client)) => Err(Box::new(Refused { server, client })),
        (server, client) => panic!("the ends disagree: {server:?}, {client:?}"),
    }
}

/// [`connect`] with the usual name, which must succeed.
pub(crate) fn meet(setup: &Setup, config: &Arc<ClientConfig>) -> Met {
    connect(setup, config, NAME).unwrap()
}
