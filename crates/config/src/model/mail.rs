//! Mail to operators: addresses, and the server that takes it.

use std::fmt;
use std::str::FromStr;

use super::FilePath;
use super::web_url::host_and_port;
use crate::error::{Problem, shown};

/// A mail to one or several addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailTarget {
    /// The recipients; at least one.
    pub to: Vec<MailAddress>,
    /// The address of the sender.
    pub from: MailAddress,
    /// The server that takes it.
    pub server: MailServer,
    /// The name for a login; present if `password_file` is.
    pub user: Option<String>,
    /// The file with the password for a login.
    pub password_file: Option<FilePath>,
}

impl MailTarget {
    /// The mail before its keys are read, of which three must be written.
    pub(crate) fn blank() -> Self {
        let from = MailAddress("root@localhost".to_owned());
        let server = MailServer { is_smtps: false, host: "localhost".to_owned(), port: None };
        MailTarget { to: Vec::new(), from, server, user: None, password_file: None }
    }
}

/// An e-mail address of ASCII without quotes and comments (RFC 5321 section 4.1.2, `Dot-string@Domain`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailAddress(String);

impl MailAddress {
    /// The address as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MailAddress {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let is_atom = |atom: &str| {
            let is_text = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+/=?^_`{|}~-".contains(&byte);
            !atom.is_empty() && atom.bytes().all(is_text)
        };
        let is_label = |label: &str| {
            let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !label.is_empty()
                && label.bytes().all(is_inner)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let sound = text.len() <= 254
            && text.split_once('@').is_some_and(|(local, domain)| {
                local.split('.').all(is_atom) && domain.split('.').all(is_label)
            });
        if sound {
            return Ok(MailAddress(text.to_owned()));
        }
        let problem = Problem::new(format!("`{}` is no e-mail address", shown(text)));
        Err(problem.help("write such as \"ops@example.org\", without a name"))
    }
}

impl fmt::Display for MailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A server that takes mail: `smtps`, with TLS from the first byte, or `smtp`, with STARTTLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailServer {
    /// Set for `smtps`.
    pub is_smtps: bool,
    /// A name, or an address without brackets.
    pub host: String,
    port: Option<u16>,
}

impl MailServer {
    /// The port: by default that of submission (RFC 8314, RFC 6409), and 25 on this machine.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(match self.is_smtps {
            true => 465,
            false if self.host == "localhost" => 25,
            false => 587,
        })
    }
}

impl FromStr for MailServer {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let refused = |why: &str| {
            let problem = Problem::new(format!("`{}` is no server for mail: {why}", shown(text)));
            problem.help("write \"smtps://host\", or \"smtp://host\" for STARTTLS; user and password have keys of their own")
        };
        let (rest, is_smtps) = match (text.strip_prefix("smtps://"), text.strip_prefix("smtp://")) {
            (Some(rest), _) => (rest, true),
            (_, Some(rest)) => (rest, false),
            _ => return Err(refused("it must begin with smtps:// or smtp://")),
        };
        let (host, port) = host_and_port(rest.strip_suffix('/').unwrap_or(rest)).map_err(refused)?;
        Ok(MailServer { is_smtps, host: host.to_owned(), port })
    }
}

impl fmt::Display for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_smtps { "smtps" } else { "smtp" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}", self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_addresses_of_mail() {
        for (text, host, port) in [
            ("smtps://mail.example.org", "mail.example.org", 465),
            ("smtp://mail.example.org", "mail.example.org", 587),
            ("smtp://localhost", "localhost", 25),
            ("smtp://[::1]:2525", "::1", 2525),
        ] {
            let server: MailServer = text.parse().unwrap();
            assert_eq!(
                (server.host.as_str(), server.port(), server.to_string().as_str()),
                (host, port, text)
            );
        }
        for text in [
            "mail.example.org",
            "smtps://",
            "smtps://u:p@h",
            "smtps://h:0",
            "smtps://h/x",
            "https://h",
            "smtp://h h",
        ] {
            assert!(text.parse::<MailServer>().is_err(), "{text}");
        }
        for text in ["ops@example.org", "a.b+c@localhost", "o'neil@x-y.example"] {
            assert_eq!(text.parse::<MailAddress>().unwrap().as_str(), text);
        }
        for text in [
            "",
            "ops",
            "@a",
            "ops@",
            "a b@c",
            "a@b c",
            "a..b@c",
            ".a@b",
            "a@b..c",
            "a@-b",
            "a@b\r\nRCPT TO:<c>",
            "<a@b>",
            "é@b",
            "a@b@c",
        ] {
            assert!(text.parse::<MailAddress>().is_err(), "{text}");
        }
    }
}
