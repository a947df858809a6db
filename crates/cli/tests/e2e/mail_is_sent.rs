//! Notifications by mail, to servers that speak TLS at once, by STARTTLS, or not at all, and that refuse.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use offramp_testkit::process::Source;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::support::instance::{Home, Instance};
use crate::support::offramp::{output, stderr, stdout};

const LISTENER: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
                        [[route]]\nrespond = { status = 204 }\n";

/// A server of mail that keeps what clients say.
struct MailSite {
    address: SocketAddr,
    said: Arc<Mutex<Vec<String>>>,
    refuses: Arc<AtomicBool>,
}

impl MailSite {
    /// With `tls`, STARTTLS is offered.
    fn start(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (said, refuses) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
        let talk = SmtpTalk { said: Arc::clone(&said), refuses: Arc::clone(&refuses) };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (talk, tls, stream) = (talk.clone(), tls.clone(), stream.unwrap());
                // A client may go at any time.
                std::thread::spawn(move || drop(talk.serve(stream, tls)));
            }
        });
        Self { address, said, refuses }
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }
}

#[derive(Clone)]
struct SmtpTalk {
    said: Arc<Mutex<Vec<String>>>,
    refuses: Arc<AtomicBool>,
}

impl SmtpTalk {
    fn serve(&self, mut stream: TcpStream, tls: Option<Arc<ServerConfig>>) -> std::io::Result<()> {
        stream.write_all(b"220 mail.test ESMTP\r\n")?;
        let Some(tls) = tls else { return self.talk(&mut stream, false).map(drop) };
        if self.talk(&mut stream, true)? {
            let connection = ServerConnection::new(tls).unwrap();
            self.talk(&mut StreamOwned::new(connection, stream), false)?;
        }
        Ok(())
    }

    /// Answers lines; true where TLS is to begin.
    fn talk(&self, stream: &mut (impl Read + Write), offers_tls: bool) -> std::io::Result<bool> {
        let mut is_data = false;
        loop {
            let mut line = Vec::new();
            // Byte by byte: what follows STARTTLS is TLS.
            while line.last() != Some(&b'\n') {
                let mut byte = [0];
                stream.read_exact(&mut byte)?;
                line.push(byte[0]);
            }
            let line = String::from_utf8(line).unwrap().trim_end().to_owned();
            self.said.lock().unwrap().push(line.clone());
            let answer = match line.split([' ', ':']).next().unwrap() {
                _ if is_data && line != "." => continue,
                "." if is_data => {
                    is_data = false;
                    "250 2.0.0 queued as 1"
                }
                "EHLO" if offers_tls => "250-mail.test\r\n250 STARTTLS",
                "EHLO" => "250-mail.test\r\n250-SIZE 1000000\r\n250 AUTH LOGIN PLAIN",
                "STARTTLS" => {
                    stream.write_all(b"220 go ahead\r\n")?;
                    return Ok(true);
                }
                "AUTH" if line == format!("AUTH PLAIN {}", STANDARD.encode("\0me\0pass word")) => "235 in",
                "AUTH" => "535 wrong",
                "RCPT" if self.refuses.load(Ordering::Relaxed) => "550 nobody <script>here",
                "DATA" => {
                    is_data = true;
                    "354 go on"
                }
                "QUIT" => "221 bye",
                _ => "250 ok",
            };
            stream.write_all(format!("{answer}\r\n").as_bytes())?;
            stream.flush()?;
        }
    }
}

fn receiver(server: &str, ca: &str, more: &str) -> String {
    format!(
        "{LISTENER}[[notify]]\nname = \"mail\"\n{ca}mail = {{ to = [\"ops@example.org\", \"b@example.org\"], \
         from = \"offramp@example.org\", server = \"{server}\"{more} }}\n"
    )
}

fn test(instance: &Instance) -> (String, String) {
    let said = output(instance.home.path(), &["notify", "test", "-c", "offramp.toml"]);
    (stdout(&said), stderr(&said))
}

/// The text of the mail that a server has got.
fn body(said: &[String]) -> String {
    let begin = said.iter().position(String::is_empty).unwrap_or_else(|| panic!("{said:?}"));
    let lines = said[begin + 1..].iter().take_while(|line| *line != ".");
    String::from_utf8(STANDARD.decode(lines.cloned().collect::<String>()).unwrap()).unwrap()
}

const LOGIN: &str = ", user = \"me\", password_file = \"password\"";

#[test]
fn a_server_of_this_machine_needs_no_tls() {
    let site = MailSite::start(None);
    let home = Home::new();
    let text = receiver(&format!("smtp://localhost:{}", site.address.port()), "", "");
    let instance = home.run(&text);
    let (out, error) = test(&instance);
    assert_eq!(error, "");
    assert!(out.starts_with("mail: smtp://localhost:") && out.ends_with("250 2.0.0 queued as 1\n"), "{out}");
    let said = site.said();
    for line in
        ["MAIL FROM:<offramp@example.org>", "RCPT TO:<ops@example.org>", "RCPT TO:<b@example.org>", "DATA"]
    {
        assert!(said.iter().any(|one| one == line), "{line}: {said:?}");
    }
    assert!(
        said.iter()
            .any(|line| line.starts_with("Subject: ") && line.contains("test of notifications to mail"))
    );
    assert!(body(&said).starts_with("test of notifications to mail: "), "{}", body(&said));

    site.refuses.store(true, Ordering::Relaxed);
    let (_, error) = test(&instance);
    assert!(error.contains("did not take the message: 550 nobody <script>here"), "{error}");
    // With `ca`, a server without TLS gets nothing.
    let before = site.said().len();
    let file = instance.home.file("offramp.toml");
    let text = fs::read_to_string(&file).unwrap().replace("mail = {", "ca = \"ca.pem\"\nmail = {");
    fs::write(&file, text).unwrap();
    let reloaded = output(instance.home.path(), &["ctl", "-c", "offramp.toml", "reload"]);
    assert!(reloaded.status.success(), "{}", stderr(&reloaded));
    let (_, error) = test(&instance);
    assert!(error.contains("offers no STARTTLS"), "{error}");
    let after = site.said()[before..].to_vec();
    assert!(after.iter().all(|line| line.starts_with("EHLO")), "{after:?}");
    instance.stop();
}

#[test]
fn a_login_goes_over_tls_by_either_way() {
    let home = Home::new();
    let chain = CertificateDer::pem_file_iter(home.file("server.chain.pem")).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(home.file("server.key")).unwrap();
    let tls = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let site = MailSite::start(Some(Arc::new(tls)));
    fs::copy(home.ca.certificate(), home.file("roots.pem")).unwrap();
    fs::write(home.file("password"), "pass word\n").unwrap();
    let ca = "ca = \"roots.pem\"\n";
    let instance = home.run(&receiver(&format!("smtp://localhost:{}", site.address.port()), ca, LOGIN));
    let (out, error) = test(&instance);
    assert_eq!((out.ends_with("250 2.0.0 queued as 1\n"), error.as_str()), (true, ""), "{out}");
    let said = site.said();
    let position = |what: &str| said.iter().position(|line| line.starts_with(what));
    assert!(position("STARTTLS") < position("AUTH PLAIN") && position("STARTTLS").is_some(), "{said:?}");

    // TLS from the first byte: Offramp itself stands before a server without.
    let plain = MailSite::start(None);
    let front = Instance::before(plain.address);
    fs::copy(front.home.ca.certificate(), instance.home.file("roots.pem")).unwrap();
    let file = instance.home.file("offramp.toml");
    let text = fs::read_to_string(&file).unwrap();
    let smtps = format!("smtps://localhost:{}", front.address().port());
    let text = text.replace(&format!("smtp://localhost:{}", site.address.port()), &smtps);
    fs::write(&file, text).unwrap();
    let reload = || output(instance.home.path(), &["ctl", "-c", "offramp.toml", "reload"]);
    assert!(reload().status.success());
    let (out, error) = test(&instance);
    assert_eq!(error, "");
    assert!(out.starts_with(&format!("mail: {smtps} answered 250 ")), "{out}");

    // A wrong password is for good, and is told without it.
    fs::write(instance.home.file("password"), "pass wort\n").unwrap();
    assert!(reload().status.success());
    let (_, error) = test(&instance);
    assert!(error.contains("535 wrong"), "{error}");
    let log = instance.process.lines(Source::Stderr).join("\n");
    assert!(!log.contains("pass w") && !log.contains(&STANDARD.encode("\0me\0pass word")), "{log}");
    instance.stop();
    front.stop();
}
