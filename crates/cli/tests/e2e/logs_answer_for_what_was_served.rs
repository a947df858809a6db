//! A proxy that keeps its requests in a store answers questions about them; Python counts its log the same way.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::{Signal, require};

use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE, ask};
use crate::support::logs_desk::{answer, assert_counts, refusal, rows, until};

/// Two hosts that answer by themselves over HTTPS, and what is said of requests.
pub(crate) fn config(settings: &str) -> String {
    format!(
        "{CERTIFICATE}[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n\
         [access_log]\noutput = \"./access.log\"\nformat = \"vhost\"\n{settings}\
         [[route]]\nhost = \"a.example.org\"\nrespond = {{ body = \"hello\" }}\n\
         [[route]]\nhost = \"b.example.org\"\nrespond = {{ status = 404, body = \"no such page\" }}\n"
    )
}

/// Asks for URLs, which may have curl's ranges, as this agent.
pub(crate) fn fetch(instance: &Instance, agent: &str, urls: &[&str]) {
    let mut curl = Command::new(require("curl", "curl"));
    curl.args(["-q", "--silent", "--show-error", "--noproxy", "*", "--output", "/dev/null", "--user-agent"]);
    curl.args([agent, "--referer", &format!("https://referrer.test/{}", agent.len())]);
    curl.args(["--connect-to", &format!("::{}", instance.address()), "--cacert"]);
    curl.arg(instance.home.ca.certificate()).args(urls);
    let output = ask(curl, b"", Duration::from_secs(60));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn count(home: &Path, store: &str, requests: u64) {
    let all = ["query", "SELECT count(*) AS n FROM requests", "--store", store];
    until(home, &all, |rows| rows[0]["n"] == requests);
}

#[test]
fn every_list_is_as_python_counts_it() {
    let instance = Home::new().run(&config("[log_store]\nurl = \"sqlite:access.db\"\n"));
    fetch(&instance, "Mozilla/5.0 (X11; Linux x86_64)", &["https://a.example.org/page-[1-40]?id=[1-3]"]);
    fetch(
        &instance,
        "Googlebot/2.1",
        &["https://b.example.org/missing/[1-7]", "https://a.example.org/page-1"],
    );
    let home = instance.home.path().to_owned();
    let store = format!("sqlite:{}", home.join("access.db").display());
    // While it runs: what is served is there within seconds.
    count(&home, &store, 128);
    let bots = ["top", "hosts", "--bots", "only", "--store", &store];
    let bots: Vec<String> = rows(&home, &bots).iter().map(ToString::to_string).collect();
    assert_eq!(bots.len(), 2);
    assert!(bots[0].contains("\"b.example.org\"") && bots[0].contains("\"requests\":7"), "{bots:?}");
    // The store is found as `run` finds it.
    let found = answer(&home, &["search", "missing", "--host", "b.example.org", "--since", "24h", "--csv"]);
    assert!(
        found.starts_with("time,host,client,method,path,query,status,bytes,referer,agent\r\n"),
        "{found}"
    );
    assert_eq!(found.matches("/missing/").count(), 7, "{found}");
    assert!(rows(&home, &["top", "hosts", "--exclude-networks", "10.0.0.0/8,127.0.0.0/8"]).is_empty());
    assert!(rows(&home, &["top", "hosts", "--exclude-client", "127.0.0.1"]).is_empty());
    assert_eq!(rows(&home, &["top", "pages", "--limit", "5"]).len(), 5);
    let traffic = rows(&home, &["traffic", "--interval", "1d", "--by-host"]);
    assert!(traffic.iter().all(|row| row["time"].as_str().unwrap().ends_with("T00:00:00Z")), "{traffic:?}");
    assert_eq!(traffic.iter().filter_map(|row| row["requests"].as_u64()).sum::<u64>(), 128);
    assert_counts_after(&instance, &home, &store);
}

/// Stops the proxy and compares its store, and one that is made of its log, with the log.
fn assert_counts_after(instance: &Instance, home: &Path, store: &str) {
    instance.process.signal(Signal::TERM).unwrap();
    assert_eq!(instance.process.wait(PATIENCE).unwrap().code(), Some(0), "{}", instance.process.transcript());
    let log = home.join("access.log");
    assert_counts(home, store, &log);
    let other = format!("sqlite:{}", home.join("other.db").display());
    answer(home, &["ingest", "--format", "vhost", "--store", &other, "access.log"]);
    assert_counts(home, &other, &log);
    answer(home, &["tidy"]);
    assert_counts(home, store, &log);
}

#[test]
fn what_is_anonymous_in_events_is_so_in_the_store() {
    let settings = "anonymize = \"ip\"\n[log_store]\nurl = \"sqlite:access.db\"\n";
    let instance = Home::new().run(&config(settings));
    fetch(&instance, "curl", &["https://a.example.org/"]);
    let home = instance.home.path().to_owned();
    count(&home, "sqlite:access.db", 1);
    assert_eq!(rows(&home, &["top", "clients"])[0]["client"], "127.0.0.0");
    instance.process.signal(Signal::TERM).unwrap();
    instance.process.wait(PATIENCE).unwrap();
}

#[test]
fn a_store_that_cannot_be_is_found_before_it_matters() {
    let home = Home::new();
    home.configure(&config("[log_store]\nurl = \"sqlite:/no/such/folder/access.db\"\n"));
    let output = crate::support::offramp::output(home.path(), &["check"]);
    assert_eq!(output.status.code(), Some(2));
    let said = crate::support::offramp::stderr(&output);
    assert!(said.contains("/no/such/folder") && said.contains("create it first"), "{said}");
    let said = refusal(home.path(), &["top", "pages"], 1);
    assert!(said.contains("there is no file /no/such/folder/access.db"), "{said}");
}
