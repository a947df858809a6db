//! The answer to a head that is no request.

use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use offramp_observe::Close;
use offramp_observe::facts::{HttpVersion, RequestLine};

use super::TICK;
use crate::l7::answer::{Refusal, written_error};
use crate::l7::intake::Intake;
use crate::l7::record::Record;
use crate::l7::session::Session;

/// How much of the request line of a refused request is reported.
const LONGEST_TOLD: usize = 512;

/// Answers a request that was never served, of which this `came`, and tells of it.
pub(super) async fn refuse(
    session: &Rc<Session>,
    intake: &mut Intake,
    refusal: &Refusal,
    came: &[u8],
) -> Close {
    let id = session.next_id();
    let record = Record::new(session, told_line(session, came), id.clone(), Duration::ZERO);
    session.newborn.take();
    record.answered(refusal.status.as_u16());
    let bytes = written_error(refusal, &id);
    let sending = poll_fn(|cx| {
        let mut gone = 0;
        while gone < bytes.len() {
            match intake.transport.poll_write_vectored(cx, &[IoSlice::new(&bytes[gone..])]) {
                Poll::Ready(Ok(n)) => gone += n,
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
        intake.transport.poll_flush(cx)
    });
    // One that takes nothing needs no answer.
    let _ = tokio::time::timeout(TICK, sending).await;
    record.end(refusal.close.clone());
    refusal.close.clone()
}

/// What can be reported of a request whose head was refused.
fn told_line(session: &Session, came: &[u8]) -> RequestLine {
    let line =
        came.split(|byte| matches!(byte, b'\r' | b'\n')).find(|line| !line.is_empty()).unwrap_or_default();
    let text = String::from_utf8_lossy(&line[..line.len().min(LONGEST_TOLD)]);
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    RequestLine {
        method: words.next().unwrap_or_default().to_owned().into(),
        scheme: session.scheme,
        host: Arc::default(),
        target: words.next().unwrap_or_default().into(),
        version: HttpVersion::Http11,
        referer: None,
        user_agent: None,
        user: None,
    }
}
