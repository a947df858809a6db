//! Asks an application whether a name may have a certificate: a GET with `?domain=NAME`, to which 2xx says yes.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{HOST, HeaderValue, USER_AGENT};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use offramp_config::model::AskUrl;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time limit of an answer: a handshake waits for it.
const LIMIT: Duration = Duration::from_secs(5);

/// The answer to a question about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Allowed,
    Denied,
}

/// Asks about `name`. No answer is an error, and so is one of 5xx: such a server does not know.
pub(super) async fn ask(url: &AskUrl, name: &str) -> Result<Answer, String> {
    let answered = timeout(LIMIT, exchange(url, name)).await;
    let status = answered.unwrap_or_else(|_| Err(format!("no response within {} s", LIMIT.as_secs())));
    match status.map_err(|reason| format!("{url}: {reason}"))? {
        status if status.is_success() => Ok(Answer::Allowed),
        status if status.is_server_error() => Err(format!("{url}: answered {status}")),
        _ => Ok(Answer::Denied),
    }
}

/// The status of the response; its body is not read.
async fn exchange(url: &AskUrl, name: &str) -> Result<http::StatusCode, String> {
    let stream = TcpStream::connect(url.address()).await;
    let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() =
        url.target(name).parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let host = HeaderValue::try_from(url.authority()).map_err(|error| error.to_string())?;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("offramp"));
    let answered = sender.send_request(request).await.map_err(|error| error.to_string());
    connection.abort();
    answered.map(|response| response.status())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// What is made of this response, and the beginning of the request.
    fn outcome(response: &'static str) -> (Result<Answer, String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/ask?key=1", listener.local_addr().unwrap()).parse().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(response.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        (runtime.block_on(ask(&url, "a.example.org")), server.join().unwrap())
    }

    #[test]
    fn statuses_are_answers() {
        let (answer, request) = outcome("HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(answer, Ok(Answer::Allowed));
        assert!(request.starts_with("GET /ask?key=1&domain=a.example.org HTTP/1.1\r\n"), "{request}");
        assert!(request.to_ascii_lowercase().contains("\r\nhost: 127.0.0.1:"), "{request}");
        for denied in ["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP/1.0 302 Found\r\n\r\n"] {
            assert_eq!(outcome(denied).0, Ok(Answer::Denied), "{denied}");
        }
        // A body without end is not read.
        assert_eq!(outcome("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\nyes").0, Ok(Answer::Allowed));
        for nothing in ["HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "<html>", ""] {
            assert!(outcome(nothing).0.is_err(), "{nothing}");
        }
    }
}
