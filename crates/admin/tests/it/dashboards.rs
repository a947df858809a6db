//! The dashboards in `deploy/grafana`: whatever they name exists, and every question that they ask is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use offramp_observe::names::{self, MetricKind};
use offramp_testkit::postgres::shared;
use postgres::SimpleQueryMessage;
use serde_json::{Value, json};

use super::client::over;
use super::store::{self, FROM, TO};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana")
}

fn dashboard(name: &str) -> Value {
    let path = directory().join("dashboards").join(name);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Panels that show something.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row")
}

fn targets(dashboard: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    panels(dashboard).flat_map(|panel| panel["targets"].as_array().unwrap().iter().map(move |t| (panel, t)))
}

const ALL: [&str; 3] = ["offramp-log.json", "offramp-prometheus.json", "offramp-postgres.json"];

#[test]
fn dashboards_are_whole() {
    let files: BTreeSet<String> = fs::read_dir(directory().join("dashboards"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files, ALL.map(str::to_owned).into());
    for name in ALL {
        let dashboard = dashboard(name);
        assert_eq!(format!("{}.json", dashboard["uid"].as_str().unwrap()), name);
        assert_eq!(dashboard["schemaVersion"], 39, "of Grafana 10");
        let mut ids = BTreeSet::new();
        let mut taken: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            let id = panel["id"].as_i64().unwrap();
            assert!(ids.insert(id), "{name}: two panels {id}");
            let place = |key: &str| panel["gridPos"][key].as_i64().unwrap();
            assert!(place("x") + place("w") <= 24, "{name}: panel {id}");
            for x in place("x")..place("x") + place("w") {
                for y in place("y")..place("y") + place("h") {
                    assert_eq!(taken.insert((x, y), id), None, "{name}: panel {id} lies on another");
                }
            }
        }
        let known: BTreeSet<&str> = dashboard["templating"]["list"]
            .as_array()
            .unwrap()
            .iter()
            .map(|variable| variable["name"].as_str().unwrap())
            .collect();
        for (panel, target) in targets(&dashboard) {
            assert_eq!(target["datasource"]["uid"], "${source}", "{name}: {}", panel["title"]);
            for variable in variables(&target.to_string()) {
                assert!(
                    variable.starts_with("__") || known.contains(variable.as_str()),
                    "{name}: {variable}"
                );
            }
        }
    }
}

/// The variables of a text: `$name`, `${name}`, `${name:format}`.
fn variables(text: &str) -> Vec<String> {
    let parts = text.split('$').skip(1).map(|rest| rest.strip_prefix('{').unwrap_or(rest));
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    parts.map(name).filter(|name| !name.is_empty()).collect()
}

#[test]
fn the_data_source_answers_its_dashboard() {
    let client = over(store::shared());
    let dashboard = dashboard("offramp-log.json");
    let annotations = dashboard["annotations"]["list"].as_array().unwrap().iter().map(|a| &a["target"]);
    let mut asked = 0;
    for target in targets(&dashboard).map(|(_, target)| target).chain(annotations) {
        for (host, exclude, bots) in [
            (".*", "", "include"),
            (r"a\.test", "", "exclude"),
            (r"(a\.test|b\.test)", r"192\.0\.1\.0\/24, 192\.0\.2\.1", "only"),
        ] {
            let text = target["target"].as_str().unwrap();
            let text = text
                .replace("$host", host)
                .replace("$exclude", exclude)
                .replace("$bots", bots)
                .replace("${search:percentencode}", "page%32");
            assert!(!text.contains('$'), "{text}");
            let mut target = target.clone();
            target["target"] = json!(text);
            let body = json!({
                "range": { "from": "2016-10-31T06:33:44.866Z", "to": "2016-10-31T12:33:44.866Z" },
                "intervalMs": 60_000,
                "maxDataPoints": 400,
                "targets": [target],
            });
            let answer = client.good("/query", &body.to_string());
            let first = &answer.as_array().unwrap()[0];
            let empty = |key: &str| first[key].as_array().is_none_or(Vec::is_empty);
            let is_errors = text.starts_with("errors");
            assert!(is_errors || !empty("rows") || !empty("datapoints"), "{text}: {answer}");
            asked += 1;
        }
    }
    assert!(asked > 40, "{asked}");
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if variable["type"] == "query" {
            let body = json!({
                "payload": { "target": variable["query"]["query"] },
                "range": { "from": "2016-10-31T06:33:44.866Z", "to": "2016-10-31T12:33:44.866Z" },
            });
            assert_eq!(client.good("/variable", &body.to_string()).as_array().unwrap().len(), 3);
        }
    }
}

/// Words of an expression, outside of quotes.
fn words(expression: &str) -> BTreeSet<String> {
    let plain: String = expression.split('"').step_by(2).collect();
    plain
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_metric_and_label_of_the_dashboard_for_prometheus_exists() {
    let dashboard = dashboard("offramp-prometheus.json");
    let annotations = dashboard["annotations"]["list"].as_array().unwrap();
    let definitions = dashboard["templating"]["list"].as_array().unwrap();
    let expressions: Vec<String> = targets(&dashboard)
        .map(|(_, target)| &target["expr"])
        .chain(annotations.iter().map(|annotation| &annotation["expr"]))
        .chain(definitions.iter().map(|variable| &variable["definition"]))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    // What the language of Prometheus has, and what Prometheus adds to every sample.
    let language = [
        "sum",
        "max",
        "time",
        "by",
        "rate",
        "topk",
        "changes",
        "histogram_quantile",
        "label_values",
        "$__rate_interval",
        "$__interval",
    ];
    let mut used = BTreeSet::new();
    for expression in &expressions {
        let words = words(expression);
        let mut labels: BTreeSet<&str> = ["instance", "le"].into();
        let mut others = BTreeSet::new();
        for word in &words {
            let metric = names::ALL.iter().find(|metric| {
                metric.name == word
                    || metric.kind == MetricKind::Histogram
                        && word.strip_suffix("_bucket") == Some(metric.name)
            });
            match metric {
                Some(metric) => {
                    labels.extend(metric.labels);
                    used.insert(metric.name);
                }
                None => {
                    others.insert(word.as_str());
                }
            }
        }
        for word in others {
            let known = labels.contains(word)
                || language.contains(&word)
                || word.starts_with(|c: char| c.is_ascii_digit());
            assert!(known, "`{word}` in {expression}");
        }
    }
    // What an operator looks for first.
    for group in [
        "offramp_limit",
        "offramp_log_store_",
        "offramp_turns_",
        "offramp_yields_",
        "offramp_accept_",
        "offramp_cert",
    ] {
        for metric in names::ALL.iter().filter(|metric| metric.name.starts_with(group)) {
            assert!(used.contains(metric.name), "no panel shows {}", metric.name);
        }
    }
    assert!(expressions.len() > 30 && used.len() > 25, "{} {}", expressions.len(), used.len());
    // Legends name labels, too.
    for (panel, target) in targets(&dashboard) {
        let legend = target["legendFormat"].as_str().unwrap();
        for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
            assert!(target["expr"].as_str().unwrap().contains(label), "{}: {label}", panel["title"]);
        }
    }
}

/// What Grafana makes of its macros and of the dashboard's variables.
fn sql(text: &str, host: &str, exclude: &str, bots: &str) -> String {
    let plain = text
        .replace(
            "$__timeGroupAlias(time, $__interval, 0)",
            "floor(extract(epoch from time)/300)*300 AS \"time\"",
        )
        .replace("$__unixEpochFrom()", &(FROM / 1000).to_string())
        .replace("$__unixEpochTo()", &(TO / 1000).to_string())
        .replace("$host", host)
        .replace("$bots", bots)
        .replace("${exclude:sqlstring}", &format!("'{exclude}'"))
        .replace("${search:sqlstring}", "'page2'");
    assert!(!plain.contains('$'), "{plain}");
    plain
}

/// A connection as Grafana would have one: it may only read.
fn reader(database: &str) -> postgres::Client {
    let mut client = postgres::Client::connect(database, postgres::NoTls).unwrap();
    client.batch_execute("SET default_transaction_read_only = on; SET statement_timeout = 30000").unwrap();
    client
}

#[test]
fn postgresql_answers_its_dashboard() {
    let database = shared().database();
    store::fill(&database);
    let mut client = reader(&database);
    let mut ask = |text: &str| -> Vec<(Vec<String>, Vec<Option<String>>)> {
        let messages = client.simple_query(text).unwrap_or_else(|error| panic!("{error:?} in {text}"));
        messages
            .into_iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => {
                    let names = row.columns().iter().map(|column| column.name().to_owned()).collect();
                    Some((names, (0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()))
                }
                _ => None,
            })
            .collect()
    };
    let dashboard = dashboard("offramp-postgres.json");
    let annotations = dashboard["annotations"]["list"].as_array().unwrap();
    for target in targets(&dashboard).map(|(_, target)| target).chain(annotations) {
        let text = target["rawSql"].as_str().unwrap();
        let rows = ask(&sql(text, "'','a.test','b.test','blog.test'", "", "2"));
        // A day that is over is not in the range of six hours.
        let is_daily = text.contains("86400");
        assert!(is_daily || !rows.is_empty(), "{text}");
        if target["format"] == "time_series" && !is_daily {
            assert_eq!(rows[0].0[0], "time", "{text}");
        }
        ask(&sql(text, "'a.test'", "192.0.1.0/24, 192.0.2.1", "0"));
    }
    // The figures are those of an independent count.
    let second = |request: &store::Request| (FROM / 1000 * 1000..TO / 1000 * 1000).contains(&request.time);
    let others = |r: &store::Request| {
        second(r) && r.host == Some("a.test") && !r.is_bot() && !r.client.to_string().starts_with("192.0.1.")
    };
    let expected = store::count(others, |_| Some(()))[&()];
    let mut found = Vec::new();
    for (_, target) in targets(&dashboard).take(2) {
        let rows = ask(&sql(target["rawSql"].as_str().unwrap(), "'a.test'", "192.0.1.0/24", "0"));
        found.push(rows[0].1[0].as_ref().unwrap().parse::<i64>().unwrap());
    }
    assert_eq!((found[0], found[1]), expected);
    let variable = &dashboard["templating"]["list"][1];
    assert_eq!(ask(variable["query"].as_str().unwrap()).len(), 4);
}

#[test]
fn a_database_that_ends_connections_is_asked_again() {
    let database = shared().database();
    store::fill(&database);
    let client = over(&database);
    let body = json!({
        "range": { "from": "2016-10-31T06:33:44.866Z", "to": "2016-10-31T12:33:44.866Z" },
        "targets": [{ "target": "hosts" }, { "target": "search?text=page22" }],
    });
    let expected = client.good("/query", &body.to_string());
    let hosts = store::count(store::in_range, |request| Some(request.host));
    assert_eq!(expected[0]["rows"].as_array().unwrap().len(), hosts.len());
    for row in expected[0]["rows"].as_array().unwrap() {
        let (requests, bytes) = hosts[&row[0].as_str()];
        assert_eq!(*row, json!([row[0], requests, bytes]));
    }
    for _ in 0..3 {
        // It waits until the other end is gone.
        let ended = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
                     WHERE application_name = 'offramp' AND datname = current_database()";
        let messages = reader(&database).simple_query(ended).unwrap();
        assert!(messages.iter().any(|message| matches!(message, SimpleQueryMessage::Row(_))));
        assert_eq!(client.good("/query", &body.to_string()), expected);
    }
}

#[test]
fn provisioning_names_the_sources_of_the_dashboards() {
    let read = |path: &str| fs::read_to_string(directory().join("provisioning").join(path)).unwrap();
    let sources = read("datasources/offramp.yaml");
    for name in ALL {
        let dashboard = dashboard(name);
        let source = &dashboard["templating"]["list"][0];
        assert!(sources.contains(&format!("type: {}\n", source["query"].as_str().unwrap())), "{name}");
        assert!(
            sources.contains(&format!("name: {}\n", source["current"]["value"].as_str().unwrap())),
            "{name}"
        );
    }
    assert!(read("dashboards/offramp.yaml").contains("apiVersion: 1\n"));
}
