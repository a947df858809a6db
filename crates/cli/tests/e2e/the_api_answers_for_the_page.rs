//! The questions of the page and of the terminal: figures of now, the log store, trials of a configuration, and its text.

use std::process::Command;

use offramp_testkit::process::{Process, Source, require};
use offramp_testkit::server::{Listen, Server, apps};
use serde_json::Value;

use crate::logs_answer_for_what_was_served::{config, fetch};
use crate::support::instance::{Home, Instance, LIFE, PATIENCE, ask};

/// A request of curl to the admin interface of an instance.
fn curl(instance: &Instance, more: &[&str], path: &str) -> Command {
    let mut command = Command::new(require("curl", "curl"));
    command.args(["-q", "--silent", "--show-error", "--unix-socket", "state/admin.sock"]);
    command.args(more).arg(format!("http://localhost{path}")).current_dir(instance.home.path());
    command
}

/// The status and the answer.
fn asked(instance: &Instance, more: &[&str], path: &str, body: &str) -> (u16, Value) {
    let more = [&["--write-out", "\n%{http_code}"], more].concat();
    let output = ask(curl(instance, &more, path), body.as_bytes(), PATIENCE);
    let text = String::from_utf8(output.stdout).unwrap();
    let (json, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(json).unwrap_or_else(|_| panic!("{path}: {text}")))
}

fn get(instance: &Instance, path: &str) -> Value {
    let (status, answer) = asked(instance, &[], path, "");
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

/// The data of the events of a kind in a stream that is read by a process.
fn events(stream: &Process, kind: &str) -> Vec<Value> {
    let lines = stream.lines(Source::Stdout);
    let pairs = lines.windows(2).filter(|pair| pair[0] == format!("event: {kind}"));
    let data = pairs.filter_map(|pair| pair[1].strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn figures_tell_of_now() {
    // Clients are counted where there are metrics.
    let instance = Home::new().run(&config("[metrics]\naddress = \"127.0.0.1:0\"\n"));
    let stream = Process::start(curl(&instance, &["--no-buffer"], "/v1/figures?every=500ms"), LIFE).unwrap();
    let first = instance.until("the first event", || events(&stream, "figures").into_iter().next());
    // Totals at once, rates later.
    assert!(first["interval_s"].is_null() && first["requests"]["per_second"].is_null(), "{first}");
    assert_eq!((&first["requests"]["total"], &first["latency_ms"]), (&0.into(), &Value::Null));
    fetch(&instance, "Firefox", &["https://a.example.org/[1-20]"]);
    fetch(&instance, "Firefox", &["https://b.example.org/[1-5]"]);
    // One event has some of them, or the one after it.
    let sums = |of: fn(&Value) -> f64| -> f64 {
        let rate = |event: &Value| of(event) * event["interval_s"].as_f64().unwrap_or(0.0);
        events(&stream, "figures").iter().map(rate).sum()
    };
    instance.until("all requests", || {
        (sums(|event| event["requests"]["per_second"].as_f64().unwrap_or(0.0)).round() >= 25.0).then_some(())
    });
    let class = |event: &Value, class: &str| event["requests"]["by_class"][class].as_f64().unwrap_or(0.0);
    assert_eq!(sums(|event| event["requests"]["by_class"]["2xx"].as_f64().unwrap_or(0.0)).round() as u64, 20);
    let all = events(&stream, "figures");
    assert!(all.iter().any(|event| class(event, "4xx") > 0.0), "{all:#?}");
    let last = all.last().unwrap();
    assert_eq!((&last["requests"]["total"], &last["handshakes"]["full"]), (&25.into(), &2.into()), "{last}");
    let names = |list: &str, member: &str| -> Vec<String> {
        let rows = last[list].as_array().unwrap().iter();
        rows.map(|row| row[member].as_str().unwrap_or_default().to_owned()).collect()
    };
    for host in ["a.example.org", "b.example.org"] {
        assert!(names("hosts", "name").contains(&host.to_owned()), "{last}");
        assert!(names("routes", "route").contains(&host.to_owned()), "{last}");
    }
    assert!(names("clients", "client").contains(&"127.0.0.1".to_owned()), "{last}");
    assert!(last["workers"].as_array().unwrap().iter().all(|worker| worker["late"].is_boolean()), "{last}");
    let percentile = all.iter().find_map(|event| event["latency_ms"]["p95"].as_f64()).unwrap();
    assert!(percentile > 0.0, "{percentile}");
    // A single answer has rates, too, of no less time than was asked for, whatever the stream has read meanwhile.
    for _ in 0..3 {
        let once = get(&instance, "/v1/figures?once&every=500ms");
        assert!(once["interval_s"].as_f64().unwrap() >= 0.5 && once["requests"]["total"] == 25, "{once}");
    }
    let (status, wrong) = asked(&instance, &[], "/v1/figures?every=1ms", "");
    assert!(status == 400 && wrong["detail"].as_str().unwrap().contains("500ms"), "{wrong}");
    instance.stop();
    assert!(stream.wait(PATIENCE).unwrap().success(), "it ends in order: {}", stream.transcript());
}

#[test]
fn a_text_is_checked_and_that_in_force_is_shown() {
    let text = format!("# why it is so\n{}", config(""));
    let instance = Home::new().run(&text);
    let file = get(&instance, "/v1/config/file");
    assert!(file["text"].as_str().unwrap().contains("# why it is so\n"), "{file}");
    assert_eq!((&file["version"], &file["differs"]), (&1.into(), &false.into()), "{file}");
    assert!(file["path"].as_str().unwrap().ends_with("offramp.toml"), "{file}");
    let check = |text: &str| {
        let post = ["--header", "content-type: application/toml", "--data-binary", "@-"];
        let (status, answer) = asked(&instance, &post, "/v1/check", text);
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let sound = check(file["text"].as_str().unwrap());
    assert_eq!((&sound["ok"], &sound["errors"]), (&true.into(), &serde_json::json!([])), "{sound}");
    let wrong = check("[limits]\nconnectoins = 5\n");
    assert_eq!(wrong["ok"], false);
    let error = wrong["errors"].as_array().unwrap().iter().find(|error| error["line"] == 2).unwrap();
    assert_eq!((&error["column"], &error["end_column"]), (&1.into(), &12.into()), "{error}");
    assert_eq!(error["key"], "limits.connectoins");
    assert_eq!(get(&instance, "/v1/changes")["version"], 1, "nothing changed");
    // A change that the file does not have.
    let patch = ["--request", "PATCH", "--json", "@-"];
    let route = "/v1/routes/b.example.org";
    let (status, done) = asked(&instance, &patch, route, r#"{"respond":{"status":410,"body":"gone"}}"#);
    assert_eq!(status, 200, "{done}");
    let file = get(&instance, "/v1/config/file");
    assert!(file["text"].as_str().unwrap().contains("410") && file["differs"] == true, "{file}");
    assert!(file["text"].as_str().unwrap().contains("# why it is so\n"), "{file}");
    instance.stop();
}

#[test]
fn the_log_store_is_asked() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = config("[log_store]\nurl = \"sqlite:access.db\"\n");
    let served = format!("[[route]]\nhost = \"c.example.org\"\nserver = \"{}\"\n", app.address());
    let instance = Home::new().run(&format!("{text}{served}"));
    fetch(&instance, "Mozilla/5.0", &["https://a.example.org/page-[1-3]?id=[1-2]"]);
    fetch(&instance, "Googlebot/2.1", &["https://b.example.org/missing"]);
    let rows = |answer: &Value| answer["rows"].as_array().unwrap().clone();
    instance.until("all are stored", || {
        // The store has no tables before the first request.
        let (status, answer) = asked(&instance, &[], "/v1/logs/requests", "");
        (status == 200 && rows(&answer).len() == 7).then_some(())
    });
    let pages = get(&instance, "/v1/logs/top?what=pages&host=a.example.org&limit=2");
    let columns: Vec<(&str, &str)> = pages["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| (column["name"].as_str().unwrap(), column["kind"].as_str().unwrap()))
        .collect();
    assert_eq!(columns, [("page", "text"), ("host", "text"), ("requests", "integer"), ("bytes", "bytes")]);
    assert!(rows(&pages).len() == 2 && rows(&pages)[0][2] == 2 && pages["exact"] == true, "{pages}");
    // The command asks the same.
    let command = pages["command"].as_str().unwrap();
    assert_eq!(command, "offramp logs top pages --host a.example.org --limit 2 --utc");
    let words: Vec<&str> = command.split(' ').skip(2).chain(["--json"]).collect();
    let said = crate::support::logs_desk::answer(instance.home.path(), &words);
    let said: Vec<Value> = serde_json::from_str(&said).unwrap();
    assert_eq!((said.len(), &said[0]["page"]), (2, &rows(&pages)[0][0]));

    let missing = get(&instance, "/v1/logs/search?text=missing&since=24h");
    assert_eq!(rows(&missing).len(), 1, "{missing}");
    let traffic = get(&instance, "/v1/logs/traffic?interval=day");
    assert_eq!(rows(&traffic).iter().filter_map(|row| row[1].as_u64()).sum::<u64>(), 7, "{traffic}");
    assert_eq!(rows(&get(&instance, "/v1/logs/visitors"))[0][1], 1);
    assert!(rows(&get(&instance, "/v1/logs/compare")).iter().any(|row| row[0] == "requests" && row[1] == 7));
    assert_eq!(rows(&get(&instance, "/v1/logs/top?what=errors"))[0][0], 404);
    let (status, wrong) = asked(&instance, &[], "/v1/logs/top?status=high", "");
    assert!(status == 400 && wrong["detail"].as_str().unwrap().contains("`high`"), "{wrong}");

    // One request, by the id that its row has.
    let at = missing["columns"].as_array().unwrap().iter().position(|column| column["name"] == "request_id");
    let id = rows(&missing)[0][at.unwrap()].as_str().unwrap().to_owned();
    let one = get(&instance, &format!("/v1/requests/{id}"));
    assert_eq!(
        (&one["path"], &one["status"], &one["bot"]),
        (&"/missing".into(), &404.into(), &true.into()),
        "{one}"
    );
    assert_eq!((&one["request_id"], &one["tls"]), (&id.into(), &"TLSv1.3".into()), "{one}");
    let steps: Vec<&str> =
        one["story"].as_array().unwrap().iter().filter_map(|step| step["step"].as_str()).collect();
    assert!(steps.first() == Some(&"route") && steps.last() == Some(&"done"), "{one}");
    assert_eq!(asked(&instance, &[], "/v1/requests/none", "").0, 404);
    // One that a server answered has its times.
    fetch(&instance, "Mozilla/5.0", &["https://c.example.org/"]);
    let served = instance.until("it is stored", || {
        Some(get(&instance, "/v1/logs/requests?host=c.example.org")).filter(|found| rows(found).len() == 1)
    });
    let id = rows(&served)[0][at.unwrap()].as_str().unwrap().to_owned();
    let one = get(&instance, &format!("/v1/requests/{id}"));
    let steps: Vec<&Value> = one["story"].as_array().unwrap().iter().map(|step| &step["step"]).collect();
    assert_eq!(steps, ["route", "connect", "first_byte", "done"], "{one}");
    assert!(one["first_byte_us"].as_u64() <= one["duration_us"].as_u64(), "{one}");

    // What comes is told as it ends, if it is asked for.
    let tail = Process::start(curl(&instance, &["--no-buffer"], "/v1/logs/tail?status=404"), LIFE).unwrap();
    let told = |count: usize| {
        instance
            .until("requests are told", || Some(events(&tail, "request")).filter(|told| told.len() >= count))
    };
    assert_eq!(told(1)[0]["path"], "/missing");
    fetch(&instance, "Mozilla/5.0", &["https://a.example.org/fine", "https://b.example.org/again"]);
    let told = told(2);
    assert_eq!(
        (&told[1]["path"], &told[1]["status"], told.len()),
        (&"/again".into(), &404.into(), 2),
        "{told:?}"
    );
    instance.stop();
    assert!(tail.wait(PATIENCE).unwrap().success(), "it ends in order: {}", tail.transcript());
}

#[test]
fn without_a_store_there_is_no_answer() {
    let instance = Home::new().run(&config(""));
    for path in ["/v1/logs/top", "/v1/logs/requests", "/v1/logs/tail", "/v1/requests/some"] {
        let (status, problem) = asked(&instance, &[], path, "");
        assert_eq!(status, 404, "{path}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains("[log_store]"), "{path}: {problem}");
    }
    let (_, list) = asked(&instance, &[], "/v1/certificates", "");
    let (own, chain) = (&list["certificates"][0], &list["certificates"][0]["chain"]);
    assert_eq!(own["not_after"], chain[0]["not_after"], "the own certificate comes first: {own}");
    assert!(chain[0]["issuer"].is_string() && chain[0]["issuer"] != chain[0]["subject"], "{own}");

    let renew = ["--request", "POST"];
    let (status, problem) = asked(&instance, &renew, "/v1/certificates/server.chain.pem/renew", "");
    assert_eq!(status, 404, "the item has the whole path: {problem}");
    let path = instance.home.file("server.chain.pem").display().to_string().replace('/', "%2F");
    let (status, problem) = asked(&instance, &renew, &format!("/v1/certificates/{path}/renew"), "");
    assert!(status == 409 && problem["detail"].as_str().unwrap().contains("no authority"), "{problem}");
    instance.stop();
}
