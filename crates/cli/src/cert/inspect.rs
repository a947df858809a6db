//! `cert inspect`: the chain that a client gets, and its faults.

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
use offramp_certs::server_verifier::{ByRule, ChainRule, ShownChain};
use offramp_wire::postgres::{SSL_REQUEST, SslReply};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, Error};

use crate::failure::Failure;
use crate::flags::cert::{Inspect, StartTls};
use crate::surroundings::print;

/// Timeout of a connection attempt per address, and of the handshake as a whole.
const TIMEOUT: Duration = Duration::from_secs(10);

/// CA bundles of common distributions, in the order in which they are tried.
const SYSTEM_BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Prints the chain and its faults.
///
/// # Errors
/// No chain could be read or fetched, or it has a fault.
pub(super) fn inspect(arguments: &Inspect) -> Result<(), Failure> {
    let now = SystemTime::now();
    let file = Path::new(&arguments.target);
    let (chain, host) = if file.exists() {
        let chain = inspect::chain_of_file(file).map_err(|error| failed(&error))?;
        (chain, arguments.name.clone())
    } else {
        let (host, port) = host_and_port(&arguments.target)?;
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

/// Splits `HOST:PORT`; brackets of an IPv6 address are removed.
fn host_and_port(target: &str) -> Result<(&str, u16), Failure> {
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

/// Verifies the chain against `anchors` and returns the reason if it is untrusted. Expiry and name mismatches
/// are left out: [`inspect::faults`] describes them better. `None` also if there is no name to verify.
fn trust(
    chain: &[CertificateDer<'static>],
    host: Option<&str>,
    anchors: &Anchors,
    now: SystemTime,
) -> Result<Option<String>, Failure> {
    let verifier = server_verifier(anchors, &provider()).map_err(|error| failed(&error))?;
    let names = chain.first().and_then(|leaf| inspect::read(leaf).ok()).map(|leaf| leaf.names);
    // A file without --name is verified for the first name of its certificate.
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

/// Trust anchors of `--ca`, else of the system; `None` if the system has no known bundle.
fn anchors(ca: Option<&Path>, now: SystemTime) -> Result<Option<Anchors>, Failure> {
    let path = match ca {
        Some(path) => path.to_owned(),
        None => match SYSTEM_BUNDLES.map(PathBuf::from).into_iter().find(|path| path.exists()) {
            Some(path) => path,
            None => return Ok(None),
        },
    };
    load_roots(&path, now).map(|loaded| Some(loaded.anchors)).map_err(|error| failed(&error))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Fetches the chain of a server. The chain counts even if the handshake fails afterwards.
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
    let seen = Arc::new(ByRule::new(CapturedChain::default(), &provider()));
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| failed(&error))?.dangerous();
    let config = builder.with_custom_certificate_verifier(Arc::clone(&seen) as _).with_no_client_auth();
    let client = ClientConnection::new(Arc::new(config), server).map_err(|error| failed(&error))?;
    let outcome = complete_handshake(client, stream);
    let seen = std::mem::take(&mut *seen.rule().0.lock().unwrap_or_else(PoisonError::into_inner));
    match outcome {
        // A failure after the certificate message, such as a missing client certificate, does not matter.
        Err(error) if seen.is_empty() => {
            let error = stream_error(&error);
            let advice = if starttls.is_none() && is_postgres(host, port) { POSTGRES_ADVICE } else { "" };
            Err(Failure::runtime(format_args!("error: no handshake with {host}:{port}: {error}{advice}")))
        }
        _ => Ok(seen),
    }
}

const POSTGRES_ADVICE: &str =
    "\nThe server speaks PostgreSQL, whose clients ask for TLS first: add --starttls postgres";

/// Returns true if a server that refused a handshake answers like PostgreSQL.
fn is_postgres(host: &str, port: u16) -> bool {
    connect(host, port).is_ok_and(|mut stream| {
        matches!(answer_of_postgres(&mut stream), Ok(SslReply::Accepts | SslReply::Declines))
    })
}

fn connect(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let refused = |error: &std::io::Error| {
        Failure::runtime(format_args!("error: cannot connect to {host}:{port}: {error}"))
    };
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in (host, port).to_socket_addrs().map_err(|error| refused(&error))?.take(MAX_ADDRESSES) {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(refused(&last))
}

/// Bound on the addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;

/// Sends a PostgreSQL SSLRequest and reads the one byte of its answer; nothing after it may be consumed.
fn answer_of_postgres(stream: &mut TcpStream) -> io::Result<SslReply> {
    let mut byte = [0];
    stream.set_read_timeout(Some(TIMEOUT))?;
    io::Write::write_all(stream, &SSL_REQUEST)?;
    stream.read_exact(&mut byte)?;
    Ok(SslReply::of(byte[0]))
}

fn ask_postgres(stream: &mut TcpStream) -> Result<(), String> {
    match answer_of_postgres(stream).map_err(|error| format!("it does not answer SSLRequest: {error}"))? {
        SslReply::Accepts => Ok(()),
        SslReply::Declines => Err("the server answers N to SSLRequest: it offers no TLS here".to_owned()),
        SslReply::Error => Err("the server answers SSLRequest with an error message".to_owned()),
        SslReply::Unknown(byte) => {
            Err(format!("the server answers SSLRequest with the byte {byte:#04x}, which is not PostgreSQL"))
        }
    }
}

fn complete_handshake(mut client: ClientConnection, mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let deadline = std::time::Instant::now() + TIMEOUT;
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

/// Verifier that records the chain and accepts everything: users inspect bad chains in particular, and trust
/// is evaluated afterwards.
#[derive(Debug, Default)]
struct CapturedChain(Mutex<Vec<CertificateDer<'static>>>);

impl ChainRule for CapturedChain {
    fn judge(&self, chain: ShownChain<'_>) -> Result<(), Error> {
        let all = std::iter::once(chain.leaf).chain(chain.rest).map(|der| der.clone().into_owned());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all.collect();
        Ok(())
    }
}
