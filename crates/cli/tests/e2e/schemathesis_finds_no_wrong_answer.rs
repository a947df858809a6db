//! Schemathesis generates requests from the OpenAPI document of the admin API, sound ones and broken ones, and compares
//! each answer with the document.

use std::fs;
use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::Source;

use crate::support::instance::{Home, ask};
use crate::support::offramp::{output, stderr};
use crate::support::venv;

const VERSION: &str = "4.32.5";
/// It takes ten seconds on a machine that has nothing else to do.
const LIMIT: Duration = Duration::from_secs(240);
const TOKEN: &str = "0123456789abcdef";

/// How a configuration is sent, and names that are there: behind one that is made up is a 404 and nothing more.
const HOOKS: &str = r#"
import schemathesis

KNOWN = {"listener": "web", "route": "shop.example", "backend": "shop", "server": "127.0.0.1:3000"}

@schemathesis.serializer("application/toml")
def toml(ctx, value):
    return value if isinstance(value, bytes) else str(value).encode()

@schemathesis.hook
def map_path_parameters(ctx, path_parameters):
    return {name: KNOWN.get(name, value) for name, value in (path_parameters or {}).items()}
"#;

const TEXT: &str = "\
[admin]
address = \"127.0.0.1:0\"
token_file = \"token\"
[access_log]
output = \"none\"
[[listener]]
name = \"web\"
address = \"127.0.0.1:0\"
mode = \"http\"
tls = false
[[route]]
host = \"shop.example\"
backend = \"shop\"
[backend.shop]
servers = [\"127.0.0.1:3000\", \"127.0.0.1:3001\"]
";

#[test]
fn every_answer_is_one_that_the_description_has() {
    let python = venv::python("schemathesis", VERSION);
    let home = Home::new();
    fs::write(home.file("token"), format!("{TOKEN}\n")).unwrap();
    fs::write(home.file("hooks.py"), HOOKS).unwrap();
    let instance = home.run(TEXT);
    let address = instance.until("the log says where", || {
        let lines = instance.process.lines(Source::Stderr);
        let line = lines.iter().find(|line| line.contains(" admin "))?;
        Some(line.split("address=").nth(1)?.split_whitespace().next()?.trim_matches('"').to_owned())
    });
    let mut command = Command::new(python.with_file_name("st"));
    command.args(["--no-color", "run", &format!("http://{address}/v1/openapi.json")]);
    command.args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
    // These end the process, replace it, or last for minutes.
    for path in ["/v1/stop", "/v1/upgrade", "/v1/events", "/v1/figures"] {
        command.args(["--exclude-path", path]);
    }
    // What a configuration may say is more than a schema of JSON can tell.
    command.args(["--exclude-checks", "positive_data_acceptance", "--phases", "coverage,fuzzing"]);
    command.args(["--max-examples", "8", "--seed", "7", "--no-shrink", "--continue-on-failure"]);
    command.args(["--suppress-health-check", "all", "--warnings", "off", "--request-timeout", "60"]);
    command.current_dir(instance.home.path()).env("SCHEMATHESIS_HOOKS", "hooks");
    command.env("HOME", instance.home.path());
    let done = ask(command, b"", LIMIT);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    let summary = said.lines().find(|line| line.contains(" generated, ")).unwrap_or_else(|| panic!("{said}"));
    println!("{}", summary.trim());
    let cases: usize = summary.split_whitespace().next().unwrap().parse().unwrap();
    assert!(cases > 500, "{said}");
    let status =
        output(instance.home.path(), &["ctl", "--admin", &address, "--token-file", "token", "status"]);
    assert!(status.status.success(), "{}", stderr(&status));
    instance.stop();
}
