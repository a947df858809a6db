//! Requests to the process that orders: `offramp cert renew NAME` connects to a Unix socket in the state directory.
//!
//! One line goes in, `renew NAME`. A line for each certificate that has the name comes out when its order has ended:
//! `ok ` and until when it is valid, or `error ` and why there is none. The socket is open to the owner of the state
//! directory alone, and there is one only where certificates of authorities are kept.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use offramp_observe::visible;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::context::AcmeContext;
use super::keeper::Prompt;

/// Requests at a time.
const AT_ONCE: usize = 4;
/// The time limit of the line of a request.
const LINE: Duration = Duration::from_secs(10);
/// A name has at most 253 bytes.
const LONGEST: u64 = 512;
/// The interval between looks for a client that has sent its end.
const LOOK: Duration = Duration::from_secs(2);
/// After an error of `accept` or `bind`.
const AGAIN: Duration = Duration::from_secs(10);

/// The socket of the process that orders for this state directory.
#[must_use]
pub fn socket(state_dir: &Path) -> PathBuf {
    state_dir.join("acme").join("control.sock")
}

/// Answers requests, until it is aborted. This process has the right to order.
pub(super) async fn serve(context: Arc<AcmeContext>) {
    let path = context.storage.path().join("control.sock");
    let listener = match bind(&path) {
        Ok(listener) => listener,
        Err(error) => {
            let place = path.display().to_string();
            let fields = [("path", (&place).into()), ("reason", (&error).into())];
            context.log.warn("`offramp cert renew` cannot reach this process", &fields);
            return;
        }
    };
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        // The semaphore is never closed.
        let permit = Arc::clone(&permits).acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            sleep(AGAIN).await;
            continue;
        };
        let context = Arc::clone(&context);
        tokio::spawn(async move {
            let _permit = permit;
            // The requester may be gone.
            let _ = answer(stream, &context).await;
        });
    }
}

/// Binds in the place of a process that has ended: the right to order is ours.
fn bind(path: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // The directory is closed to others in any case.
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

/// Waits until the requester is gone: a request must not keep its place for as long as an order takes. One that only
/// says nothing more still wants its answer.
async fn gone(reader: &mut BufReader<OwnedReadHalf>, writer: &OwnedWriteHalf) {
    let mut more = [0; 64];
    while let Ok(1..) = reader.read(&mut more).await {}
    while !writer.ready(Interest::WRITABLE).await.is_ok_and(tokio::io::Ready::is_write_closed) {
        sleep(LOOK).await;
    }
}

async fn answer(stream: UnixStream, context: &AcmeContext) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let (mut reader, mut line) = (BufReader::new(reader), String::new());
    let read = timeout(LINE, (&mut reader).take(LONGEST).read_line(&mut line)).await;
    read.map_err(|_| std::io::ErrorKind::TimedOut)??;
    let Some(name) = line.trim_end().strip_prefix("renew ") else {
        return writer.write_all(b"error the request is none that is known\n").await;
    };
    let keepers = context.keepers_of(name);
    if keepers.is_empty() {
        let why = format!("error no certificate of an authority has the name {name}\n");
        return writer.write_all(why.as_bytes()).await;
    }
    let mut waiting = Vec::new();
    for keeper in keepers {
        let (sender, receiver) = oneshot::channel();
        waiting.push((keeper.try_send(Prompt::Renew(sender)).is_ok(), receiver));
    }
    for (sent, receiver) in waiting {
        let outcome = tokio::select! {
            outcome = receiver, if sent => outcome.ok(),
            () = gone(&mut reader, &writer), if sent => return Ok(()),
            else => None,
        };
        let text = match outcome {
            Some(Ok(until)) => format!("ok {until}"),
            Some(Err(why)) => format!("error {why}"),
            None => "error its order is busy with other requests, or it is no longer wanted".to_owned(),
        };
        // One line, whatever an authority has written.
        writer.write_all(format!("{}\n", visible(&text)).as_bytes()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use offramp_certs::acme::{KeyType, Subject};
    use offramp_observe::Log;
    use offramp_proxy::Challenges;
    use tokio::sync::mpsc;
    use tokio::task::spawn_blocking;

    use super::super::Want;
    use super::super::context::KeptCertificate;
    use super::*;

    /// Clients that have gone keep no place, and one that says nothing more gets its answer.
    #[tokio::test]
    async fn whoever_has_gone_keeps_no_place() {
        let folder = tempfile::tempdir().unwrap();
        let (obtained, _obtained) = mpsc::unbounded_channel();
        let context =
            AcmeContext::new(folder.path(), Challenges::none(), Arc::default(), Log::silent(), obtained);
        let (keeper, mut prompts) = mpsc::channel(2 * AT_ONCE);
        let subject = Subject::new(&["a.test"], KeyType::P256).unwrap();
        let want = Want { subject, reuse_key: false, authorities: Vec::new(), on_demand: None };
        context.set_keepers(vec![KeptCertificate { want, prompts: keeper }]);
        std::fs::create_dir_all(context.storage.path()).unwrap();
        tokio::spawn(serve(Arc::new(context)));
        let path = socket(folder.path());
        let ask = move || {
            let mut client = loop {
                match UnixStream::connect(&path) {
                    Ok(client) => break client,
                    Err(_) => std::thread::yield_now(),
                }
            };
            client.write_all(b"renew a.test\n").unwrap();
            client
        };
        let mut kept = Vec::new();
        for _ in 0..AT_ONCE {
            let client = spawn_blocking(ask.clone()).await.unwrap();
            // Its order goes on when it goes.
            kept.push(prompts.recv().await.unwrap());
            drop(client);
        }
        let mut client = spawn_blocking(ask).await.unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let Some(Prompt::Renew(answer)) = prompts.recv().await else {
            panic!("it waits for those that have gone")
        };
        answer.send(Ok("tomorrow".to_owned())).unwrap();
        let text = spawn_blocking(move || {
            let mut text = String::new();
            client.read_to_string(&mut text).map(|_| text)
        });
        assert_eq!(text.await.unwrap().unwrap(), "ok tomorrow\n");
    }
}
