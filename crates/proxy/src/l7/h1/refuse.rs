//! The answer to a head that is no request.

use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use offramp_observe::Close;
use offramp_observe::facts::{HttpVersion, RequestSummary};

use super::TICK;
use crate::l7::answer::{ErrorReply, written_error};
use crate::l7::intake::RequestReader;
use crate::l7::record::RequestRecord;
use crate::l7::session::Session;

/// The bytes of the request line of a refused request that are reported.
const LONGEST_TOLD: usize = 512;

/// Answers a request that was never served, of which this `came`, and tells of it.
pub(super) async fn refuse(
    session: &Rc<Session>,
    intake: &mut RequestReader,
    refusal: &ErrorReply,
    came: &[u8],
) -> Close {
    let id = session.next_id();
    let record = RequestRecord::new(session, told_line(session, came), id.clone(), Duration::ZERO);
    session.requests.unclaimed.take();
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

/// The line of a request with a refused head. Other protocols have neither method nor target: figures by method
/// would get a row for each word that a scanner tries.
fn told_line(session: &Session, came: &[u8]) -> RequestSummary {
    let line =
        came.split(|byte| matches!(byte, b'\r' | b'\n')).find(|line| !line.is_empty()).unwrap_or_default();
    let (method, target) = words(&line[..line.len().min(LONGEST_TOLD)]).unwrap_or_default();
    RequestSummary {
        method: method.into(),
        scheme: session.scheme,
        host: Arc::default(),
        target: target.into(),
        version: HttpVersion::Http11,
        referer: None,
        user_agent: None,
        user: None,
    }
}

/// Method and target of a line that is meant to be HTTP: it begins with a method of RFC 9110 or PATCH, or says which version of
/// HTTP it is.
fn words(line: &[u8]) -> Option<(String, String)> {
    let text = String::from_utf8_lossy(line);
    let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    let (method, rest) = words.split_first()?;
    let is_token = !method.is_empty() && method.bytes().all(is_tchar);
    let says_http = rest.last().is_some_and(|last| last.starts_with("HTTP/"));
    (METHODS.contains(method) || is_token && says_http)
        .then(|| ((*method).to_owned(), rest.first().copied().unwrap_or_default().to_owned()))
}

/// Returns true for characters of a token (RFC 9110 §5.6.2).
fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_protocols_have_no_method() {
        for (line, expected) in [
            ("GET / HTTP/1.1", Some(("GET", "/"))),
            ("GET  /a b HTTP/1.1", Some(("GET", "/a"))),
            ("GET /old", Some(("GET", "/old"))),
            ("POST", Some(("POST", ""))),
            ("PROPFIND /dav HTTP/1.1", Some(("PROPFIND", "/dav"))),
            ("BREW /pot HTTP/9", Some(("BREW", "/pot"))),
            ("SSH-2.0-OpenSSH_9.2", None),
            ("EHLO scanner.example", None),
            ("USER anonymous", None),
            ("get / http/1.1", None),
            ("OPTIONS", Some(("OPTIONS", ""))),
            ("\u{16}\u{3}\u{1}\u{2}", None),
            ("(x) / HTTP/1.1", None),
            ("stats", None),
            ("", None),
        ] {
            let got = words(line.as_bytes());
            let got = got.as_ref().map(|(method, target)| (method.as_str(), target.as_str()));
            assert_eq!(got, expected, "{line:?}");
        }
    }
}
