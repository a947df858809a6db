//! Submission of one mail to one server (RFC 5321, RFC 6409): TLS from the first byte or by STARTTLS, a login, and a text.
//!
//! Without TLS it talks to this machine only, and a server elsewhere that offers none gets nothing. The caller bounds the
//! time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use offramp_config::model::{MailAddress, MailServer};
use offramp_net::process::host_name;
use offramp_observe::visible;
use offramp_sources::web::{TlsStream, Web, connect};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

/// The longest line of a reply (RFC 5321 section 4.5.3.1.5 has 512 bytes), and the most lines.
const LINE: usize = 2048;
const LINES: usize = 100;

/// A mail, with its lines as they are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MailText {
    /// The value of `Subject`, encoded.
    pub(super) subject: String,
    pub(super) text: String,
    /// The value of `Date` (RFC 5322 section 3.3).
    pub(super) date: String,
    /// The identity of the message, without brackets and host.
    pub(super) id: String,
}

/// The terms of TLS.
#[derive(Clone, Copy)]
pub(super) struct MailTls<'a> {
    pub(super) web: Option<&'a Web>,
    /// Set where TLS is required on this machine, too.
    pub(super) everywhere: bool,
}

impl MailTls<'_> {
    async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        host: &str,
        stream: S,
    ) -> Result<TlsStream<S>, NotTaken> {
        let web = self
            .web
            .ok_or_else(|| NotTaken::later("there are no authorities to check the server against"))?;
        web.secure(host, stream).await.map_err(|unanswered| NotTaken::later(unanswered.reason))
    }
}

/// The addresses of a mail.
#[derive(Clone, Copy, Debug)]
pub(super) struct MailRoute<'a> {
    pub(super) from: &'a MailAddress,
    pub(super) to: &'a [MailAddress],
}

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct MailLogin {
    pub(super) user: String,
    pub(super) password: String,
}

/// The reason why a mail was not taken.
#[derive(Debug)]
pub(super) struct NotTaken {
    /// Set if the server will not take it later, either.
    pub(super) is_final: bool,
    pub(super) says: String,
}

impl NotTaken {
    fn later(says: impl Into<String>) -> Self {
        Self { is_final: false, says: says.into() }
    }
}

/// A reply of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SmtpReply {
    code: u16,
    /// The text of each line.
    lines: Vec<String>,
}

impl SmtpReply {
    /// Returns `true` if the server offers this extension, by its reply to EHLO.
    fn offers(&self, extension: &str) -> bool {
        self.lines
            .iter()
            .any(|line| line.split(' ').next().is_some_and(|word| word.eq_ignore_ascii_case(extension)))
    }

    /// Returns `true` if the server offers this way of a login, by its reply to EHLO.
    fn offers_login(&self, way: &str) -> bool {
        let is_it = |line: &String| {
            let mut words = line.split([' ', '=']);
            words.next().is_some_and(|word| word.eq_ignore_ascii_case("AUTH"))
                && words.any(|word| word.eq_ignore_ascii_case(way))
        };
        self.lines.iter().any(is_it)
    }

    fn says(&self) -> String {
        format!("{} {}", self.code, visible(&self.lines.join(" ")).chars().take(300).collect::<String>())
    }
}

/// Sends a mail; gives the last reply of the server.
///
/// # Errors
/// The server did not take it.
pub(super) async fn send(
    server: &MailServer,
    tls: MailTls<'_>,
    login: Option<&MailLogin>,
    route: MailRoute<'_>,
    mail: &MailText,
) -> Result<String, NotTaken> {
    let stream = connect(&server.host, server.port()).await.map_err(NotTaken::later)?;
    let peer = stream.peer_addr().map_err(|error| NotTaken::later(error.to_string()))?;
    let is_here = peer.ip().to_canonical().is_loopback();
    if server.is_smtps {
        let stream = tls.secure(&server.host, stream).await?;
        let mut session = Session::greeted(stream).await?;
        let offered = session.hello().await?;
        return session.submit(&offered, login, route, mail).await;
    }
    let mut session = Session::greeted(stream).await?;
    let offered = session.hello().await?;
    if is_here && !tls.everywhere {
        return session.submit(&offered, login, route, mail).await;
    }
    if !offered.offers("STARTTLS") {
        return Err(NotTaken::later(format!(
            "{} offers no STARTTLS: nothing is sent without TLS",
            server.host
        )));
    }
    session.ask("STARTTLS", 220).await?;
    let stream = tls.secure(&server.host, session.into_stream()?).await?;
    let mut session = Session { stream: BufReader::new(stream) };
    // An offer from before the handshake is not to be trusted (RFC 3207 section 4.2).
    let offered = session.hello().await?;
    session.submit(&offered, login, route, mail).await
}

/// A conversation with a server.
struct Session<S> {
    stream: BufReader<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    async fn greeted(stream: S) -> Result<Self, NotTaken> {
        let mut session = Self { stream: BufReader::new(stream) };
        session.expect(220).await?;
        Ok(session)
    }

    /// The stream beneath, to begin TLS on: what came behind the reply was injected, and ends the conversation.
    fn into_stream(self) -> Result<S, NotTaken> {
        if self.stream.buffer().is_empty() {
            return Ok(self.stream.into_inner());
        }
        Err(NotTaken::later("the server went on without TLS after STARTTLS"))
    }

    async fn hello(&mut self) -> Result<SmtpReply, NotTaken> {
        let name = host_name();
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        let sound = !name.is_empty() && name.chars().all(is_name);
        self.ask(&format!("EHLO {}", if sound { name.as_str() } else { "localhost" }), 250).await
    }

    async fn submit(
        &mut self,
        offered: &SmtpReply,
        login: Option<&MailLogin>,
        route: MailRoute<'_>,
        mail: &MailText,
    ) -> Result<String, NotTaken> {
        if let Some(login) = login {
            self.log_in(offered, login).await?;
        }
        self.ask(&format!("MAIL FROM:<{}>", route.from), 250).await?;
        let mut refused = Vec::new();
        for to in route.to {
            match self.ask(&format!("RCPT TO:<{to}>"), 250).await {
                Ok(_) => {}
                // One address that is gone must not keep the mail from the others.
                Err(NotTaken { is_final: true, says }) => refused.push((to, says)),
                Err(later) => return Err(later),
            }
        }
        if refused.len() == route.to.len()
            && let Some((_, says)) = refused.pop()
        {
            return Err(NotTaken { is_final: true, says });
        }
        self.ask("DATA", 354).await?;
        let taken = self.ask(&document(route, mail), 250).await?;
        // The mail is taken, however this ends.
        let _ = self.write("QUIT").await;
        let refused = refused.iter().map(|(to, says)| format!("; not for {to}: {says}"));
        Ok(taken.says() + &refused.collect::<String>())
    }

    async fn log_in(&mut self, offered: &SmtpReply, login: &MailLogin) -> Result<(), NotTaken> {
        let MailLogin { user, password } = login;
        if offered.offers_login("PLAIN") {
            let secret = STANDARD.encode(format!("\0{user}\0{password}"));
            self.ask(&format!("AUTH PLAIN {secret}"), 235).await?;
        } else if offered.offers_login("LOGIN") {
            self.ask("AUTH LOGIN", 334).await?;
            self.ask(&STANDARD.encode(user), 334).await?;
            self.ask(&STANDARD.encode(password), 235).await?;
        } else {
            return Err(NotTaken::later("the server offers no login by PLAIN or LOGIN"));
        }
        Ok(())
    }

    /// Sends a line, and expects this reply.
    async fn ask(&mut self, line: &str, code: u16) -> Result<SmtpReply, NotTaken> {
        self.write(line).await?;
        self.expect(code).await
    }

    async fn write(&mut self, line: &str) -> Result<(), NotTaken> {
        let written = async {
            self.stream.write_all(format!("{line}\r\n").as_bytes()).await?;
            self.stream.flush().await
        };
        written.await.map_err(|error| NotTaken::later(error.to_string()))
    }

    async fn expect(&mut self, code: u16) -> Result<SmtpReply, NotTaken> {
        let reply = self.reply().await?;
        // 251 and 252 take a recipient, too (RFC 5321 section 3.4).
        if reply.code == code || code == 250 && matches!(reply.code, 251 | 252) {
            return Ok(reply);
        }
        Err(NotTaken { is_final: (500..600).contains(&reply.code), says: reply.says() })
    }

    async fn reply(&mut self) -> Result<SmtpReply, NotTaken> {
        let mut reply = SmtpReply::default();
        for _ in 0..LINES {
            let line = self.line().await?;
            let code = line.get(..3).and_then(|code| code.parse().ok());
            let Some(code) = code.filter(|code| (200..600).contains(code)) else {
                return Err(NotTaken::later("what answers speaks no SMTP"));
            };
            reply.code = code;
            reply.lines.push(line.get(4..).unwrap_or_default().to_owned());
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(reply);
            }
        }
        Err(NotTaken::later("the reply of the server has no end"))
    }

    /// A line of at most [`LINE`] bytes.
    async fn line(&mut self) -> Result<String, NotTaken> {
        let mut line = Vec::new();
        loop {
            let read = self.stream.fill_buf().await.map_err(|error| NotTaken::later(error.to_string()))?;
            if read.is_empty() {
                return Err(NotTaken::later("the server has closed the connection"));
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(read.len(), |end| end + 1);
            line.extend_from_slice(&read[..taken]);
            self.stream.consume(taken);
            if line.len() > LINE {
                return Err(NotTaken::later("a line of the server's reply is too long"));
            }
            if end.is_some() {
                return Ok(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
            }
        }
    }
}

/// The fields and the body, up to the dot that ends them. The body is in base64: no line of it begins with a dot, and none is
/// too long.
fn document(route: MailRoute<'_>, mail: &MailText) -> String {
    let to = route.to.iter().map(MailAddress::as_str).collect::<Vec<_>>().join(", ");
    let (_, domain) = route.from.as_str().split_once('@').unwrap_or(("", "localhost"));
    let MailText { subject, text, date, id } = mail;
    let mut document = format!(
        "From: Offramp <{}>\r\nTo: {to}\r\nSubject: {subject}\r\nDate: {date}\r\nMessage-ID: <{id}@{domain}>\r\n\
         Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n",
        route.from
    );
    let body = STANDARD.encode(text.replace('\n', "\r\n") + "\r\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(76));
        document.push_str(line);
        document.push_str("\r\n");
        rest = more;
    }
    document + "."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(lines: &[&str]) -> SmtpReply {
        SmtpReply { code: 250, lines: lines.iter().map(|line| (*line).to_owned()).collect() }
    }

    #[test]
    fn offers_are_read() {
        let offered =
            reply(&["mail.example.org", "STARTTLS", "AUTH=LOGIN XOAUTH2", "auth plain", "SIZE 1000"]);
        assert!(offered.offers("starttls") && offered.offers("SIZE") && !offered.offers("1000"));
        assert!(
            offered.offers_login("LOGIN")
                && offered.offers_login("PLAIN")
                && !offered.offers_login("CRAM-MD5")
        );
        assert!(!reply(&["STARTTLSX"]).offers("STARTTLS"));
    }

    #[test]
    fn a_document_has_short_lines_and_one_end() {
        let (from, to) = ("a@b.example".parse().unwrap(), ["c@d".parse().unwrap(), "e@f".parse().unwrap()]);
        let mail = MailText {
            subject: "one".to_owned(),
            text: ".\r\n.\nRCPT TO:<x@y>\n".to_owned() + &"é".repeat(5000),
            date: "Sat, 28 Nov 2026 09:30:00 GMT".to_owned(),
            id: "offramp-1".to_owned(),
        };
        let document = document(MailRoute { from: &from, to: &to }, &mail);
        assert!(document.lines().all(|line| line.len() <= 100), "{document}");
        assert!(
            document.contains("\r\nTo: c@d, e@f\r\n") && document.contains("<offramp-1@b.example>"),
            "{document}"
        );
        assert_eq!(document.matches("\r\n.").count(), 1, "{document}");
        assert!(document.ends_with("\r\n.") && !document.contains("RCPT"));
    }

    #[tokio::test]
    async fn replies_are_bounded() {
        for (sent, says) in [
            (format!("220 {}\r\n", "x".repeat(LINE)), "too long"),
            ("220-a\r\n".repeat(LINES), "no end"),
            ("HTTP/1.1 400 Bad Request\r\n".to_owned(), "no SMTP"),
            ("220".to_owned(), "closed"),
            ("421 busy\r\n".to_owned(), "421 busy"),
            ("554-go\r\n554 away\r\n".to_owned(), "554 go away"),
        ] {
            let (mut server, client) = tokio::io::duplex(1 << 20);
            server.write_all(sent.as_bytes()).await.unwrap();
            drop(server);
            let refused = Session::greeted(client).await.err().unwrap();
            assert!(refused.says.contains(says), "{says}: {}", refused.says);
            assert_eq!(refused.is_final, says.starts_with("554"), "{says}");
        }
    }

    /// A mail to two people goes to the one whose address exists; without any, it is refused.
    #[tokio::test]
    async fn one_address_that_is_gone_keeps_no_mail_from_the_others() {
        let (from, to) = ("a@b.example".parse().unwrap(), ["c@d".parse().unwrap(), "e@f".parse().unwrap()]);
        let (subject, text) = ("s".to_owned(), "t".to_owned());
        let mail = MailText { subject, text, date: String::new(), id: "i".to_owned() };
        for (replies, taken) in [
            (
                "250 from\r\n550 gone\r\n250 to\r\n354 go\r\n250 kept\r\n",
                Ok("250 kept; not for c@d: 550 gone"),
            ),
            ("250 from\r\n550 gone\r\n550 gone, too\r\n", Err("550 gone, too")),
        ] {
            let (mut server, client) = tokio::io::duplex(1 << 16);
            server.write_all(format!("220 a\r\n{replies}").as_bytes()).await.unwrap();
            let mut session = Session::greeted(client).await.ok().unwrap();
            let route = MailRoute { from: &from, to: &to };
            let sent = session.submit(&SmtpReply::default(), None, route, &mail).await;
            match (sent, taken) {
                (Ok(says), Ok(expected)) => assert_eq!(says, expected),
                (Err(NotTaken { is_final: true, says }), Err(expected)) => assert_eq!(says, expected),
                _ => panic!("{replies}"),
            }
        }
    }

    #[tokio::test]
    async fn a_reply_that_is_injected_before_tls_ends_the_conversation() {
        let (mut server, client) = tokio::io::duplex(1 << 10);
        server.write_all(b"220 a\r\n250 injected\r\n").await.unwrap();
        assert!(Session::greeted(client).await.ok().unwrap().into_stream().is_err());
    }
}
