//! One receiver, with its secrets read from their files, and a try to send it a message.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use offramp_certs::anchors::Anchors;
use offramp_config::model::{
    MailTarget, NotifyConfig, NotifyFormat, NotifyKind, NotifyTarget, NotifyUrl, ProgramCommand, Webhook,
    is_local,
};
use offramp_net::process::host_name;
use offramp_observe::timestamp::rfc3339_micros;
use offramp_observe::visible;
use offramp_process::Finding;
use offramp_sources::web::{Near, Unanswered, Web, exchange_plain};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::files::{anchors, authorization, gather, secret, url_of};
use super::message::{
    MessageOrigin, NotifyRequest, document, header_text, request, templated, text, title, trial,
};
use super::outbox::{Delivery, TryOutcome};
use super::program::{ReceiverPrograms, executable};
use super::smtp::{self, MailLogin, MailRoute, MailText, MailTls, NotTaken};
use super::tracker::Notification;

/// The time limit of one try.
const LIMIT: Duration = Duration::from_secs(10);
/// The same for mail: servers hold up strangers before they greet them.
pub(super) const MAIL_LIMIT: Duration = Duration::from_secs(60);
/// The most bytes of an answer that are read.
const ANSWER: usize = 64 << 10;
/// The most characters of an answer that are shown.
const SHOWN: usize = 300;

/// A receiver of the configuration, ready to be sent to.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) config: NotifyConfig,
    way: DeliveryWay,
    roots: Option<Anchors>,
    /// The client for TLS; absent for plain HTTP.
    web: Option<Web>,
}

/// The way to a receiver, with its secrets.
#[derive(Clone, PartialEq)]
enum DeliveryWay {
    /// A URL, and the value of `Authorization`.
    Webhook(NotifyUrl, Option<HeaderValue>),
    /// A mail, after this login.
    Mail(MailTarget, Option<MailLogin>),
    /// A run of a program.
    Program(ProgramCommand),
}

impl DeliveryWay {
    /// Returns `true` if TLS may be needed; `has_roots` where authorities are named for it.
    fn needs_tls(&self, has_roots: bool) -> bool {
        match self {
            Self::Webhook(url, _) => url.is_https(),
            Self::Program(_) => false,
            Self::Mail(mail, _) => has_roots || mail.server.is_smtps || mail.server.host != "localhost",
        }
    }
}

impl PartialEq for Receiver {
    fn eq(&self, other: &Self) -> bool {
        (&self.config, &self.way, &self.roots) == (&other.config, &other.way, &other.roots)
    }
}

/// A message, as each try sends it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Envelope {
    /// A request, and the identity of the message, the same in each try.
    Webhook(NotifyRequest, String),
    Mail(MailText),
    /// The document for the standard input of a program.
    Program(String),
}

/// The outcome of a message that an operator has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialOutcome {
    /// The origin of the receiver's URL.
    pub to: String,
    /// Set if the receiver has taken the message.
    pub taken: bool,
    /// The answer, or the reason why there is none, in one line.
    pub says: String,
}

impl Receiver {
    /// Reads the files of a receiver.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub(crate) fn prepare(config: &NotifyConfig) -> Result<Self, Vec<Finding>> {
        let mut wrong = Vec::new();
        let way = match &config.to {
            NotifyTarget::Webhook(webhook) => prepare_webhook(config, webhook, &mut wrong),
            NotifyTarget::Mail(mail) => {
                let password = mail.password_file.as_ref().map(|file| gather(&mut wrong, secret(file)));
                let login = mail.user.clone().zip(password.flatten());
                let login = login.map(|(user, password)| MailLogin { user, password });
                Some(DeliveryWay::Mail(mail.clone(), login))
            }
            NotifyTarget::Program(program) => {
                let found = executable(program.command.path());
                gather(&mut wrong, found.map_err(|why| Finding::new(&config.at, why)));
                Some(DeliveryWay::Program(program.command.clone()))
            }
        };
        let roots = config.ca.as_ref().map(|file| gather(&mut wrong, anchors(file)));
        let roots = roots.flatten();
        let needs_tls = way.as_ref().is_some_and(|way| way.needs_tls(roots.is_some()));
        let web = needs_tls.then(|| {
            gather(&mut wrong, Web::new(roots.as_ref()).map_err(|why| Finding::new(&config.at, why)))
        });
        match way {
            Some(way) if wrong.is_empty() => {
                Ok(Self { config: config.clone(), way, roots, web: web.flatten() })
            }
            _ => Err(wrong),
        }
    }

    /// The address of the receiver, without its secrets.
    pub(crate) fn origin(&self) -> String {
        match &self.way {
            DeliveryWay::Webhook(url, _) => url.origin().to_owned(),
            DeliveryWay::Mail(mail, _) => mail.server.to_string(),
            DeliveryWay::Program(command) => command.path().display().to_string(),
        }
    }

    /// The message in the form of the receiver.
    pub(crate) fn envelope(&self, notification: &Notification<NotifyKind>, now: SystemTime) -> Envelope {
        let host = host_name();
        let at = String::from_utf8_lossy(&rfc3339_micros(now)).into_owned();
        let origin = MessageOrigin { host: &host, at: &at };
        let nanos = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let id = format!("offramp-{}-{nanos:x}", std::process::id());
        match &self.config.to {
            NotifyTarget::Webhook(webhook) => {
                let request = match &webhook.body {
                    Some(template) => templated(notification, template, origin),
                    None => request(notification, webhook.format, origin),
                };
                Envelope::Webhook(request, id)
            }
            NotifyTarget::Program(_) => Envelope::Program(document(notification, origin).to_string()),
            NotifyTarget::Mail(_) => {
                let (subject, text) = (header_text(&title(notification, &host)), text(notification));
                Envelope::Mail(MailText {
                    subject,
                    text,
                    date: httpdate::fmt_http_date(now).replace("GMT", "+0000"),
                    id,
                })
            }
        }
    }

    /// Sends a message once.
    pub(crate) async fn send(&self, envelope: &Envelope, programs: &ReceiverPrograms) -> TryOutcome {
        match (&self.way, envelope) {
            (DeliveryWay::Webhook(url, authorization), Envelope::Webhook(message, id)) => {
                let sent = match self.request(url, authorization.as_ref(), message, id) {
                    Ok(request) => self.exchange(request).await,
                    Err(error) => return TryOutcome::refused(error.to_string()),
                };
                sent.unwrap_or_else(TryOutcome::later)
            }
            (DeliveryWay::Mail(mail, login), Envelope::Mail(text)) => {
                self.mail(mail, login.as_ref(), text).await
            }
            (DeliveryWay::Program(command), Envelope::Program(document)) => {
                programs.send(command, document.as_bytes()).await
            }
            // The receiver has changed its way since.
            _ => TryOutcome::refused("made for another way to this receiver".to_owned()),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<TryOutcome, String> {
        let exchange = async {
            match &self.web {
                Some(web) => web.exchange(request, ANSWER).await,
                None => exchange_plain(request, ANSWER, LOCAL).await,
            }
        };
        let answered = timeout(LIMIT, exchange).await.map_err(|_| late(LIMIT))?;
        let response = match answered {
            Ok(response) => response,
            // The head decides: a message that was taken is not sent again for a body that is too long or breaks off.
            Err(Unanswered { status: Some(status), .. }) => {
                let delivery = verdict(status, &HeaderMap::new());
                return Ok(TryOutcome { delivery, says: shown(status, b"") });
            }
            Err(unanswered) => return Err(unanswered.reason),
        };
        let delivery = verdict(response.status(), response.headers());
        Ok(TryOutcome { delivery, says: shown(response.status(), response.body()) })
    }

    async fn mail(&self, mail: &MailTarget, login: Option<&MailLogin>, text: &MailText) -> TryOutcome {
        let tls = MailTls { web: self.web.as_ref(), everywhere: self.roots.is_some() };
        let route = MailRoute { from: &mail.from, to: &mail.to };
        match timeout(MAIL_LIMIT, smtp::send(&mail.server, tls, login, route, text)).await {
            Ok(Ok(says)) => TryOutcome { delivery: Delivery::Taken, says },
            Ok(Err(NotTaken { is_final: true, says })) => TryOutcome::refused(says),
            Ok(Err(NotTaken { is_final: false, says })) => TryOutcome::later(says),
            Err(_) => TryOutcome::later(late(MAIL_LIMIT)),
        }
    }

    /// Sends a message that says that messages arrive, once.
    pub(crate) async fn try_out(&self, programs: &ReceiverPrograms) -> TrialOutcome {
        let envelope = self.envelope(&trial(self.config.name.as_str()), SystemTime::now());
        let TryOutcome { delivery, says } = self.send(&envelope, programs).await;
        TrialOutcome { to: self.origin(), taken: delivery == Delivery::Taken, says }
    }

    fn request(
        &self,
        url: &NotifyUrl,
        authorization: Option<&HeaderValue>,
        message: &NotifyRequest,
        id: &str,
    ) -> Result<Request<Full<Bytes>>, http::Error> {
        let is_matrix = matches!(&self.config.to, NotifyTarget::Webhook(webhook)
            if webhook.body.is_none() && webhook.format == NotifyFormat::Matrix);
        let (method, url) = if is_matrix {
            (Method::PUT, format!("{}/{id}", url.as_str().trim_end_matches('/')))
        } else {
            (Method::POST, url.as_str().to_owned())
        };
        let NotifyRequest { content_type, fields, body } = message;
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header(CONTENT_TYPE, &**content_type)
            .header(USER_AGENT, concat!("offramp/", env!("CARGO_PKG_VERSION")));
        for (name, value) in fields {
            request = request.header(&**name, value);
        }
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.body(Full::from(body.clone()))
    }
}

/// The receivers that plain HTTP goes to.
const LOCAL: Near = Near { is_near: is_local, name: "in a local network" };

fn late(limit: Duration) -> String {
    format!("no answer within {} s", limit.as_secs())
}

fn prepare_webhook(
    config: &NotifyConfig,
    webhook: &Webhook,
    wrong: &mut Vec<Finding>,
) -> Option<DeliveryWay> {
    let url = match (&webhook.url, &webhook.url_file) {
        (Some(url), _) => Some(url.clone()),
        (None, Some(file)) => gather(wrong, url_of(file)),
        (None, None) => {
            wrong.push(Finding::new(&config.at, format!("notify {}: there is no `url`", config.name)));
            None
        }
    };
    let token = webhook.token_file.as_ref().map(|file| gather(wrong, authorization(file)));
    Some(DeliveryWay::Webhook(url?, token.flatten()))
}

/// The meaning of a status.
fn verdict(status: StatusCode, headers: &HeaderMap) -> Delivery {
    match status.as_u16() {
        200..=299 => Delivery::Taken,
        408 | 425 | 429 | 500..=599 => {
            let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            Delivery::Later { wait: seconds.map(Duration::from_secs) }
        }
        _ => Delivery::Refused,
    }
}

/// A status and the begin of the body, without control characters.
fn shown(status: StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let plain: String = visible(&text).chars().take(SHOWN).collect();
    let gap = if plain.trim().is_empty() { "" } else { ": " };
    format!("{status}{gap}{}", plain.trim())
}

#[cfg(test)]
mod tests {
    use offramp_config::model::FilePath;

    use super::*;

    #[test]
    fn statuses_have_a_meaning() {
        let of = |status: u16, wait: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.extend(wait.map(|wait| (RETRY_AFTER, HeaderValue::from_str(wait).unwrap())));
            verdict(StatusCode::from_u16(status).unwrap(), &headers)
        };
        for status in [200, 201, 202, 204] {
            assert_eq!(of(status, None), Delivery::Taken);
        }
        for status in [301, 302, 307, 400, 401, 403, 404, 410, 413, 422] {
            assert_eq!(of(status, Some("1")), Delivery::Refused, "{status}");
        }
        for status in [408, 425, 429, 500, 502, 503, 504, 599] {
            assert_eq!(of(status, None), Delivery::Later { wait: None });
            assert_eq!(of(status, Some("7")), Delivery::Later { wait: Some(Duration::from_secs(7)) });
            assert_eq!(of(status, Some("Fri, 31 Dec 1999 23:59:59 GMT")), Delivery::Later { wait: None });
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_told_together_and_without_their_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(FilePath::new(path))
        };
        let mut config = NotifyConfig::called("phone".parse().unwrap());
        let mut webhook = Webhook {
            url_file: file("url", "ftp://a/secret\n"),
            token_file: file("token", "sec\u{e9}ret\nmore"),
            ..Webhook::default()
        };
        config.to = NotifyTarget::Webhook(webhook.clone());
        config.ca = file("ca", "secret");
        let wrong = Receiver::prepare(&config).err().unwrap();
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(!format!("{wrong:?}").contains("/secret"), "{wrong:?}");
        webhook.url_file = file("url", " http://127.0.0.1:1/secret\n");
        webhook.token_file = file("token", "token\n");
        (config.ca, config.to) = (None, NotifyTarget::Webhook(webhook));
        let receiver = Receiver::prepare(&config).ok().unwrap();
        assert_eq!(receiver.origin(), "http://127.0.0.1:1");
        let DeliveryWay::Webhook(_, Some(authorization)) = &receiver.way else { panic!("no token") };
        assert_eq!(authorization, "Bearer token");
        file("token", "other\n");
        assert!(receiver != Receiver::prepare(&config).ok().unwrap(), "a new token is a change");
    }
}
