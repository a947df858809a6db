//! Renewal of a certificate of an authority now, as `offramp cert renew` has it.
//!
//! The order goes on when nobody waits for it any more: the log and the list of certificates tell of its end.

use std::io;
use std::path::Path;
use std::time::Duration;

use hyper::StatusCode;
use offramp_config::Config;
use offramp_config::model::{CertificateConfig, CertificateSource};
use offramp_control::control_socket;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::{Control, OperationResult, ProblemDetails};

/// The time to wait for an order. It may take minutes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Orders the certificate of this item, or of this name.
pub(super) async fn answer(control: &Control, named: &str) -> Result<OperationResult, ProblemDetails> {
    let in_force = control.view.in_force();
    let name = certificate_name(&in_force.config, named)?;
    let socket = control_socket(&in_force.config.process.state_dir);
    let lines = Lines::ask(&socket, &name).await.map_err(|error| {
        ProblemDetails::busy(format!("the orders of certificates do not answer: {error}; try again"))
    })?;
    let Lines { renewed, failed, waiting } = lines;
    if renewed.is_empty() && !failed.is_empty() && !waiting {
        let problem = ProblemDetails::new(StatusCode::BAD_GATEWAY, failed.join("; "));
        return Err(problem.with("errors", failed.into()));
    }
    let renewed: Vec<Value> = renewed.into_iter().map(|until| json!({ "until": until })).collect();
    let answer = json!({ "renewed": renewed, "failed": failed, "waiting": waiting });
    Ok(if waiting { OperationResult::Accepted(answer) } else { OperationResult::Json(answer) })
}

/// A name of the certificate by which its order is found.
fn certificate_name(config: &Config, named: &str) -> Result<String, ProblemDetails> {
    let names = |one: &CertificateConfig| match &one.source {
        CertificateSource::Acme(acme) => {
            let names = acme.on_demand.as_ref().map_or(&acme.names, |on_demand| &on_demand.names);
            names.iter().map(ToString::to_string).collect()
        }
        _ => Vec::new(),
    };
    if let Some(item) = config.certificates.iter().find(|one| one.name() == named) {
        return names(item).into_iter().next().ok_or_else(|| {
            let why = format!("the certificate `{named}` comes from no authority: nothing can order it");
            ProblemDetails::new(StatusCode::CONFLICT, why)
        });
    }
    // Routes may have certificates that no item is written for; whether there is one of the name is known to their keeper.
    let is_name = named.len() <= 253
        && named.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '*' | '_' | ':'));
    let known: Vec<String> = config.certificates.iter().map(CertificateConfig::name).collect();
    let is_some =
        is_name && config.certificates.iter().any(|one| names(one).iter().any(|name| name == named));
    let is_of_route =
        is_name && config.routes.iter().any(|route| route.hosts.iter().any(|host| host.to_string() == named));
    if is_some || is_of_route {
        return Ok(named.to_owned());
    }
    Err(ProblemDetails::unknown("certificate", named, known.iter().map(String::as_str)))
}

/// The outcomes of orders.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines {
    /// The times until which they are valid.
    renewed: Vec<String>,
    failed: Vec<String>,
    /// Set if an order goes on.
    waiting: bool,
}

impl Lines {
    async fn ask(socket: &Path, name: &str) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(format!("renew {name}\n").as_bytes()).await?;
        let mut read = BufReader::new(stream).lines();
        let mut lines = Self::default();
        let until = Instant::now() + PATIENCE;
        loop {
            let Ok(line) = timeout_at(until, read.next_line()).await else {
                return Ok(Self { waiting: true, ..lines });
            };
            let Some(line) = line? else { return Ok(lines) };
            match line.split_once(' ') {
                Some(("ok", until)) => lines.renewed.push(until.to_owned()),
                Some(("error", why)) => lines.failed.push(why.to_owned()),
                _ => lines.failed.push(line),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn outcomes_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut asked = String::new();
            stream.read_line(&mut asked).await.unwrap();
            stream.write_all(b"ok tomorrow\nerror the authority refused\n").await.unwrap();
            asked
        };
        let (asked, lines) = tokio::join!(serve, Lines::ask(&path, "a.test"));
        assert_eq!(asked, "renew a.test\n");
        let lines = lines.unwrap();
        assert_eq!((lines.renewed, lines.waiting), (vec!["tomorrow".to_owned()], false));
        assert_eq!(lines.failed, ["the authority refused"]);
    }
}
