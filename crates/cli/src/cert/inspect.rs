//! `cert inspect`: a chain as a client gets it, and what is wrong with it.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use offramp_certs::anchors::{Anchors, server_verifier};
use offramp_certs::client_auth::load_roots;
use offramp_certs::explain::{TlsPeer, stream_error, tls_error};
use offramp_certs::inspect::{self, date, validity_in_words};
use offramp_wire::postgres::{Answer, SSL_REQUEST};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};

use crate::failure::Failure;
use crate::flags::cert::{Inspect, StartTls};
use crate::surroundings::print;

/// For each address of the server to be connected, and for each step of the handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where systems keep the authorities that they trust.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Prints the chain and what is wrong with it.
///
/// # Errors
/// There is no chain to be had, or something is wrong with it.
pub(super) fn inspect(arguments: &Inspect) -> Result<(), Failure> {
    let now = SystemTime::now();
    let file = Path::new(&arguments.target);
    let (chain, host) = if file.exists() {
        let chain = inspect::chain_of_file(file).map_err(|error| failed(&error))?;
        (chain, arguments.name.clone())
    } else {
        let (host, port) = place(&arguments.target)?;
        let name = arguments.name.clone().unwrap_or_else(|| host.to_owned());
        (fetch(host, port, &name, arguments.starttls)?, Some(name))
    };
    let mut text = String::new();
    for (index, der) in chain.iter().enumerate() {
        describe(index, der, now, &mut text);
    }
    let anchors = anchors(arguments.ca.as_deref(), now)?;
    let trusted = anchors.as_ref().map_or(&[][..], |anchors| anchors.exact.certificates());
    let mut faults = inspect::faults(&chain, host.as_deref(), trusted, now);
    if let Some(anchors) = &anchors {
        let whose = if arguments.ca.is_some() { "the authorities of --ca do" } else { "this machine does" };
        let untrusted = trust(&chain, host.as_deref(), anchors, now)?;
        faults.extend(untrusted.map(|why| format!("{whose} not trust it: {why}")));
    }
    if faults.is_empty() {
        text.push_str("nothing is wrong with it\n");
        return print(text.as_bytes());
    }
    for fault in &faults {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "wrong: {fault}");
    }
    print(text.as_bytes())?;
    let many = if faults.len() == 1 {
        "1 thing is wrong".to_owned()
    } else {
        format!("{} things are wrong", faults.len())
    };
    Err(Failure::runtime(many))
}

fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::runtime(format_args!("error: {error}"))
}

/// The host and the port of what is no file.
fn place(target: &str) -> Result<(&str, u16), Failure> {
    let parsed = target.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = parsed.ok_or_else(|| {
        Failure::usage(format_args!("error: there is no file `{target}`; for a server write HOST:PORT"))
    })?;
    Ok((host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port))
}

fn describe(index: usize, der: &CertificateDer<'_>, now: SystemTime, text: &mut String) {
    let Ok(one) = inspect::read(der) else { return };
    let kind = if one.is_ca { "authority" } else { "certificate" };
    let names = if one.names.is_empty() { "none".to_owned() } else { one.names.join(", ") };
    let _ = writeln!(
        text,
        "{index}: {kind} {}\n   names:   {names}\n   issuer:  {}\n   valid:   {} to {}: {}\n   key:     {}, signed with {}\n   serial:  {}",
        one.subject,
        one.issuer,
        date(one.not_before),
        date(one.not_after),
        validity_in_words(one.not_before, one.not_after, now),
        one.key,
        one.signature,
        one.serial
    );
}

/// Why clients of this machine would not trust the chain, if that can be said. What is wrong with dates and names was
/// told in better words.
fn trust(
    chain: &[CertificateDer<'static>],
    host: Option<&str>,
    anchors: &Anchors,
    now: SystemTime,
) -> Result<Option<String>, Failure> {
    let verifier = server_verifier(anchors, &provider()).map_err(|error| failed(&error))?;
    let names = chain.first().and_then(|leaf| inspect::read(leaf).ok()).map(|leaf| leaf.names);
    // A file is asked about for whatever name it has.
    let first = names.and_then(|names| names.into_iter().next()).map(|name| name.replace('*', "any"));
    let Some(name) = host.map(str::to_owned).or(first).and_then(|name| ServerName::try_from(name).ok())
    else {
        return Ok(None);
    };
    let Some((leaf, rest)) = chain.split_first() else { return Ok(None) };
    let time = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let verdict = verifier.verify_server_cert(leaf, rest, &name, &[], UnixTime::since_unix_epoch(time));
    let untrusted = |error: &Error| {
        matches!(
            error,
            Error::InvalidCertificate(
                rustls::CertificateError::UnknownIssuer | rustls::CertificateError::BadSignature
            )
        )
    };
    Ok(verdict.err().filter(untrusted).map(|error| tls_error(&error, TlsPeer::Server)))
}

/// The certificates to trust: those that were named, else the system's, if it has any.
fn anchors(ca: Option<&Path>, now: SystemTime) -> Result<Option<Anchors>, Failure> {
    let path = match ca {
        Some(path) => path.to_owned(),
        None => match SYSTEM.map(PathBuf::from).into_iter().find(|path| path.exists()) {
            Some(path) => path,
            None => return Ok(None),
        },
    };
    load_roots(&path, now).map(|loaded| Some(loaded.anchors)).map_err(|error| failed(&error))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The chain that a server sends.
fn fetch(
    host: &str,
    port: u16,
    name: &str,
    starttls: Option<StartTls>,
) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let server = ServerName::try_from(name.to_owned());
    let server = server.map_err(|_| Failure::usage(format_args!("error: `{name}` is not a server name")))?;
    let mut stream = connect(host, port)?;
    if let Some(StartTls::Postgres) = starttls {
        let declined = |why| Failure::runtime(format_args!("error: no TLS with {host}:{port}: {why}"));
        ask_postgres(&mut stream).map_err(declined)?;
    }
    let chain = Arc::new(Seen::new());
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| failed(&error))?.dangerous();
    let config = builder.with_custom_certificate_verifier(Arc::clone(&chain) as _).with_no_client_auth();
    let client = ClientConnection::new(Arc::new(config), server).map_err(|error| failed(&error))?;
    let outcome = shake_hands(client, stream);
    let seen = std::mem::take(&mut *chain.chain.lock().unwrap_or_else(PoisonError::into_inner));
    match outcome {
        // That the server wants a certificate, say, comes after its own.
        Err(error) if seen.is_empty() => {
            let error = stream_error(&error);
            Err(Failure::runtime(format_args!("error: no handshake with {host}:{port}: {error}")))
        }
        _ => Ok(seen),
    }
}

fn connect(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let refused = |error: &std::io::Error| {
        Failure::runtime(format_args!("error: cannot connect to {host}:{port}: {error}"))
    };
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in (host, port).to_socket_addrs().map_err(|error| refused(&error))?.take(MOST_ADDRESSES) {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(refused(&last))
}

/// The most addresses of a name that are tried.
const MOST_ADDRESSES: usize = 4;

/// Asks for TLS as a client of PostgreSQL does. Only the byte that grants it is read.
fn ask_postgres(stream: &mut TcpStream) -> Result<(), String> {
    let mut byte = [0];
    let asked = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| io::Write::write_all(stream, &SSL_REQUEST))
        .and_then(|()| stream.read_exact(&mut byte));
    asked.map_err(|error| format!("it does not answer SSLRequest: {error}"))?;
    match Answer::of(byte[0]) {
        Answer::Accepts => Ok(()),
        Answer::Declines => Err("the server answers N to SSLRequest: it offers no TLS here".to_owned()),
        Answer::Error => Err("the server answers SSLRequest with an error message".to_owned()),
        Answer::Unknown(byte) => {
            Err(format!("the server answers SSLRequest with the byte {byte:#04x}, which is not PostgreSQL"))
        }
    }
}

fn shake_hands(mut client: ClientConnection, mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let deadline = std::time::Instant::now() + PATIENCE;
    while client.is_handshaking() {
        if std::time::Instant::now() > deadline {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        if client.wants_write() {
            client.write_tls(&mut stream)?;
            continue;
        }
        if client.read_tls(&mut stream)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        client.process_new_packets().map_err(std::io::Error::other)?;
    }
    Ok(())
}

/// Keeps the chain that a server shows. Whether it is trusted is asked afterwards: a bad one is what people look at.
#[derive(Debug)]
struct Seen {
    chain: Mutex<Vec<CertificateDer<'static>>>,
    provider: Arc<CryptoProvider>,
}

impl Seen {
    fn new() -> Self {
        Self { chain: Mutex::default(), provider: provider() }
    }
}

impl ServerCertVerifier for Seen {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let all = std::iter::once(leaf).chain(rest).map(|der| der.clone().into_owned());
        *self.chain.lock().unwrap_or_else(PoisonError::into_inner) = all.collect();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
