//! What may befall `offramp logs`: garbage, SQL that writes or never ends, stores that are locked, read-only, full,
//! damaged, or no stores.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::{Process, Ready, Signal, require, temp_dir};

use crate::support::instance::{LIFE, PATIENCE, ask};
use crate::support::logs_desk::{answer, command, hold, output, refusal, release, rows, until};
use crate::support::offramp::stderr;
use crate::support::skipped::is_root_or_skipped;

const STORE: [&str; 2] = ["--store", "sqlite:access.db"];

fn line(number: u32) -> String {
    format!(
        "192.0.2.{} - - [22/Nov/2026:10:00:00 +0000] \"GET /{number} HTTP/1.1\" 200 5 \"-\" \"-\" \"a.test\"\n",
        number % 250
    )
}

fn lines(count: u32) -> String {
    (0..count).map(line).collect()
}

/// Makes a store of some requests.
fn fill(home: &Path, count: u32) {
    fs::write(home.join("access.log"), lines(count)).unwrap();
    answer(home, &["ingest", "--format", "vhost", "access.log", STORE[0], STORE[1]]);
}

fn stored(home: &Path) -> u64 {
    rows(home, &["query", "SELECT count(*) AS n FROM requests", STORE[0], STORE[1]])[0]["n"].as_u64().unwrap()
}

#[test]
fn garbage_is_counted_shown_and_kept_and_harms_nothing() {
    let directory = temp_dir();
    let home = directory.path();
    let mut bytes = line(1).into_bytes();
    bytes.extend((0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8));
    bytes.push(b'\n');
    bytes.extend(vec![b'x'; 3 << 20]);
    bytes.push(b'\n');
    bytes.extend(line(2).replace("22/Nov", "31/Feb").into_bytes());
    bytes.extend(line(3).replace("192.0.2.3", "fe80::1%eth0").into_bytes());
    bytes.extend(line(4).replace("/4", r"/\x22\xffquoted\x22").into_bytes());
    bytes.extend(b"192.0.2.9 - - [22/Nov/2026:10:00:00 +0000] \"\\x16\\x03\\x01\" 400 0 \"-\" \"-\" \"\"\n");
    bytes.extend(line(5).trim_end().as_bytes());
    let arguments = ["ingest", "-", "--format", "vhost", "--rejects", "rejects", STORE[0], STORE[1]];
    let given = ask(command(home, &arguments), &bytes, Duration::from_secs(60));
    let said = stderr(&given);
    assert_eq!(given.status.code(), Some(0), "{said}");
    assert!(said.contains("did not parse") && said.contains("    ^"), "{said}");
    assert!(
        said.bytes().all(|byte| byte == b'\n' || byte >= b' '),
        "nothing that a terminal obeys: {said:?}"
    );
    assert_eq!(stored(home), 5, "{said}");
    let kept = fs::read(home.join("rejects")).unwrap();
    assert!(kept.windows(6).any(|window| window == b"31/Feb"));
    let clients = rows(home, &["top", "clients", STORE[0], STORE[1]]);
    assert!(clients.iter().any(|row| row["client"] == "fe80::1"), "{clients:?}");
}

#[test]
fn only_statements_that_read_and_end_are_answered() {
    let directory = temp_dir();
    let home = directory.path();
    fill(home, 10);
    for sql in [
        "DELETE FROM fact",
        "DROP TABLE host",
        "INSERT INTO meta VALUES ('a', 'b')",
        "SELECT 1; DELETE FROM fact",
        "ATTACH '/tmp/other.db' AS other",
        "PRAGMA user_version = 7",
        "VACUUM INTO 'copy.db'",
        "nonsense",
    ] {
        refusal(home, &["query", sql, STORE[0], STORE[1]], 2);
    }
    assert_eq!(stored(home), 10);
    assert!(!home.join("copy.db").exists());
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n";
    let said = refusal(home, &["query", endless, "--time-limit", "200ms", STORE[0], STORE[1]], 1);
    assert!(said.contains("time limit"), "{said}");
}

#[test]
fn a_damaged_store_is_moved_aside_and_a_fresh_one_begun() {
    let directory = temp_dir();
    let home = directory.path();
    fill(home, 7);
    let mut bytes = fs::read(home.join("access.db")).unwrap();
    bytes[100..4096].fill(0xff);
    fs::write(home.join("access.db"), &bytes).unwrap();
    fs::write(home.join("access.log"), lines(3)).unwrap();
    let given = output(home, &["ingest", "--format", "vhost", "access.log", STORE[0], STORE[1]]);
    let said = stderr(&given);
    assert!(given.status.success() && said.contains("damaged") && said.contains("a new store"), "{said}");
    assert_eq!(stored(home), 3);
    let names = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let aside = names.into_iter().find(|name| name.starts_with("access.db.corrupt-")).unwrap();
    assert_eq!(fs::read(home.join(aside)).unwrap(), bytes);
}

#[test]
fn a_store_that_is_none_is_told_and_left_alone() {
    let directory = temp_dir();
    let home = directory.path();
    fs::write(home.join("access.db"), "this is a letter, not a database\n".repeat(100)).unwrap();
    fs::write(home.join("access.log"), lines(3)).unwrap();
    let before = fs::read(home.join("access.db")).unwrap();
    let said = refusal(home, &["top", "pages", STORE[0], STORE[1]], 1);
    assert!(said.contains("damaged"), "{said}");
    let said = refusal(home, &["ingest", "--format", "vhost", "access.log", STORE[0], STORE[1]], 1);
    assert!(said.contains("damaged"), "{said}");
    assert_eq!(fs::read(home.join("access.db")).unwrap(), before);
    for (url, what) in [("mysql:x", "must begin with"), ("sqlite:", "needs the path")] {
        assert!(refusal(home, &["top", "pages", "--store", url], 2).contains(what));
    }
    assert!(refusal(home, &["top", "pages"], 2).contains("which store?"));
    assert!(
        refusal(home, &["ingest", "access.log", "--format", "nonsense", STORE[0], STORE[1]], 2)
            .contains("combined")
    );
    assert!(
        refusal(home, &["ingest", "--log-format", "$remote_addr$time_local", STORE[0], STORE[1]], 2)
            .contains("there is nothing between")
    );
    assert!(refusal(home, &["top", "pages", "--since", "lately", STORE[0], STORE[1]], 2).contains("24h"));
}

#[test]
fn a_locked_store_is_waited_for() {
    let directory = temp_dir();
    let home = directory.path();
    fill(home, 3);
    let holder = hold(&home.join("access.db"));
    // Reading goes on meanwhile.
    assert_eq!(stored(home), 3);
    let follower = ["ingest", "--format", "vhost", "--follow", "more.log", STORE[0], STORE[1]];
    let follower = Process::start(command(home, &follower), LIFE).unwrap();
    let mut log = fs::File::create(home.join("more.log")).unwrap();
    log.write_all(lines(7).as_bytes()).unwrap();
    follower.wait_for(&Ready::Line("held by another process".into()), PATIENCE).unwrap();
    release(holder);
    until(home, &["query", "SELECT count(*) AS n FROM requests", STORE[0], STORE[1]], |rows| {
        rows[0]["n"] == 10
    });
    follower.signal(Signal::INT).unwrap();
    assert_eq!(follower.wait(PATIENCE).unwrap().code(), Some(0), "{}", follower.transcript());
}

/// Does `script` in a namespace of mounts of its own; `false` where only root could.
fn among_own_mounts(home: &Path, script: &str) -> bool {
    if !is_root_or_skipped("only root may mount") {
        return false;
    }
    let mut unshare = Command::new(require("unshare", "util-linux"));
    unshare.args(["-m", "sh", "-euc", script, "sh", env!("CARGO_BIN_EXE_offramp")]).current_dir(home);
    let output = ask(unshare, b"", Duration::from_secs(120));
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    true
}

#[test]
fn a_store_that_cannot_be_written_can_be_asked() {
    let directory = temp_dir();
    let home = directory.path();
    fill(home, 3);
    among_own_mounts(
        home,
        "mkdir fixed && cp access.db fixed && mount --bind fixed fixed && mount -o remount,ro,bind fixed
         $1 logs top hosts --store sqlite:fixed/access.db --json | grep '\"requests\":3'
         timeout 20 $1 logs ingest --format vhost access.log --store sqlite:fixed/access.db 2>said && exit 1
         grep 'cannot be written' said",
    );
}

#[test]
fn a_full_disk_is_waited_for_and_nothing_is_lost() {
    let directory = temp_dir();
    let home = directory.path();
    fs::write(home.join("access.log"), lines(40_000)).unwrap();
    among_own_mounts(
        home,
        "mkdir small && mount -t tmpfs -o size=600k tmpfs small
         $1 logs ingest --format vhost --follow access.log --store sqlite:small/access.db 2>said &
         until grep -q 'no space is left' said; do sleep 0.05; done
         mount -o remount,size=200m small
         until $1 logs query 'SELECT count(*) AS n FROM requests' --store sqlite:small/access.db --json | grep '\"n\":40000'
         do sleep 0.1; done
         kill $! && wait $!",
    );
}

#[test]
fn what_follows_a_service_is_told_what_is_wrong_at_once() {
    let directory = temp_dir();
    let home = directory.path();
    fs::write(home.join("access.log"), format!("{}not a line\n", line(1))).unwrap();
    let follower = ["ingest", "--format", "vhost", "--follow", "access.log", STORE[0], STORE[1]];
    let follower = Process::start(command(home, &follower), LIFE).unwrap();
    follower.wait_for(&Ready::Line("line 2, byte 7: expected".into()), PATIENCE).unwrap();
    follower.signal(Signal::TERM).unwrap();
    assert_eq!(follower.wait(PATIENCE).unwrap().code(), Some(0));
    assert!(output(home, &["top", "pages", STORE[0], STORE[1]]).status.success());
}
