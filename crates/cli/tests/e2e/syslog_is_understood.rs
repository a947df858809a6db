//! A real journald and a real rsyslog take what Offramp sends to `/dev/log`, and know priority, tag and process.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use offramp_testkit::process::require;
use serde_json::Value;

use crate::support::instance::{CERTIFICATE, Home, ask};
use crate::support::skipped::{is_root_or_skipped, skipped};

/// Makes a request of an Offramp that writes to syslog, and stops it.
const REQUEST: &str = "
$1 run --config offramp.toml 2>offramp.said &
offramp=$!
until [ -S tls.sock ]; do kill -0 $offramp; sleep 0.02; done
$3 -q -sS --noproxy '*' --unix-socket tls.sock --cacert $2 -o body -A 'an agent' 'https://git.example.org/some/page?q=1'
kill -TERM $offramp
wait $offramp
";

/// journald serves one machine, so it runs with `/run` and `/var/log` of its own.
const JOURNALD: &str = "
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mkdir -p /run/systemd/journal
/lib/systemd/systemd-journald >journald.said 2>&1 &
journald=$!
until [ -S /run/systemd/journal/dev-log ]; do kill -0 $journald; sleep 0.02; done
. ./request.sh
journalctl --sync
journalctl SYSLOG_FACILITY=16 -o json --all --no-pager
kill $journald
";

/// rsyslogd drops what its socket still holds when it is told to end, so its file is waited for first.
const RSYSLOGD: &str = "
$4 -n -f rsyslog.conf -iNONE >rsyslog.said 2>&1 &
rsyslogd=$!
until [ -S log ]; do kill -0 $rsyslogd; sleep 0.02; done
. ./request.sh
until grep -q '^local0|' $5; do kill -0 $rsyslogd; sleep 0.02; done
kill -TERM $rsyslogd
wait $rsyslogd
";

/// An instance that writes to this socket.
fn instance(socket: &Path) -> Home {
    let home = Home::new();
    home.configure(&format!(
        "{CERTIFICATE}[access_log]\noutput = \"syslog\"\nsyslog = \"unix:{}\"\n[[listener]]\n\
         address = \"unix:tls.sock\"\nmode = \"http\"\n[[route]]\nhost = \"*.example.org\"\n\
         respond = {{ status = 404, body = \"nothing here\" }}\n",
        socket.display()
    ));
    fs::write(home.file("request.sh"), REQUEST).unwrap();
    home
}

fn run(mut shell: Command, script: &str, home: &Home, more: &[&Path]) -> Output {
    shell.args(["-euc", script, "sh", env!("CARGO_BIN_EXE_offramp")]).arg(home.ca.certificate());
    shell.arg(require("curl", "curl")).args(more).current_dir(home.path());
    let output = ask(shell, b"", Duration::from_secs(60));
    let said = fs::read_to_string(home.file("offramp.said")).unwrap_or_default();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{err}{said}", String::from_utf8_lossy(&output.stdout));
    output
}

#[test]
fn journald_knows_priority_tag_and_process() {
    if !is_root_or_skipped("only root may mount") {
        return;
    }
    if !Path::new("/lib/systemd/systemd-journald").exists() {
        return skipped("there is no journald");
    }
    let home = instance(Path::new("/run/systemd/journal/dev-log"));
    let mut unshare = Command::new(require("unshare", "util-linux"));
    unshare.args(["-m", "sh"]);
    let output = run(unshare, JOURNALD, &home, &[]);
    let out = String::from_utf8(output.stdout).unwrap();
    let found: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.len(), 1, "{out}");
    let field = |name: &str| found[0][name].as_str().unwrap_or_default().to_owned();
    assert_eq!((field("PRIORITY"), field("SYSLOG_IDENTIFIER")), ("6".into(), "offramp".into()), "{out}");
    assert_eq!((field("_TRANSPORT"), field("SYSLOG_PID")), ("syslog".into(), field("_PID")), "{out}");
    let event: Value =
        serde_json::from_str(&field("MESSAGE")).expect("the message is the line and nothing else");
    assert_eq!((&event["status"], &event["host"]), (&404.into(), &"git.example.org".into()));
}

#[test]
fn rsyslog_knows_priority_tag_and_process() {
    let directory = offramp_testkit::process::temp_dir();
    let home = instance(&directory.path().join("log"));
    let conf = format!(
        "module(load=\"imuxsock\" SysSock.Use=\"off\")\n\
         input(type=\"imuxsock\" Socket=\"{0}/log\")\n\
         template(name=\"all\" type=\"string\" \
           string=\"%syslogfacility-text%|%syslogseverity-text%|%programname%|%procid%|%msg%\\n\")\n\
         *.* action(type=\"omfile\" file=\"{0}/out\" template=\"all\")\n",
        directory.path().display()
    );
    fs::write(home.file("rsyslog.conf"), conf).unwrap();
    let script = RSYSLOGD.replace("[ -S log ]", &format!("[ -S {}/log ]", directory.path().display()));
    let out = directory.path().join("out");
    run(Command::new("sh"), &script, &home, &[&require("rsyslogd", "rsyslog"), &out]);
    let out = fs::read_to_string(out).unwrap();
    let line = out.lines().find(|line| line.starts_with("local0|")).unwrap_or_else(|| panic!("{out}"));
    let parts: Vec<&str> = line.splitn(5, '|').collect();
    assert_eq!(parts[..3], ["local0", "info", "offramp"], "{out}");
    assert!(parts[3].parse::<u32>().is_ok(), "{out}");
    let event: Value = serde_json::from_str(parts[4].trim_start()).expect("the message is the line");
    assert_eq!(event["status"], 404, "{out}");
}
