//! One client connection: rustls for the handshake, then a bare TLS 1.3 record layer on `ring`, which
//! copies nothing that it need not copy, so that the client stays cheaper than the proxy.
//!
//! Every byte is still opened and authenticated. Key updates are refused: no run is long enough for one.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::SupportedKxGroup;
use rustls::{ClientConfig, ClientConnection, ConnectionTrafficSecrets, HandshakeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{Error, Result};
use crate::load::tls::{Stock, server_name};

const HEADER: usize = 5;
const TAG: usize = 16;
/// RFC 8446 §5.1.
const MAX_PLAINTEXT: usize = 16 * 1024;
/// RFC 8446 §5.2: the most that a record may hold after its header.
const MAX_CIPHERTEXT: usize = MAX_PLAINTEXT + 256;
/// A batch of records sealed before one write.
const BATCH: usize = 16 * (HEADER + MAX_PLAINTEXT + 1 + TAG);

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// A connection whose handshake is done but whose keys rustls still has.
#[derive(Debug)]
pub(crate) struct Fresh {
    input: Input,
    tls: ClientConnection,
}

impl Fresh {
    /// Connects and shakes hands.
    ///
    /// # Errors
    /// What the connection or the handshake failed of.
    pub(crate) async fn connect(target: SocketAddr, config: &Arc<ClientConfig>) -> Result<Self> {
        let tcp = TcpStream::connect(target).await.map_err(|e| Error::io("connecting", e))?;
        tcp.set_nodelay(true).map_err(|e| Error::io("setting TCP_NODELAY", e))?;
        let tls = ClientConnection::new(Arc::clone(config), server_name())?;
        let mut fresh = Self { input: Input { tcp, buffer: Vec::new(), start: 0 }, tls };
        loop {
            fresh.flush().await?;
            if !fresh.tls.is_handshaking() {
                fresh.check_group(config)?;
                return Ok(fresh);
            }
            if !fresh.feed().await? {
                return Err(Error::Tls("the proxy closed the connection in the handshake".into()));
            }
        }
    }

    /// The first group of the configuration is the one that is measured; others only please certificates.
    fn check_group(&self, config: &ClientConfig) -> Result<()> {
        let wanted = config.crypto_provider().kx_groups.first().map(|group| group.name());
        match self.tls.negotiated_key_exchange_group().map(SupportedKxGroup::name) {
            Some(group) if Some(group) != wanted => Err(Error::Tls(format!("the proxy chose {group:?}"))),
            _ => Ok(()),
        }
    }

    /// Whether a session was resumed.
    pub(crate) fn resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Reads on until a ticket came and went to `stock`.
    ///
    /// # Errors
    /// When the proxy closes without giving one.
    pub(crate) async fn ticket(&mut self, stock: &Stock) -> Result<()> {
        while let Some(length) = self.input.record().await? {
            // Nothing waits between the two looks, so that what came is this connection's.
            let before = stock.given();
            self.take(length)?;
            if stock.given() > before {
                return Ok(());
            }
        }
        Err(Error::Tls("the proxy gave no ticket".into()))
    }

    /// Sends close_notify and the end of the stream, then waits until the proxy has closed too.
    ///
    /// # Errors
    /// When writing fails; a reset while waiting is an end like any other.
    pub(crate) async fn close(mut self) -> Result<()> {
        self.tls.send_close_notify();
        self.flush().await?;
        self.input.drain().await;
        Ok(())
    }

    /// Takes the keys over.
    ///
    /// # Errors
    /// When the connection is not TLS 1.3 with AES-128-GCM.
    pub(crate) fn into_conn(self) -> Result<Conn> {
        let secrets = self.tls.dangerous_extract_secrets()?;
        let (send, receive) = (Key::new(secrets.tx)?, Key::new(secrets.rx)?);
        Ok(Conn { input: self.input, send, receive, output: Vec::new() })
    }

    async fn flush(&mut self) -> Result<()> {
        let mut output = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut output).map_err(|e| Error::io("writing a handshake", e))?;
        }
        self.input.tcp.write_all(&output).await.map_err(|e| Error::io("sending", e))
    }

    /// Gives rustls one whole record and no more, so that nothing after the handshake is lost in it.
    /// False at the end of the stream.
    async fn feed(&mut self) -> Result<bool> {
        let Some(length) = self.input.record().await? else { return Ok(false) };
        self.take(length)?;
        Ok(true)
    }

    /// Hands the record of `length` bytes to rustls.
    fn take(&mut self, length: usize) -> Result<()> {
        let mut record = &self.input.buffer[self.input.start..self.input.start + length];
        while !record.is_empty() {
            self.tls.read_tls(&mut record).map_err(|e| Error::io("reading a handshake", e))?;
            self.tls.process_new_packets()?;
        }
        self.input.start += length;
        Ok(())
    }
}

/// A connection that exchanges application data.
#[derive(Debug)]
pub(crate) struct Conn {
    input: Input,
    send: Key,
    receive: Key,
    output: Vec<u8>,
}

impl Conn {
    /// Connects, shakes hands, takes the keys.
    ///
    /// # Errors
    /// As `Fresh::connect` and `Fresh::into_conn`.
    pub(crate) async fn connect(target: SocketAddr, config: &Arc<ClientConfig>) -> Result<Self> {
        Fresh::connect(target, config).await?.into_conn()
    }

    /// Sends `request` and waits for `response` bytes.
    ///
    /// # Errors
    /// When the connection ends first, or a record does not open.
    pub(crate) async fn exchange(&mut self, request: &[u8], response: usize) -> Result<()> {
        self.write(request).await?;
        self.read(response).await
    }

    /// Seals and sends plaintext in records of 16 KiB.
    ///
    /// # Errors
    /// When sending fails.
    pub(crate) async fn write(&mut self, plaintext: &[u8]) -> Result<()> {
        self.output.clear();
        for piece in plaintext.chunks(MAX_PLAINTEXT) {
            self.send.seal(DATA, piece, &mut self.output)?;
            if self.output.len() + HEADER + MAX_PLAINTEXT + 1 + TAG > BATCH {
                self.flush().await?;
            }
        }
        self.flush().await
    }

    /// Opens records until `wanted` plaintext bytes have come, and forgets them.
    ///
    /// # Errors
    /// When the stream ends first, more comes than was asked for, or a record does not open.
    pub(crate) async fn read(&mut self, wanted: usize) -> Result<()> {
        let mut missing = wanted;
        while missing > 0 {
            let got = self.read_record().await?.ok_or_else(|| Error::Tls("closed by the proxy".into()))?;
            let got = got.len();
            missing = missing
                .checked_sub(got)
                .ok_or_else(|| Error::Tls(format!("{got} bytes came where {missing} were missing")))?;
        }
        Ok(())
    }

    /// Reads one HTTP/1.1 response with a Content-Length, and forgets it.
    ///
    /// # Errors
    /// As [`Conn::read`]; where the response is none, or says another status than 200.
    pub(crate) async fn read_response(&mut self) -> Result<()> {
        const LONGEST: usize = 16 * 1024;
        let mut text = Vec::new();
        loop {
            let got = self.read_record().await?.ok_or_else(|| Error::Tls("closed by the proxy".into()))?;
            text.extend_from_slice(&self.input.buffer[got]);
            if let Some(end) = text.windows(4).position(|four| four == b"\r\n\r\n") {
                let length = content_length(&text[..end])?;
                let missing = length.checked_sub(text.len() - end - 4);
                let missing = missing.ok_or_else(|| Error::Tls("more came than the response says".into()))?;
                return self.read(missing).await;
            }
            if text.len() > LONGEST {
                return Err(Error::Tls("a response without an end of its head".into()));
            }
        }
    }

    /// Sends close_notify and the end of the stream, then waits until the proxy has closed too.
    ///
    /// # Errors
    /// When writing fails.
    pub(crate) async fn close(mut self) -> Result<()> {
        self.output.clear();
        self.send.seal(ALERT, &[1, 0], &mut self.output)?;
        self.flush().await?;
        self.input.drain().await;
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        self.input.tcp.write_all(&self.output).await.map_err(|e| Error::io("sending", e))?;
        self.output.clear();
        Ok(())
    }

    /// Where the application bytes of the next record lie until the one after it is read, empty for a
    /// ticket; none at the end.
    async fn read_record(&mut self) -> Result<Option<Range<usize>>> {
        let Some(length) = self.input.record().await? else { return Ok(None) };
        let start = self.input.start;
        self.input.start += length;
        let record = &mut self.input.buffer[start..start + length];
        match self.receive.open(record)? {
            (DATA, length) => Ok(Some(start + HEADER..start + HEADER + length)),
            // Tickets; a KeyUpdate (RFC 8446 §4.6.3) would be of type 24.
            (HANDSHAKE, _) if record.get(HEADER) != Some(&24) => Ok(Some(0..0)),
            (ALERT, _) => Ok(None),
            (other, _) => Err(Error::Tls(format!("a record of type {other} was not expected"))),
        }
    }
}

/// The Content-Length of a response head of status 200.
fn content_length(head: &[u8]) -> Result<usize> {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    match length {
        Some(length) if status.starts_with("HTTP/1.1 200") => Ok(length),
        _ => Err(Error::Tls(format!("the response {status:?} was not expected"))),
    }
}

/// Ciphertext as it comes; the buffer belongs to a connection only while it holds something.
#[derive(Debug)]
struct Input {
    tcp: TcpStream,
    buffer: Vec<u8>,
    start: usize,
}

impl Input {
    /// The length of the whole record that begins at `start`, reading until it is there.
    async fn record(&mut self) -> Result<Option<usize>> {
        loop {
            let waiting = &self.buffer[self.start..];
            if waiting.len() >= HEADER {
                let length = usize::from(u16::from_be_bytes([waiting[3], waiting[4]]));
                if length > MAX_CIPHERTEXT {
                    return Err(Error::Tls(format!("a record of {length} bytes")));
                }
                if waiting.len() >= HEADER + length {
                    return Ok(Some(HEADER + length));
                }
            }
            if self.start > 0 {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            // Bulk transfers deserve large reads; a connection that waits for ten bytes does not.
            let room = if self.buffer.len() >= HEADER { 256 * 1024 } else { 4096 };
            self.buffer.reserve(room);
            let count = self.tcp.read_buf(&mut self.buffer).await.map_err(|e| Error::io("receiving", e))?;
            if count == 0 {
                return Ok(None);
            }
        }
    }

    /// Ends the own side and reads to the end of the other.
    async fn drain(&mut self) {
        let _ = self.tcp.shutdown().await;
        self.buffer.clear();
        while matches!(self.tcp.read_buf(&mut self.buffer).await, Ok(1..)) {
            self.buffer.clear();
        }
    }
}

/// One direction of TLS 1.3 AES-128-GCM record protection.
struct Key {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl Key {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self> {
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
            return Err(Error::Tls("the suite is not AES-128-GCM".into()));
        };
        let unbound = UnboundKey::new(&AES_128_GCM, key.as_ref())
            .map_err(|_| Error::Tls("the key has the wrong length".into()))?;
        let iv = iv.as_ref().try_into().map_err(|_| Error::Tls("the iv has the wrong length".into()))?;
        Ok(Self { key: LessSafeKey::new(unbound), iv, sequence })
    }

    /// RFC 8446 §5.3.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, count) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= count;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Appends one record (RFC 8446 §5.2) to `output`.
    fn seal(&mut self, kind: u8, plaintext: &[u8], output: &mut Vec<u8>) -> Result<()> {
        let length = u16::try_from(plaintext.len() + 1 + TAG).unwrap_or(u16::MAX).to_be_bytes();
        let header = [DATA, 3, 3, length[0], length[1]];
        output.extend_from_slice(&header);
        let body = output.len();
        output.extend_from_slice(plaintext);
        output.push(kind);
        let nonce = self.nonce();
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(header), &mut output[body..])
            .map_err(|_| Error::Tls("sealing failed".into()))?;
        output.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// Opens one whole record in place; its type and the length of its content.
    fn open(&mut self, record: &mut [u8]) -> Result<(u8, usize)> {
        let (header, body) = record.split_at_mut(HEADER);
        let nonce = self.nonce();
        let inner = self
            .key
            .open_in_place(nonce, Aad::from(&*header), body)
            .map_err(|_| Error::Tls("a record did not open".into()))?;
        let end =
            inner.iter().rposition(|&byte| byte != 0).ok_or_else(|| Error::Tls("an empty record".into()))?;
        Ok((inner[end], end))
    }
}
