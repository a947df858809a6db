//! What menus and variables are filled with.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use offramp_admin::target_names;
use offramp_analytics::entry::RequestPart;
use offramp_analytics::{LogEntry, Options, Writer};
use serde_json::json;

use super::client::over;

/// A store with a few requests of the last hour: menus ask for the last 30 days.
fn recent() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("access.db").display());
    let mut writer = Writer::open(&url, &Options::default()).unwrap();
    let now = SystemTime::now() - Duration::from_secs(60);
    let now = i64::try_from(now.duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap();
    for (host, times) in [("a.test", 1), ("b.test", 3)] {
        for _ in 0..times {
            let request = RequestPart { path: b"/", ..RequestPart::default() };
            let client = Some("192.0.2.7".parse().unwrap());
            let entry = LogEntry {
                time_us: now,
                host: Some(host.as_bytes()),
                client,
                request,
                ..LogEntry::default()
            };
            writer.add(&entry).unwrap();
        }
    }
    writer.commit().unwrap();
    (directory, url)
}

#[test]
fn targets_are_found_by_name() {
    let (_directory, url) = recent();
    let client = over(&url);
    let all = client.good("/search", r#"{"target":""}"#);
    let shown: Vec<&str> =
        target_names().into_iter().filter(|name| !["countries", "cities"].contains(name)).collect();
    assert_eq!(all, json!(shown), "places need a GeoIP file");
    assert_eq!(client.good("/search", ""), all);
    assert_eq!(client.good("/search", r#"{"target":"select metric"}"#), all);
    assert_eq!(client.good("/search", r#"{"target":"it"}"#), json!(["blog_hits", "sites"]));
    assert_eq!(client.good("/search", r#"{"target":"sites?host=a"}"#), json!(["sites"]));
    let described = client.good("/metrics", "{}");
    let values: Vec<&str> =
        described.as_array().unwrap().iter().map(|m| m["value"].as_str().unwrap()).collect();
    assert_eq!(values, shown);
    let host = &described[0]["payloads"][0];
    assert_eq!((&host["name"], &host["type"]), (&json!("host"), &json!("multi-select")));
    assert_eq!(described[0]["payloads"][2]["options"][1], json!({ "label": "only", "value": "only" }));
}

#[test]
fn variables_and_filters_have_the_values_of_the_store() {
    let (_directory, url) = recent();
    let client = over(&url);
    assert_eq!(client.good("/search", r#"{"target":"values(hosts)"}"#), json!(["b.test", "a.test"]));
    assert_eq!(client.good("/search", r#"{"target":"values(hosts?limit=1)"}"#), json!(["b.test"]));
    assert!(client.post("/search", r#"{"target":"values(traffic)"}"#).message().contains("is no list"));
    let b = json!({ "__text": "b.test", "__value": "b.test" });
    assert_eq!(client.good("/variable", r#"{"payload":{"target":"hosts?limit=1"}}"#), json!([b]));
    assert_eq!(client.good("/variable", r#"{"payload":"values(hosts?limit=1)"}"#), json!([b]));
    assert!(client.post("/variable", "{}").message().contains("a variable asks for a list"));
    let option = json!([{ "label": "b.test", "value": "b.test" }, { "label": "a.test", "value": "a.test" }]);
    let asked = r#"{"metric":"pages","payload":{},"name":"host"}"#;
    assert_eq!(client.good("/metric-payload-options", asked), option);
    assert_eq!(
        client.good("/tag-values", r#"{"key":"host"}"#),
        json!([{ "text": "b.test" }, { "text": "a.test" }])
    );
    assert_eq!(client.good("/tag-values", r#"{"key":"network"}"#), json!([{ "text": "192.0.2.0/24" }]));
    assert_eq!(client.good("/tag-values", r#"{"key":"client"}"#), json!([{ "text": "192.0.2.7" }]));
    assert_eq!(client.good("/tag-values", r#"{"key":"bots"}"#)[1], json!({ "text": "only" }));
}

#[test]
fn the_documentation_has_every_target_and_parameter() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to/grafana.md"))
        .unwrap();
    let (_directory, url) = recent();
    for metric in over(&url).good("/metrics", "{}").as_array().unwrap() {
        let payloads = metric["payloads"].as_array().unwrap().iter().map(|payload| &payload["name"]);
        for name in payloads.chain([&metric["value"]]) {
            assert!(page.contains(&format!("`{}`", name.as_str().unwrap())), "{name}");
        }
    }
}
