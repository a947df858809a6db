//! Spellings of values as regular expressions, for tools that check a file without this crate.
//!
//! The parsers of the model decide. A pattern accepts every text that its parser accepts; it accepts no other, except
//! where the variant says so. Patterns use the part of ECMA-262 that crate `regex` shares: no look-around and no
//! back-references.

use crate::choice::Choice;

mod address;
mod number;

pub(crate) use number::{counted, range};

/// The spelling of a text, by the type that reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TextSyntax {
    /// Any text, without a pattern.
    Any,
    /// Any text but the empty one.
    NonEmpty,
    /// One of these words.
    Words(&'static [Choice]),
    /// The path of a file or a directory.
    Path,
    /// A word of a command. That the first is an absolute path, and the limit of all, are left out.
    ProgramWord,
    /// The name of an item of the configuration.
    Name,
    /// The name of a user of the system.
    User,
    /// The name of a field of events.
    EventField,
    /// Names joined by dots. The limit of 128 bytes is left out.
    DottedNames,
    /// The name of a header field or a cookie.
    Token,
    /// The value of a header field. The limit of 8 KiB is left out.
    FieldValue,
    /// A quoted string of HTTP.
    Realm,
    /// A host name. The limits of the last label, 63 bytes, and of the name, 253 bytes, are left out, here and wherever
    /// a host is a part.
    Host,
    /// A host name or a wildcard.
    HostPattern,
    /// A host name, a wildcard or an address.
    CertificateName,
    /// A host name or an address.
    HostOrAddress,
    /// An address or a host name, and a port if needed.
    HostAndPort,
    /// An address and a port.
    SocketAddress,
    /// An address to listen on. The limit of the path of a socket, 107 bytes, is left out here and below.
    ListenAddress,
    /// The address of a server.
    Server,
    /// The address of a server, or `tls://` and one.
    RouteServer,
    /// The address of a server and its attributes.
    BackendServer,
    /// The name of a backend and its weight.
    BackendShare,
    /// The address of a syslog.
    Syslog,
    /// A network. Bits beyond the prefix are left out, here and below.
    Network,
    /// A network, a file with networks or a country.
    Networks,
    /// The id of an application protocol.
    Alpn,
    /// The name of a protocol of `Upgrade`. Forbidden names and the limit of 64 bytes are left out.
    Upgrade,
    /// A fingerprint of a ClientHello.
    Ja4,
    /// A media type. The limit of 127 bytes is left out.
    MediaRange,
    /// A status or a class of statuses.
    Status,
    /// A status of an error, or a class of them.
    ErrorStatus,
    /// A kind of name in a certificate, and a pattern.
    CertificatePattern,
    /// The hash of a public key.
    Pin,
    /// A SPIFFE trust domain.
    TrustDomain,
    /// The path of a route. Escapes that no request can have are left out.
    RoutePath,
    /// The path and query of a request to a server.
    Probe,
    /// The path and query of a request to an authentication server.
    AuthPath,
    /// The name of a file in a directory; `.` and `..` are left out.
    FileName,
    /// The name to try for a request.
    FileAttempt,
    /// The path of a file below a root.
    FileBelow,
    /// The target of a redirect. The limit of 2048 bytes is left out.
    Redirect,
    /// The URL of an ACME directory.
    AcmeDirectory,
    /// The URL of plain HTTP that is asked about names.
    AskUrl,
    /// The URL of an OpenTelemetry collector.
    Collector,
    /// The URL of a receiver of notifications. The limit of 2048 bytes is left out, and that plain HTTP is for local
    /// addresses.
    NotifyUrl,
    /// An e-mail address of plain ASCII. The limit of 254 bytes is left out.
    MailAddress,
    /// The URL of a server that takes mail.
    MailServer,
    /// A share in percent. Zero and shares beyond 100 % are left out.
    Share,
    /// The URL of a database. Hidden passwords are left out.
    Store,
    /// An e-mail address.
    Email,
}

impl TextSyntax {
    /// The pattern of the whole text; `None` if it can be any.
    pub(crate) fn pattern(self) -> Option<String> {
        self.expression().map(|expression| format!("^(?:{expression})$"))
    }

    fn expression(self) -> Option<String> {
        Some(match self {
            Self::Any => return None,
            Self::NonEmpty => r"[\s\S]+".to_owned(),
            Self::Words(words) => words.iter().map(|word| literal(word.word)).collect::<Vec<_>>().join("|"),
            Self::Path => r"[^\x00]+".to_owned(),
            Self::ProgramWord => r"[^\x00]*".to_owned(),
            Self::Name => NAME.to_owned(),
            // All that is white space or a control character in Unicode.
            Self::User => {
                r"[^:\x00-\x20\x7F-\xA0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]+".to_owned()
            }
            Self::EventField => "[a-z0-9_]{1,64}".to_owned(),
            Self::DottedNames => "[A-Za-z0-9_-]+(?:[.][A-Za-z0-9_-]+)*".to_owned(),
            Self::Token => format!("{TOKEN}{{1,128}}"),
            Self::FieldValue => r"(?:[!-~](?:[\t -~]*[!-~])?)?".to_owned(),
            Self::Realm => r"[!#-\[\]-~](?:[\t !#-\[\]-~]{0,253}[!#-\[\]-~])?".to_owned(),
            Self::Alpn => "[!-~]{1,255}".to_owned(),
            Self::Upgrade => format!("{TOKEN}+(?:/{TOKEN}+)?"),
            Self::Ja4 => ja4(),
            Self::MediaRange => media_range(),
            Self::Status => r"\+?0*[1-5]xx|0*[1-5][0-9][0-9]".to_owned(),
            Self::ErrorStatus => r"\+?0*[45]xx|0*[45][0-9][0-9]".to_owned(),
            Self::CertificatePattern => r"(?:dns|uri|ip|cn|ou|pin):[\s\S]+".to_owned(),
            Self::MailAddress => {
                let (atom, label) =
                    ("[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+", "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?");
                format!("{atom}(?:[.]{atom})*@{label}(?:[.]{label})*")
            }
            Self::Share => "[0-9]{1,3}(?:[.][0-9]{1,2})?%".to_owned(),
            Self::Pin => "sha256//?[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=".to_owned(),
            Self::TrustDomain => "[a-z0-9._-]{1,255}".to_owned(),
            Self::RoutePath => route_path(),
            Self::Probe => r"/[!$-;=?-\[\]_a-~]{0,2047}".to_owned(),
            Self::AuthPath => r"/[!$-;=?-\[\]_a-z~]{0,2047}".to_owned(),
            Self::FileName => r"[^/\x00]+".to_owned(),
            Self::FileAttempt => file_attempt(),
            Self::FileBelow => format!("(?:/{})+", below(r"/\x00")),
            Self::Redirect => redirect(),
            Self::Store => {
                r"sqlite:(?:/[^/\x00]|[^/:\x00])(?:[^\x00]*[^/\x00])?|postgres(?:ql)?://[!-~]+".to_owned()
            }
            Self::Email => r"[!-+\--;=A-~]+@[!-+\--;=@-~]*[.][!-+\--;=@-~]*".to_owned(),
            Self::BackendShare => {
                let weight = range(0, 1000);
                format!(r"{BLANK}*{NAME}(?:{BLANK}+weight=\+?0*(?:{weight}))?{BLANK}*")
            }
            of_hosts => return Some(address::expression(of_hosts)),
        })
    }
}

/// The name of an item.
const NAME: &str = "[A-Za-z0-9_.-]{1,64}";

/// A character of a token (RFC 9110 §5.6.2).
const TOKEN: &str = "[A-Za-z0-9!#$%&'*+.^_`|~-]";

/// A blank between the words of an element.
const BLANK: &str = r"[\t\n\f\r ]";

/// The expression for this text alone.
fn literal(text: &str) -> String {
    let escaped = |c: char| if "\\^$.|?*+()[]{}/".contains(c) { format!("\\{c}") } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// A fingerprint, or the beginning of one and a `*`: each position has its own characters.
fn ja4() -> String {
    let at = |at: usize| match at {
        0 => "t",
        1 => "[01sd]",
        3 => "[di]",
        2 | 4..=7 => "[0-9]",
        8 | 9 => "[A-Za-z0-9]",
        10 | 23 => "_",
        _ => "[0-9a-f]",
    };
    let whole: String = (0..36).map(at).collect();
    let beginning =
        (1..36).rev().fold(String::new(), |rest, position| format!("(?:{}{rest})?", at(position)));
    format!("{whole}|t{beginning}[*]")
}

/// A media type with one `*` at most.
fn media_range() -> String {
    let part = "[A-Za-z0-9!#$%&'+.^_`|~-]";
    format!("{part}+/{part}+|{part}*[*]{part}*/{part}+|{part}+/{part}*[*]{part}*")
}

/// A segment of a path of these characters that is neither `.` nor `..`: `other` are those besides the dot, and `unit`
/// is any.
fn segment(other: &str, unit: &str) -> String {
    format!("(?:{other}{unit}*|[.]{other}{unit}*|[.][.]{unit}+)")
}

/// A segment of a path without the characters of the class `but`.
fn below(but: &str) -> String {
    segment(&format!("[^.{but}]"), &format!("[^{but}]"))
}

fn file_attempt() -> String {
    let (one, any) = (below(r"/{}\x00"), r"[^/{}\x00]*");
    format!("/?(?:{one}/)*{any}[{{]path[}}]{any}(?:/{one})*/?")
}

/// Characters as they are, and escapes in upper case of those that need one.
fn route_path() -> String {
    let escape = "%(?:[0189A-F][0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-DF])";
    let other = format!("(?:[A-Za-z0-9_~!$&'()+,;=:@-]|{escape})");
    let unit = format!("(?:[A-Za-z0-9._~!$&'()+,;=:@-]|{escape})");
    format!("/|(?:/{})+/?", segment(&other, &unit))
}

fn redirect() -> String {
    let first = r"(?:[!$-.0-;=@-\[\]_a-z~]|[{]host[}])";
    let unit = r"(?:[!#-;=?-\[\]_a-z~]|[{](?:host|path|query|uri)[}])";
    format!("https|https?://{first}{unit}*")
}
