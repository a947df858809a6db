//! The client of `offramp why HOST:PORT --as CLIENT`: a well-known one, or a file with its ClientHello.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;

use offramp_wire::capture::{self, Capture, CaptureReader, CapturedHello};
use offramp_wire::client_hello;
use offramp_wire::{ParseStep, known};

use crate::failure::Failure;

/// Bytes of a capture that are read. A hello is among the first packets of its connection.
const MOST: u64 = 64 << 20;
/// Longest file with a single hello, or its digits.
const LONGEST: u64 = 1 << 20;
const PIECE: usize = 64 << 10;

/// A client whose hello is asked about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HelloSource {
    /// The name of a client of the table.
    Known(&'static str),
    /// A hello of a file.
    File {
        /// Its TLS records.
        records: Vec<u8>,
        /// The address that it came from, in a capture.
        client: Option<IpAddr>,
        /// The choice among several hellos, in a sentence.
        note: Option<String>,
    },
}

impl HelloSource {
    /// Reads what `--as` names; `host` and `port` are where the client connects to. A file wins over a name if it is
    /// written with a slash.
    ///
    /// # Errors
    /// There is neither such a client nor such a file, or the file has no hello.
    pub(crate) fn of(text: &str, host: &str, port: Option<u16>) -> Result<Self, Failure> {
        let is_path = text.contains('/') || text == "-";
        if let Some(client) = known::named(text).filter(|_| !is_path) {
            return Ok(Self::Known(client.name));
        }
        if !is_path && !Path::new(text).exists() {
            let names: Vec<&str> = known::all().map(|client| client.name).collect();
            let near = offramp_config::nearest(text, names.iter().copied());
            let hint = near.map(|near| format!("\nThe nearest client is `{near}`")).unwrap_or_default();
            return Err(Failure::usage(format_args!(
                "error: --as: there is neither a client nor a file `{}`{hint}\nKnown clients: {}",
                text.escape_debug(),
                names.join("; ")
            )));
        }
        let failed = |why: &dyn std::fmt::Display| {
            Failure::usage(format_args!("error: --as: {}: {why}", text.escape_debug()))
        };
        let found = if text == "-" { read(io::stdin().lock()) } else { File::open(text).and_then(read) };
        match found.map_err(|error| failed(&error))? {
            FileContent::Single(bytes) => {
                let records = capture::hello(&bytes).map_err(|fault| failed(&fault))?;
                Ok(Self::File { records, client: None, note: None })
            }
            FileContent::Capture(Ok(found)) => {
                let all = &found.hellos;
                let chosen = choose(&found, host, port).ok_or_else(|| failed(&empty(&found)))?;
                let others = all.len() - 1;
                let note = format!("{} sends this hello to {}", chosen.client, chosen.server);
                let more =
                    if others > 0 { format!("; {others} others are in the file") } else { String::new() };
                let client = Some(chosen.client.ip());
                Ok(Self::File { records: chosen.records.clone(), client, note: Some(note + &more) })
            }
            FileContent::Capture(Err(fault)) => Err(failed(&fault)),
        }
    }
}

/// The content of a file.
enum FileContent {
    Capture(Result<Capture, capture::CaptureFault>),
    Single(Vec<u8>),
}

/// Reads a capture as far as it matters, or a whole small file.
fn read(file: impl Read) -> io::Result<FileContent> {
    let mut file = file.take(MOST);
    let mut front = Vec::new();
    file.by_ref().take(PIECE as u64).read_to_end(&mut front)?;
    if !capture::is_capture(&front) {
        file.take(LONGEST).read_to_end(&mut front)?;
        return Ok(FileContent::Single(front));
    }
    let mut reader = CaptureReader::default();
    let mut piece = front;
    while !piece.is_empty() {
        match reader.push(&piece) {
            Ok(true) => {}
            Ok(false) => break,
            Err(fault) => {
                // What was whole before a damage still answers the question.
                let found = reader.finish();
                let usable = !found.hellos.is_empty();
                return Ok(FileContent::Capture(if usable { Ok(found) } else { Err(fault) }));
            }
        }
        piece.clear();
        file.by_ref().take(PIECE as u64).read_to_end(&mut piece)?;
    }
    Ok(FileContent::Capture(Ok(reader.finish())))
}

/// The hello that asks for the host, else the one to its address or port, else the first.
fn choose<'c>(found: &'c Capture, host: &str, port: Option<u16>) -> Option<&'c CapturedHello> {
    let address: Option<IpAddr> = host.parse().ok();
    let asks = |hello: &CapturedHello| match client_hello::peek(&hello.records) {
        ParseStep::Done { value, .. } => value.server_name().host() == Some(host),
        ParseStep::Need(_) | ParseStep::Reject(_) => false,
    };
    let likeness = |hello: &&CapturedHello| {
        let is_port = port.is_some_and(|port| hello.server.port() == port);
        (asks(hello) || address == Some(hello.server.ip()), is_port)
    };
    // Of equals, `max_by_key` takes the last.
    found.hellos.iter().rev().max_by_key(likeness)
}

fn empty(found: &Capture) -> String {
    let packets = found.packets;
    match found.incomplete {
        0 => format!("none of its {packets} packets begins a TLS connection over TCP"),
        count => format!(
            "{count} TLS connections begin in its {packets} packets, and bytes of each hello are missing; capture whole packets \
             (tcpdump -s 0)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn named(name: &str) -> Vec<u8> {
        known::named(name).unwrap().hello()
    }

    fn said(failure: &Failure) -> String {
        failure.to_string()
    }

    #[test]
    fn clients_and_files_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("curl"), named("chrome")).unwrap();
        fs::write(path("hex"), named("curl").iter().map(|byte| format!("{byte:02x}")).collect::<String>())
            .unwrap();
        fs::write(path("none"), "nothing of the kind").unwrap();
        fs::write(path("empty"), "").unwrap();
        let records = |text: &str| match HelloSource::of(text, "a.example", None) {
            Ok(HelloSource::File { records, client: None, note: None }) => records,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            HelloSource::of("Curl", "a.example", None).unwrap(),
            HelloSource::Known("curl with OpenSSL")
        );
        assert_eq!(records(&path("curl"))[5..], named("chrome")[5..]);
        assert_eq!(records(&path("hex"))[5..], named("curl")[5..]);
        for (text, part) in [
            ("openssll 1.0.2".to_owned(), "The nearest client is `OpenSSL 1.0.2`"),
            ("netscape".to_owned(), "Known clients: OpenSSL 0.9.8; "),
            (path("none"), "this is no ClientHello"),
            (path("empty"), "this is no ClientHello"),
            (path("absent"), "No such file"),
        ] {
            let failure = HelloSource::of(&text, "a.example", None).unwrap_err();
            assert!(said(&failure).contains(part), "{text}: {}", said(&failure));
        }
    }

    #[test]
    fn the_hello_for_the_host_is_taken() {
        let hello = |host: &str, port: u16| {
            let records = named("curl");
            let ParseStep::Done { value, .. } = client_hello::peek(&records) else { panic!("no hello") };
            CapturedHello {
                client: ([192, 0, 2, 9], 40000).into(),
                server: ([192, 0, 2, 1], port).into(),
                records: value.addressed_to(Some(host)),
            }
        };
        let hellos = vec![hello("a.example", 1), hello("b.example", 2), hello("b.example", 3)];
        let found = Capture { hellos, packets: 9, incomplete: 0 };
        let port = |host: &str, port| choose(&found, host, port).map(|hello| hello.server.port());
        assert_eq!(port("b.example", None), Some(2));
        assert_eq!(port("b.example", Some(3)), Some(3));
        assert_eq!(port("c.example", Some(2)), Some(2));
        assert_eq!(port("192.0.2.1", Some(3)), Some(3));
        assert_eq!(port("c.example", None), Some(1));
        assert_eq!(choose(&Capture::default(), "a", None), None);
        assert!(empty(&Capture { incomplete: 2, packets: 3, ..Capture::default() }).contains("tcpdump -s 0"));
    }
}
