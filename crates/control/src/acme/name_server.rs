//! Signed updates to a name server: over UDP, and over TCP where the answer does not come or does not fit.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use offramp_certs::acme::dns_update::{NoAnswer, PendingUpdate, TsigKey, Update, UpdateOutcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout, timeout_at};

/// The time limit of an answer over UDP, and the number of attempts.
const UDP: Duration = Duration::from_secs(3);
const TRIES: u32 = 2;
/// For the whole conversation over TCP.
const TCP: Duration = Duration::from_secs(15);
/// The largest datagram that is read; what is larger is truncated, and comes over TCP.
const DATAGRAM: usize = 4096;

/// Has the name server make the change. `id` is random.
pub(super) async fn update(
    server: SocketAddr,
    change: &Update<'_>,
    key: &TsigKey,
    id: u16,
) -> Result<(), String> {
    let outcome = converse(server, change, key, id).await;
    outcome.map_err(|reason| format!("the name server {server}, record {}: {reason}", change.name))
}

async fn converse(server: SocketAddr, change: &Update<'_>, key: &TsigKey, id: u16) -> Result<(), String> {
    let (message, pending) = change.signed(id, key, SystemTime::now())?;
    for _ in 0..TRIES {
        // No server there, or a lost datagram: TCP decides.
        match over_udp(server, &message, &pending).await {
            Ok(Some(UpdateOutcome::Done)) => return Ok(()),
            Ok(Some(UpdateOutcome::Refused(why))) => return Err(why),
            Ok(Some(UpdateOutcome::Truncated)) | Err(_) => break,
            Ok(None) => {}
        }
    }
    // Signed anew: the name server may have made the change, which it may make twice.
    let (message, pending) = change.signed(id, key, SystemTime::now())?;
    let answered = timeout(TCP, over_tcp(server, &message)).await;
    let answer = answered.map_err(|_| format!("no answer within {} s", TCP.as_secs()))?;
    let answer = answer.map_err(|error| error.to_string())?;
    match pending.check(&answer).map_err(|why: NoAnswer| why.to_string())? {
        UpdateOutcome::Done => Ok(()),
        UpdateOutcome::Refused(why) => Err(why),
        UpdateOutcome::Truncated => Err("the answer is truncated even over TCP".into()),
    }
}

/// Sends the message and waits for what answers it; nothing where nothing comes.
async fn over_udp(
    server: SocketAddr,
    message: &[u8],
    pending: &PendingUpdate,
) -> std::io::Result<Option<UpdateOutcome>> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(message).await?;
    let deadline = Instant::now() + UDP;
    let mut datagram = [0; DATAGRAM];
    while let Ok(received) = timeout_at(deadline, socket.recv(&mut datagram)).await {
        // What is none of ours may come from any sender.
        if let Ok(answer) = pending.check(&datagram[..received?]) {
            return Ok(Some(answer));
        }
    }
    Ok(None)
}

/// Sends a message over a connection, and reads the answer (RFC 7766 §8). The caller bounds the time; the length bounds the
/// size.
pub(super) async fn over_tcp(server: SocketAddr, message: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    // A message is far smaller than 64 KiB.
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    stream.write_all(&[&length.to_be_bytes()[..], message].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; length.into()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
