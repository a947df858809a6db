//! An HTTP/1.1 application of the tests' own: it reads whole requests, and does with each what a test says.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::sync::{Arc, Mutex};

use offramp_testkit::server::{Listen, Server, Stream};

/// One request as the application sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in lower case, in the order in which they came.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// What came before the request line: a PROXY header.
    pub(crate) prologue: String,
}

impl Request {
    /// The values of a field.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The one value of a field; empty where it is absent.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> &str {
        match self.values(name)[..] {
            [] => "",
            [value] => value,
            ref more => panic!("{name} came {} times: {more:?}", more.len()),
        }
    }

    /// The head alone: where the body is to be read by the application itself.
    fn head(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut request = Self::default();
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.starts_with("PROXY ") {
            request.prologue = std::mem::take(&mut line);
            reader.read_line(&mut line)?;
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        request.method = words.next().unwrap_or_default();
        request.target = words.next().unwrap_or_default();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { return Ok(Some(request)) };
            request.fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    fn read_body(&mut self, reader: &mut impl BufRead) -> io::Result<()> {
        if self.field("transfer-encoding") == "chunked" {
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                let size = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
                reader.take(size).read_to_end(&mut self.body)?;
                reader.read_line(&mut String::new())?;
                if size == 0 {
                    return Ok(());
                }
            }
        }
        let length = self.field("content-length").parse().unwrap_or(0);
        reader.take(length).read_to_end(&mut self.body).map(drop)
    }
}

/// Starts an application that does `act` with each request. An error ends the connection.
pub(crate) fn app(
    listen: &Listen,
    act: impl Fn(&Request, &mut Stream) -> io::Result<()> + Send + Sync + 'static,
) -> Server {
    let serve = move |mut stream: Stream| -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(mut request) = Request::head(&mut reader)? {
            if request.field("expect") == "100-continue" {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            request.read_body(&mut reader)?;
            act(&request, &mut stream)?;
        }
        Ok(())
    };
    Server::start(listen, move |stream| drop(serve(stream))).unwrap()
}

/// Sends a response with a length. `fields` are whole lines.
pub(crate) fn respond(stream: &mut Stream, status: u16, fields: &[&str], body: &[u8]) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Whatever\r\nContent-Length: {}\r\n", body.len());
    for field in fields {
        // Writing to a string cannot fail.
        let _ = write!(head, "{field}\r\n");
    }
    head.push_str("\r\n");
    stream.write_all(&[head.as_bytes(), body].concat())
}

/// An application that answers with `name`, and remembers every request.
pub(crate) fn named(listen: &Listen, name: &str) -> (Server, Seen) {
    let (name, seen) = (format!("{name}\n"), Seen::default());
    let server = app(listen, {
        let seen = seen.clone();
        move |request, stream| {
            seen.0.lock().unwrap().push(request.clone());
            let body = if request.method == "HEAD" { "" } else { &name };
            respond(stream, 200, &["Content-Type: text/plain", "X-App: yes"], body.as_bytes())
        }
    });
    (server, seen)
}

/// The requests that an application has seen.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Request>>>);

impl Seen {
    /// Remembers a request.
    pub(crate) fn note(&self, request: &Request) {
        self.0.lock().unwrap().push(request.clone());
    }

    /// All, oldest first; they are forgotten here.
    pub(crate) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// The only one since the last time.
    #[track_caller]
    pub(crate) fn one(&self) -> Request {
        let mut all = self.take();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }
}
