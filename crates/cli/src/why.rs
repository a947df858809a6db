//! `offramp why`: one question, answered by the running Offramp in words, with the evidence and what to do.
//!
//! Without one that answers, the way of a URL is told from the configuration file.

use std::net::IpAddr;

use serde_json::Value;

use crate::check;
use crate::ctl::client::{AdminClient, AdminRequest, printable};
use crate::ctl::segment;
use crate::failure::Failure;
use crate::flags::why::Why;
use crate::hello_file::HelloSource;
use crate::surroundings::{self, print, say};

/// The width of an answer where the terminal does not say.
const COLUMNS: usize = 100;
/// The longest ClientHello that is asked about in a query, in bytes: the head of a request has a bound of 16 KiB.
const QUERY: usize = 4 << 10;

/// Asks, and prints the answer.
///
/// # Errors
/// The question is unknown, or neither an Offramp nor its configuration can answer it.
pub(crate) fn run(arguments: &Why) -> Result<(), Failure> {
    let mut question = match &arguments.client {
        Some(client) => WhyQuestion::handshake(&arguments.question, client, arguments.from)?,
        None => WhyQuestion::read(&arguments.question, arguments.about.as_deref())?,
    };
    if let Some(since) = &arguments.since {
        question.begin(since)?;
    }
    let client = AdminClient::of(&arguments.reach)?;
    let answer = match client.ask_json(&question.request()) {
        Ok(answer) => answer,
        Err(failure) => match question.answered_by_file(arguments) {
            Some(answer) if client.is_absent() => {
                say("note: no Offramp answers, so this is what the configuration says");
                answer?
            }
            _ => return Err(failure),
        },
    };
    if arguments.reach.json {
        return print(format!("{answer:#}\n").as_bytes());
    }
    print(text(&answer, surroundings::columns().unwrap_or(COLUMNS)).as_bytes())
}

/// A question of the API, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WhyQuestion {
    about: &'static str,
    parameters: Vec<(&'static str, String)>,
    /// A ClientHello that is too long for a query.
    hello: Option<Vec<u8>>,
}

impl WhyQuestion {
    /// Reads the words of the command line.
    ///
    /// # Errors
    /// Names the questions.
    fn read(question: &str, about: Option<&str>) -> Result<Self, Failure> {
        let with = |about: &'static str, name: &'static str, value: &str| Self {
            about,
            parameters: vec![(name, value.to_owned())],
            hello: None,
        };
        let needs = |what: &str| {
            about.ok_or_else(|| {
                Failure::usage(format_args!(
                    "error: `why {question}` needs {what}: offramp why {question} {what}"
                ))
            })
        };
        match question {
            "not-routed" => return Ok(with("not-routed", "url", needs("URL")?)),
            "502" => {
                return Ok(match about {
                    None => Self { about: "502", parameters: Vec::new(), hello: None },
                    // A host has a dot, and the name of a backend may have one, too: a port, a path or a scheme decides.
                    Some(about) if about.contains("://") => {
                        let rest = about.split_once("://").map_or("", |(_, rest)| rest);
                        with("502", "host", rest.split(['/', '?', '#']).next().unwrap_or_default())
                    }
                    Some(about) => with("502", "backend", about),
                });
            }
            "no-certificate" => return Ok(with("no-certificate", "host", needs("HOST")?)),
            "slow" => {
                let host = about.map(|host| ("host", host.to_owned()));
                return Ok(Self { about: "slow", parameters: host.into_iter().collect(), hello: None });
            }
            _ => {}
        }
        if let Some(about) = about {
            return Err(Failure::usage(format_args!(
                "error: `{question}` is no question about {about}\n{QUESTIONS}"
            )));
        }
        if question.contains("://") {
            Ok(with("url", "url", question))
        } else if question.parse::<IpAddr>().is_ok() {
            Ok(with("client", "client", question))
        } else if is_request_id(question) {
            Ok(with("request", "request", question))
        } else if is_cause(question) {
            Ok(with("cause", "cause", question))
        } else {
            Err(Failure::usage(format_args!("error: `{question}` is no question\n{QUESTIONS}")))
        }
    }

    /// Takes stored requests from a time on.
    ///
    /// # Errors
    /// The question is not about stored requests of a time.
    fn begin(&mut self, since: &str) -> Result<(), Failure> {
        if !matches!(self.about, "slow" | "client" | "url" | "not-routed" | "request") {
            return Err(Failure::usage("error: --since is for slow, a client, a URL and a request"));
        }
        self.parameters.push(("since", since.to_owned()));
        Ok(())
    }

    /// Asks what becomes of the handshake of a client that connects to `to`.
    ///
    /// # Errors
    /// There is neither such a client nor such a file.
    fn handshake(to: &str, client: &str, from: Option<IpAddr>) -> Result<Self, Failure> {
        let (host, port) = destination(to);
        let mut parameters = vec![("host", to.to_owned())];
        let (mut from, mut hello) = (from, None);
        match HelloSource::of(client, host, port)? {
            HelloSource::Known(name) => parameters.push(("as", name.to_owned())),
            HelloSource::File { records, client, note } => {
                if records.len() > QUERY {
                    hello = Some(records);
                } else {
                    let digits = records.iter().map(|byte| format!("{byte:02x}"));
                    parameters.push(("hello", digits.collect()));
                }
                from = from.or(client);
                if let Some(note) = note {
                    say(&note);
                }
            }
        }
        parameters.extend(from.map(|from| ("client", from.to_string())));
        Ok(Self { about: "handshake", parameters, hello })
    }

    /// The request to the API.
    fn request(&self) -> AdminRequest {
        let request = AdminRequest::new(if self.hello.is_some() { "POST" } else { "GET" }, &self.path());
        let body = self.hello.clone().map(|records| ("application/octet-stream", records));
        AdminRequest { body, ..request }
    }

    /// The path of the API.
    fn path(&self) -> String {
        let parameters = self.parameters.iter().map(|(name, value)| format!("&{name}={}", segment(value)));
        format!("/why?about={}{}", self.about, parameters.collect::<String>())
    }

    /// The answer from the configuration file; `None` if this question needs a running Offramp.
    fn answered_by_file(&self, arguments: &Why) -> Option<Result<Value, Failure>> {
        let (_, url) = self.parameters.iter().find(|(name, _)| *name == "url")?;
        let answer = check::find(arguments.reach.at.file()).and_then(|path| {
            let survey =
                offramp_config::survey(&path, &surroundings::environment()).map_err(Failure::usage)?;
            if survey.outcome.is_err() {
                say(&format!(
                    "note: {} has mistakes, so it may tell less; offramp check names them",
                    path.display()
                ));
            }
            offramp_admin::why_url(&survey.config, self.about, url)
                .map_err(|wrong| Failure::usage(format_args!("error: {wrong}")))
        });
        Some(answer)
    }
}

/// Host and port of a destination, as far as they can be told apart; the admin interface refuses what is wrong.
fn destination(text: &str) -> (&str, Option<u16>) {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().ok()),
        _ => (text, None),
    };
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}

const QUESTIONS: &str = "Ask one of these:\n  \
    offramp why https://example.org/path    where it goes, and why not elsewhere\n  \
    offramp why REQUEST-ID                  how a stored request ended, and where its time went\n  \
    offramp why CAUSE                       what a cause of the log means, and how often it came\n  \
    offramp why ADDRESS                     how the latest requests of a client ended\n  \
    offramp why slow [HOST]                 where the time of the latest requests went\n  \
    offramp why not-routed URL              which routes do not match, and why\n  \
    offramp why 502 [BACKEND | URL]         which servers do not answer\n  \
    offramp why HOST:PORT --as CLIENT       why a TLS client is refused\n  \
    offramp why no-certificate HOST         which certificate a name has, or why none";

/// Ids of requests that Offramp makes begin with a UUID (RFC 9562) and have a number; those of other proxies are long and
/// have digits.
fn is_request_id(text: &str) -> bool {
    let letters = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
    letters && text.len() >= 8 && text.bytes().any(|byte| byte.is_ascii_digit())
}

/// Names of causes are words in lower case with underscores.
fn is_cause(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// An answer for people.
fn text(answer: &Value, columns: usize) -> String {
    let list = |name: &str| answer[name].as_array().cloned().unwrap_or_default();
    let mut out = wrapped(answer["first"].as_str().unwrap_or_default(), "", "", columns);
    let evidence = list("evidence");
    if !evidence.is_empty() {
        out.push('\n');
    }
    for item in evidence {
        let (says, source) =
            (item["says"].as_str().unwrap_or_default(), item["source"].as_str().unwrap_or_default());
        out += &wrapped(&format!("{says} ({source})"), "  - ", "    ", columns);
    }
    let remedy = list("remedy");
    if !remedy.is_empty() {
        out += "\nWhat to do:\n";
    }
    for step in remedy {
        out += &wrapped(step.as_str().unwrap_or_default(), "  - ", "    ", columns);
    }
    out
}

/// Lines of at most `columns` characters, as far as words allow; nothing that a terminal obeys.
fn wrapped(text: &str, first: &str, others: &str, columns: usize) -> String {
    let plain = printable(text).replace('\n', " ");
    let mut out = first.to_owned();
    let mut width = first.chars().count();
    let mut empty = true;
    for word in plain.split_whitespace() {
        let length = word.chars().count();
        if !empty && width + 1 + length > columns.max(20) {
            out.push('\n');
            out += others;
            (width, empty) = (others.chars().count(), true);
        }
        if !empty {
            out.push(' ');
            width += 1;
        }
        out += word;
        width += length;
        empty = false;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_become_questions() {
        for (words, path) in [
            (vec!["https://a.example/b?c=d"], "/why?about=url&url=https%3A%2F%2Fa.example%2Fb%3Fc%3Dd"),
            (vec!["not-routed", "a.example/b"], "/why?about=not-routed&url=a.example%2Fb"),
            (vec!["502"], "/why?about=502"),
            (vec!["502", "shop"], "/why?about=502&backend=shop"),
            (vec!["502", "https://shop.example/x"], "/why?about=502&host=shop.example"),
            (vec!["0190-1a2b-3"], "/why?about=request&request=0190-1a2b-3"),
            (vec!["192.0.2.1"], "/why?about=client&client=192.0.2.1"),
            (vec!["2001:db8::1"], "/why?about=client&client=2001%3Adb8%3A%3A1"),
            (vec!["no-certificate", "a.example"], "/why?about=no-certificate&host=a.example"),
            (vec!["slow"], "/why?about=slow"),
            (vec!["slow", "a.example"], "/why?about=slow&host=a.example"),
            (vec!["server_refused"], "/why?about=cause&cause=server_refused"),
        ] {
            let question = WhyQuestion::read(words[0], words.get(1).copied());
            assert_eq!(question.unwrap().path(), path, "{words:?}");
        }
        for words in [
            vec!["not-routed"],
            vec!["no-certificate"],
            vec!["What?"],
            vec![""],
            vec!["server_refused", "web"],
            vec!["A B 12345678"],
        ] {
            let refusal = WhyQuestion::read(words[0], words.get(1).copied()).unwrap_err().to_string();
            assert!(refusal.contains("offramp why "), "{refusal}");
        }
    }

    #[test]
    fn clients_connect_to_hosts_and_ports() {
        for (text, host, port) in [
            ("a.example:443", "a.example", Some(443)),
            ("a.example", "a.example", None),
            ("[::1]:443", "::1", Some(443)),
            ("::1", "::1", None),
            ("a.example:x", "a.example", None),
        ] {
            assert_eq!(destination(text), (host, port), "{text}");
        }
        let from = Some([192, 0, 2, 1].into());
        let question = WhyQuestion::handshake("a.example:443", "openssl 1.0.2", from).unwrap();
        assert_eq!(
            question.path(),
            "/why?about=handshake&host=a.example%3A443&as=OpenSSL%201.0.2&client=192.0.2.1"
        );
    }

    #[test]
    fn a_long_hello_is_the_body_of_the_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hello");
        let asked = |hello: &[u8]| {
            std::fs::write(&path, hello).unwrap();
            WhyQuestion::handshake("a.example:443", path.to_str().unwrap(), None).unwrap().request()
        };
        // A message whose fields nothing reads here.
        let message =
            |length: usize| [&[1, 0, (length >> 8) as u8, length as u8][..], &vec![0; length]].concat();
        let short = asked(&message(2_000));
        assert!(short.method == "GET" && short.body.is_none() && short.path.contains("&hello=1603"));
        let long = asked(&message(20_000));
        assert_eq!((long.method, &*long.path), ("POST", "/why?about=handshake&host=a.example%3A443"));
        let (kind, body) = long.body.unwrap();
        // In two records.
        assert_eq!((kind, body.len()), ("application/octet-stream", 20_004 + 10));
    }

    #[test]
    fn answers_are_lines_without_control_characters() {
        let answer = json!({
            "first": "It is down.",
            "evidence": [{ "says": "Server \u{1b}[2Ja\u{202e}:1 is down: it fails its health checks", "source": "health" }],
            "remedy": ["See\nthat it listens"],
        });
        let expected = "It is down.\n\n  - Server [2Ja\\u{202e}:1 is down:\n    it fails its health checks\n    (health)\n\nWhat to \
                        do:\n  - See that it listens\n";
        let text = text(&answer, 34);
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
        assert_eq!(text, expected);
    }
}
