//! Notifications for operators: what they are about, and the bodies that receivers expect.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use std::time::Duration;

use super::web_url::WebUrl;
use super::words::words;
use super::{FilePath, MailTarget, Name, NotifyProgram};
use crate::error::{At, Problem, shown};

/// A receiver of notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyConfig {
    /// The name in logs, metrics and `offramp notify test`.
    pub name: Name,
    /// The way of messages.
    pub to: NotifyTarget,
    /// The CA certificates for its server; `None` for those of the system.
    pub ca: Option<FilePath>,
    /// The kinds that it gets; at least one.
    pub on: Vec<NotifyKind>,
    /// The share of requests with errors above which it gets a message.
    pub errors: ErrorShare,
    /// The requests within five minutes below which there is no message about errors.
    pub errors_at_least: u32,
    /// The time that a message waits for others: up to 1 h.
    pub group: Duration,
    /// The time within which the same thing is not sent again: up to 7 d.
    pub rest: Duration,
    /// The place in the configuration.
    pub at: At,
}

impl NotifyConfig {
    /// A receiver with the defaults of all keys; its webhook has no URL.
    pub fn called(name: Name) -> Self {
        NotifyConfig {
            name,
            to: NotifyTarget::Webhook(Webhook::default()),
            ca: None,
            on: NotifyKind::ALL.iter().copied().filter(|kind| *kind != NotifyKind::Change).collect(),
            errors: ErrorShare(500),
            errors_at_least: 100,
            group: Duration::from_secs(30),
            rest: Duration::from_secs(15 * 60),
            at: At::NOWHERE,
        }
    }
}

/// The way of messages to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotifyTarget {
    /// By HTTP.
    Webhook(Webhook),
    /// By mail.
    Mail(MailTarget),
    /// By a program of the operator.
    Program(NotifyProgram),
}

/// A URL that gets messages by HTTP. Either `url` or `url_file` is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The URL that gets the messages.
    pub url: Option<NotifyUrl>,
    /// The file with the URL, where that is a secret.
    pub url_file: Option<FilePath>,
    /// The form of messages without a `body`.
    pub format: NotifyFormat,
    /// The body of messages, instead of a known form.
    pub body: Option<BodyTemplate>,
    /// The file with the token for `Authorization: Bearer`.
    pub token_file: Option<FilePath>,
}

impl Default for Webhook {
    fn default() -> Self {
        Webhook { url: None, url_file: None, format: NotifyFormat::Json, body: None, token_file: None }
    }
}

/// The URL of a receiver: `https`, or `http` within the local network. It may contain a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct NotifyUrl(String);

impl NotifyUrl {
    /// The URL as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` for `https`.
    pub fn is_https(&self) -> bool {
        self.0.starts_with("https://")
    }

    /// The port of the server.
    pub fn port(&self) -> u16 {
        // It was read once already.
        WebUrl::read(&self.0).map_or(443, |url| url.port)
    }

    /// Scheme, host and port: all that may be shown.
    pub fn origin(&self) -> &str {
        origin(&self.0)
    }

    /// The URL with `***` in the place of path and query; `None` if it has none.
    #[must_use]
    pub fn masked(&self) -> Option<Self> {
        let origin = self.origin();
        let is_secret = !["", "/"].contains(&&self.0[origin.len()..]);
        is_secret.then(|| NotifyUrl(format!("{origin}{HIDDEN}")))
    }
}

/// The placeholder of a hidden path.
const HIDDEN: &str = "/***";

fn origin(url: &str) -> &str {
    let begin = url.find("://").map_or(0, |at| at + 3);
    let length = url[begin..].find(['/', '?']).unwrap_or(url.len() - begin);
    &url[..begin + length]
}

impl FromStr for NotifyUrl {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let refused = |why: &str| {
            // A path may be a secret, and so may what stands before an `@`.
            let origin = Some(origin(text)).filter(|origin| text.contains("://") && !origin.contains('@'));
            let which = origin.map_or_else(|| "this".to_owned(), |origin| format!("`{}…`", shown(origin)));
            let problem = Problem::new(format!("{which} is no URL for notifications: {why}"));
            problem.help("write such as \"https://ntfy.example.org/alerts\"")
        };
        let url = WebUrl::read(text).map_err(refused)?;
        if text.strip_prefix(origin(text)) == Some(HIDDEN) {
            let problem = refused("`***` stands for a path that is not shown");
            return Err(
                problem.help("write the URL itself, or put it into a file and name that as `url_file`")
            );
        }
        if !url.is_https && url.host.parse::<IpAddr>().is_ok_and(|address| !is_local(address)) {
            return Err(refused("without TLS anybody on the way could read it; write https://"));
        }
        Ok(NotifyUrl(text.to_owned()))
    }
}

impl fmt::Display for NotifyUrl {
    /// The URL as written, with its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NotifyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NotifyUrl({}…)", self.origin())
    }
}

/// Returns `true` for an address of this machine or of a local network: loopback, private (RFC 1918, RFC 4193), shared
/// (RFC 6598) and link-local ones.
pub fn is_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let is_shared = address & Ipv4Addr::new(255, 192, 0, 0) == Ipv4Addr::new(100, 64, 0, 0);
            address.is_loopback() || address.is_private() || address.is_link_local() || is_shared
        }
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

/// A share of requests, in hundredths of a percent: 0.01 % to 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ErrorShare(u16);

impl ErrorShare {
    /// The hundredths of a percent.
    pub fn hundredths(self) -> u16 {
        self.0
    }
}

impl FromStr for ErrorShare {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let read = || {
            let (whole, part) = match text.strip_suffix('%')?.split_once('.') {
                Some((whole, part)) => (whole, part),
                None => (text.strip_suffix('%')?, "0"),
            };
            let digits = |text: &str, most: usize| {
                (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
            };
            if !digits(whole, 3) || !digits(part, 2) {
                return None;
            }
            let part = part.parse::<u16>().ok()? * if part.len() == 1 { 10 } else { 1 };
            let share = whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(part)?;
            (1..=10_000).contains(&share).then_some(ErrorShare(share))
        };
        read().ok_or_else(|| {
            let problem = Problem::new(format!("`{}` is no share from 0.01% to 100%", shown(text)));
            problem.help("write such as \"5%\"")
        })
    }
}

impl fmt::Display for ErrorShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, part) if part % 10 == 0 => write!(f, "{whole}.{}%", part / 10),
            (whole, part) => write!(f, "{whole}.{part:02}%"),
        }
    }
}

words! {
    /// The subject of a notification.
    pub enum NotifyKind {
        /// A certificate that expires soon, or cannot be renewed.
        Certificate = "certificate",
        /// A server that is down.
        Server = "server",
        /// A share of errors above the bound.
        Errors = "errors",
        /// A limit that refuses clients.
        Limit = "limit",
        /// A log store that is away, or loses events.
        LogStore = "log_store",
        /// A change that was taken back without a confirmation.
        TakenBack = "taken_back",
        /// A worker that is late.
        Late = "late",
        /// A panic in the program.
        Panic = "panic",
        /// A change of the configuration.
        Change = "change",
    }
}

words! {
    /// The form of a message to a URL.
    pub enum NotifyFormat {
        /// Every detail, for a program.
        Json = "json",
        /// The text as the body, the title in a field: ntfy.
        Ntfy = "ntfy",
        /// An object with `text`: Slack, Mattermost, Rocket.Chat, Google Chat.
        Slack = "slack",
        /// A message of the client-server API: Matrix.
        Matrix = "matrix",
    }
}

words! {
    /// A field of a body template.
    pub enum NotifyField {
        /// The first line of the message.
        Title = "title",
        /// All lines of the message.
        Text = "text",
        /// The name of the machine.
        Host = "host",
        /// The time, as in RFC 3339.
        Time = "time",
        /// The kind of the first alert.
        Kind = "kind",
        /// The server, certificate or limit of the first alert.
        About = "about",
        /// `begins`, `ends` or `happened`, of the first alert.
        State = "state",
        /// The number of alerts.
        Count = "count",
    }
}

impl FromStr for NotifyKind {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        Self::from_word(text).ok_or_else(|| {
            let words: Vec<&str> = Self::ALL.iter().map(|one| one.word()).collect();
            Problem::new("there are no notifications of this kind").suggest("kind", None, &words)
        })
    }
}

/// A JSON document with fields such as `{title}`. Braces around anything but a word are those of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyTemplate {
    text: String,
    parts: Vec<BodyPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum BodyPart {
    Literal(String),
    Field(NotifyField),
}

impl BodyTemplate {
    /// The body with the value of each field, escaped for a string of JSON.
    pub fn fill(&self, value: impl Fn(NotifyField) -> String) -> String {
        let mut body = String::with_capacity(self.text.len());
        for part in &self.parts {
            match part {
                BodyPart::Literal(text) => body.push_str(text),
                BodyPart::Field(field) => {
                    let quoted = serde_json::Value::String(value(*field)).to_string();
                    body.push_str(&quoted[1..quoted.len() - 1]);
                }
            }
        }
        body
    }
}

/// The word between braces at the beginning of a text.
fn braced(text: &str) -> Option<&str> {
    let (word, _) = text.strip_prefix('{')?.split_once('}')?;
    let is_word = !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    is_word.then_some(word)
}

impl FromStr for BodyTemplate {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let (mut parts, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(first) = rest.chars().next() {
            let Some(word) = braced(rest) else {
                literal.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            };
            let field = NotifyField::from_word(word).ok_or_else(|| {
                let known: Vec<&str> = NotifyField::ALL.iter().map(|field| field.word()).collect();
                let problem = Problem::new(format!("messages have no field `{{{}}}`", shown(word)));
                problem.help(format!("they have {}", known.join(", ")))
            })?;
            parts.push(BodyPart::Literal(std::mem::take(&mut literal)));
            parts.push(BodyPart::Field(field));
            rest = &rest[word.len() + 2..];
        }
        parts.push(BodyPart::Literal(literal));
        let template = BodyTemplate { text: text.to_owned(), parts };
        // A number stands without quotes, too.
        let example = template.fill(|_| "1".to_owned());
        if let Err(error) = serde_json::from_str::<serde_json::Value>(&example) {
            let problem = Problem::new(format!("the body is no JSON once its fields are filled in: {error}"));
            return Err(problem.help("write such as '{\"message\": \"{text}\"}'"));
        }
        Ok(template)
    }
}

impl fmt::Display for BodyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_secure_or_of_the_local_network() {
        for (text, port, origin) in [
            ("https://hooks.example.org/services/T0/B0/secret", 443, "https://hooks.example.org"),
            ("https://ntfy.example.org:8443?auth=secret", 8443, "https://ntfy.example.org:8443"),
            ("http://ntfy.home.arpa/secret", 80, "http://ntfy.home.arpa"),
            ("http://127.0.0.1:8080/secret", 8080, "http://127.0.0.1:8080"),
            ("http://192.168.1.7/secret", 80, "http://192.168.1.7"),
            ("http://100.64.0.1/secret", 80, "http://100.64.0.1"),
            ("http://[fd00::1]:1/secret", 1, "http://[fd00::1]:1"),
        ] {
            let url: NotifyUrl = text.parse().unwrap();
            assert_eq!((url.as_str(), url.port(), url.origin()), (text, port, origin));
            assert!(!format!("{url:?}").contains("secret"));
        }
        for (text, why) in [
            ("ftp://a/secret", "must begin with https://"),
            ("secret", "must begin with https://"),
            ("https:///secret", "no host"),
            ("https://a:0/secret", "port"),
            ("https://user:secret@a/", "port"),
            ("https://secret@a/", "no host"),
            ("https://a/secret b", "character"),
            ("http://203.0.113.7/secret", "without TLS"),
            ("http://[2001:db8::1]/secret", "without TLS"),
            ("http://[::ffff:203.0.113.7]/secret", "without TLS"),
        ] {
            let message = text.parse::<NotifyUrl>().unwrap_err().message().to_owned();
            assert!(message.contains(why), "{text}: {message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn what_follows_the_host_is_hidden_and_cannot_be_read_back() {
        for (text, shown) in [
            ("https://hooks.example.org/T0/secret", Some("https://hooks.example.org/***")),
            ("https://ntfy.example.org:8443?auth=secret", Some("https://ntfy.example.org:8443/***")),
            ("https://ntfy.example.org/", None),
            ("https://ntfy.example.org", None),
        ] {
            let masked = text.parse::<NotifyUrl>().unwrap().masked();
            assert_eq!(masked.as_ref().map(NotifyUrl::as_str), shown);
            if let Some(masked) = masked {
                let problem = masked.as_str().parse::<NotifyUrl>().unwrap_err();
                assert!(format!("{problem:?}").contains("url_file"), "{problem:?}");
            }
        }
        assert!("https://a.example.org/***/x".parse::<NotifyUrl>().is_ok());
    }

    #[test]
    fn shares_are_what_they_say() {
        for (text, hundredths) in
            [("5%", 500), ("0.5%", 50), ("0.05%", 5), ("12.34%", 1234), ("100%", 10_000)]
        {
            let share: ErrorShare = text.parse().unwrap();
            assert_eq!((share.hundredths(), share.to_string().as_str()), (hundredths, text));
        }
        for text in [
            "", "%", "5", "0%", "0.00%", "100.01%", "101%", "999.99%", "-1%", "+1%", "1.%", ".1%", "1.234%",
            "1 %",
        ] {
            assert!(text.parse::<ErrorShare>().is_err(), "{text}");
        }
    }

    #[test]
    fn fields_are_filled_in_and_escaped() {
        let fill = |text: &str| {
            let template: BodyTemplate = text.parse().unwrap();
            assert_eq!(template.to_string(), text);
            template.fill(|field| match field {
                NotifyField::Count => "2".to_owned(),
                field => format!("\"{field}\"\n\\ {{text}} <é>"),
            })
        };
        for (text, expected) in [
            ("{}", "{}"),
            ("{\"a\":{\"b\":[{count}]}}", "{\"a\":{\"b\":[2]}}"),
            ("{\"a\":\"{title}\"}", "{\"a\":\"\\\"title\\\"\\n\\\\ {text} <é>\"}"),
            ("{\"{kind}\": \"{count} {count}\"}", "{\"\\\"kind\\\"\\n\\\\ {text} <é>\": \"2 2\"}"),
            ("\"é {count}\"", "\"é 2\""),
        ] {
            let body = fill(text);
            assert_eq!(body, expected);
            serde_json::from_str::<serde_json::Value>(&body).unwrap();
        }
    }

    #[test]
    fn mistakes_of_templates() {
        for (text, mistake) in [
            ("", "no JSON"),
            ("text", "no JSON"),
            ("{\"a\": {text}", "no JSON"),
            ("{\"a\": \"{text}\"} {}", "no JSON"),
            ("{\"a\": \"{txet}\"}", "no field `{txet}`"),
        ] {
            let problem = format!("{:?}", text.parse::<BodyTemplate>().unwrap_err());
            assert!(problem.contains(mistake), "{text}: {problem}");
        }
    }
}
