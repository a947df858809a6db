//! curl as a client of an Offramp in mode `http`: any URL goes to the listener of its scheme.

use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::require;

use crate::support::instance::{Instance, ask};

/// A listener in mode `http` on a free port, as configuration; its name is `default`.
pub(crate) const HTTP: &str = "\
[[listener]]
address = \"127.0.0.1:0\"
mode = \"http\"
";

/// The same without TLS; its name is `plain`.
pub(crate) const PLAIN: &str = "\
[[listener]]
name = \"plain\"
address = \"127.0.0.1:0\"
mode = \"http\"
tls = false
";

/// A response, or a part of one.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// What curl exits with: 0 where the response is whole.
    pub(crate) code: i32,
    /// The heads of interim responses, then that of the response; names in lower case.
    pub(crate) heads: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// What curl says of it with `--verbose`, or what is wrong.
    pub(crate) said: String,
}

impl Answer {
    /// The status; 0 where there is no response.
    pub(crate) fn status(&self) -> u16 {
        let line = self.heads.last().map_or("", String::as_str);
        line.split(' ').nth(1).and_then(|word| word.trim().parse().ok()).unwrap_or(0)
    }

    /// The values of a field.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let lines = self.heads.last().into_iter().flat_map(|head| head.lines());
        lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect()
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

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Takes heads off the front of what `--include` prints.
    fn parse(mut output: &[u8]) -> (Vec<String>, Vec<u8>) {
        let mut heads = Vec::new();
        while output.starts_with(b"HTTP/") {
            let Some(end) = output.windows(4).position(|window| window == b"\r\n\r\n") else { break };
            let head = String::from_utf8_lossy(&output[..end]);
            let lower = |line: &str| match line.split_once(':') {
                Some((name, value)) => format!("{}:{value}", name.to_ascii_lowercase()),
                None => line.to_owned(),
            };
            heads.push(head.lines().map(lower).collect::<Vec<_>>().join("\n"));
            output = &output[end + 4..];
            if !heads.last().is_some_and(|head| head.split(' ').nth(1).is_some_and(|s| s.starts_with('1'))) {
                break;
            }
        }
        (heads, output.to_vec())
    }
}

/// A curl that trusts the CA of the instance, and sends every URL to its listener of that scheme.
pub(crate) fn command(instance: &Instance, scheme: &str) -> Command {
    let listener = if scheme == "http" { "plain" } else { "default" };
    let mut command = Command::new(require("curl", "curl"));
    // -q: without the machine's own curlrc.
    command.args(["-q", "--silent", "--show-error", "--max-time", "100", "--noproxy", "*", "--cacert"]);
    command.arg(instance.home.ca.certificate());
    command.args(["--connect-to", &format!("::127.0.0.1:{}", instance.address_of(listener).port())]);
    command.current_dir(instance.home.path());
    command
}

/// Asks for one URL with these arguments more, and gives what came.
#[track_caller]
pub(crate) fn curl(instance: &Instance, arguments: &[&str], url: &str) -> Answer {
    let mut command = command(instance, url.split(':').next().unwrap_or_default());
    command.arg("--include").args(arguments).arg(url);
    let output = ask(command, b"", Duration::from_secs(110));
    let (heads, body) = Answer::parse(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Answer { code: output.status.code().unwrap_or(-1), heads, body, said }
}

/// The same for a response that must be whole.
#[track_caller]
pub(crate) fn get(instance: &Instance, arguments: &[&str], url: &str) -> Answer {
    let answer = curl(instance, arguments, url);
    assert_eq!(answer.code, 0, "{url}: {}\n{}", answer.said, instance.process.transcript());
    answer
}
