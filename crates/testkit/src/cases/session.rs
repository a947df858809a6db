//! A client in the middle of a case, with the account of what the server must have echoed.

use std::net::{Shutdown, TcpStream};

use crate::Error;
use crate::tls_client::{Alert, Client, End, Event, Options, Received, Seal};

/// One encounter. Cases speak through `client` when they send what no server echoes, and through the
/// methods here when the bytes count as echoed.
pub struct Session {
    /// The client.
    pub client: Client<TcpStream>,
    /// What the server has to echo, so far.
    pub(super) sent: Vec<u8>,
    /// What it has echoed, so far.
    pub(super) echoed: Vec<u8>,
    /// The last alert of the server.
    pub(super) alert: Option<Alert>,
}

impl Session {
    pub(super) fn new(stream: TcpStream, options: Options) -> Result<Self, Error> {
        let client = Client::new(stream, options)?;
        Ok(Self { client, sent: Vec::new(), echoed: Vec::new(), alert: None })
    }

    /// Replaces the client by one with other options, on the same connection. Before anything is sent.
    ///
    /// # Errors
    /// What cloning the socket says.
    pub(super) fn reconfigure(&mut self, change: impl FnOnce(&mut Options)) -> Result<(), Error> {
        let mut options = Options::new(self.client.suite());
        change(&mut options);
        let stream = self.client.stream().try_clone()?;
        self.client = Client::new(stream, options)?;
        Ok(())
    }

    /// A complete handshake.
    pub(super) fn handshake(&mut self) -> Result<(), Error> {
        self.client.handshake()
    }

    /// Everything of the handshake that comes before the client's Finished, without the
    /// change_cipher_spec that TLS 1.3 does not need.
    pub(super) fn until_finished(&mut self) -> Result<(), Error> {
        self.client.send_hello()?;
        self.client.receive_server_flight()?;
        self.client.send_key_exchange()
    }

    /// Sends Finished as it should be, after a case has sent something else before it.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        let finished = self.client.finished();
        self.client.send(&Seal::handshake(&finished))?;
        self.client.complete(&finished)
    }

    /// Seals data that will be echoed, in one record; unsent.
    pub(super) fn seal_data(&mut self, payload: &[u8]) -> Vec<u8> {
        self.seal_echoed(payload, &Seal::data(payload))
    }

    /// Seals data that will be echoed, in a record of a special shape; unsent.
    pub(super) fn seal_echoed(&mut self, payload: &[u8], seal: &Seal) -> Vec<u8> {
        self.sent.extend_from_slice(payload);
        self.client.seal(seal)
    }

    /// Sends data that will be echoed.
    pub(super) fn data(&mut self, payload: &[u8]) -> Result<(), Error> {
        let record = self.seal_data(payload);
        self.client.write_raw(&record)
    }

    /// Sends data that will be echoed, in a record of a special shape.
    pub(super) fn echoed(&mut self, payload: &[u8], seal: &Seal) -> Result<(), Error> {
        let record = self.seal_echoed(payload, seal);
        self.client.write_raw(&record)
    }

    /// Sends a record that nobody echoes.
    pub(super) fn send(&mut self, seal: &Seal) -> Result<(), Error> {
        self.client.send(seal)
    }

    /// Sends bytes as they are.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.client.write_raw(bytes)
    }

    /// Closes the sending side of the TCP connection.
    pub(super) fn shutdown(&mut self) -> Result<(), Error> {
        Ok(self.client.stream().shutdown(Shutdown::Write)?)
    }

    /// Waits until the server has echoed all that was sent.
    pub(super) fn await_echo(&mut self) -> Result<(), Error> {
        while !self.echo_is_whole() {
            if let Some(end) = self.receive()? {
                return Err(Error::Ended(end));
            }
        }
        Ok(())
    }

    /// Whether the server has echoed all that it should, and nothing else.
    pub(super) fn echo_is_whole(&self) -> bool {
        self.echoed == self.sent
    }

    /// Takes in one event; an end is given back. Alerts are kept, and are no error.
    pub(super) fn receive(&mut self) -> Result<Option<End>, Error> {
        match self.client.receive()? {
            Received::Event(Event::Data(bytes)) => {
                self.echoed.extend_from_slice(&bytes);
                if !self.sent.starts_with(&self.echoed) {
                    return Err(Error::Peer("the echo is not what was sent".into()));
                }
            }
            Received::Event(Event::Alert(alert)) => self.alert = Some(alert),
            Received::Event(Event::Handshake { .. } | Event::ChangeCipherSpec) => {}
            Received::End(end) => return Ok(Some(end)),
        }
        Ok(None)
    }
}
