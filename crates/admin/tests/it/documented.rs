//! Requests as the documentation of the plugins has them, byte for byte, targets put in where it has others.
//!
//! Sources: README of grafana/simple-json-datasource (1.4), README of simPod/GrafanaJsonDatasource (0.6).

use serde_json::{Value, json};

use super::client::over;
use super::store::{self, FROM, TO, in_range};

/// simPod's example of `/query`, which is the older one with valid ad hoc filters.
pub(crate) const QUERY: &str = r#"{
  "panelId": 1,
  "range": {
    "from": "2016-10-31T06:33:44.866Z",
    "to": "2016-10-31T12:33:44.866Z",
    "raw": {
      "from": "now-6h",
      "to": "now"
    }
  },
  "rangeRaw": {
    "from": "now-6h",
    "to": "now"
  },
  "interval": "30s",
  "intervalMs": 30000,
  "maxDataPoints": 550,
  "targets": [
     { "target": "Packets", "refId": "A", "payload": { "additional": "optional json" } },
     { "target": "Errors", "refId": "B" }
  ],
  "adhocFilters": [{
    "key": "City",
    "operator": "=",
    "value": "Berlin"
  }]
}
"#;

#[test]
fn a_query_with_foreign_names_is_refused_with_ours() {
    let client = over(store::shared());
    let refused = client.post("/query", QUERY);
    assert_eq!(refused.status, 400);
    assert!(refused.message().starts_with("there is no target `Packets`; there are blog_hits, sites"));
    let refused = client.post("/query", &QUERY.replace("Packets", "pages"));
    assert!(refused.message().contains("`pages` has no parameter `additional`"), "{}", refused.message());
    let refused = client
        .post("/query", &QUERY.replace("Packets", "pages").replace(r#""additional": "optional json""#, ""));
    assert_eq!(refused.message(), "there is no filter `City`; there are host, client, network and bots");
}

#[test]
fn a_query_with_our_names_is_answered() {
    let client = over(store::shared());
    let body = QUERY
        .replace("Packets", "outbound_data")
        .replace("Errors", "traffic")
        .replace(r#""additional": "optional json""#, r#""exclude": "192.0.1.0/24""#)
        .replace("City", "host")
        .replace("Berlin", "a.test");
    let answer = client.good("/query", &body);
    let names: Vec<&str> = answer.as_array().unwrap().iter().map(|s| s["target"].as_str().unwrap()).collect();
    assert_eq!(names, ["outbound_data", "requests", "bytes"]);
    assert_eq!((&answer[0]["refId"], &answer[2]["refId"]), (&json!("A"), &json!("B")));
    // 30 s make 721 points; at most 550 were asked for, so it is a minute.
    let minute = 60_000;
    let points = answer[0]["datapoints"].as_array().unwrap();
    assert_eq!(points.len(), 361);
    let begin = FROM.div_euclid(minute) * minute;
    let ours = |request: &store::Request| request.host == Some("a.test");
    let others = |request: &store::Request| !request.client.to_string().starts_with("192.0.1.");
    let all = store::count(ours, |request| Some((request.time - begin).div_euclid(minute)));
    let theirs =
        store::count(|r| ours(r) && others(r), |request| Some((request.time - begin).div_euclid(minute)));
    for index in 0..361 {
        let at = json!(begin + index * minute);
        let place = usize::try_from(index).unwrap();
        let (requests, bytes) = all.get(&index).copied().unwrap_or_default();
        let (_, outbound) = theirs.get(&index).copied().unwrap_or_default();
        assert_eq!(answer[0]["datapoints"][place], json!([outbound, at]));
        assert_eq!(answer[1]["datapoints"][place], json!([requests, at]));
        assert_eq!(answer[2]["datapoints"][place], json!([bytes, at]));
    }
    assert!(theirs.values().any(|sums| sums.0 > 0) && all != theirs);
}

#[test]
fn the_older_query_asks_for_types() {
    let client = over(store::shared());
    let older = r#"{
  "panelId": 1,
  "range": {
    "from": "2016-10-31T06:33:44.866Z",
    "to": "2016-10-31T12:33:44.866Z",
    "raw": {
      "from": "now-6h",
      "to": "now"
    }
  },
  "rangeRaw": {
    "from": "now-6h",
    "to": "now"
  },
  "interval": "30s",
  "intervalMs": 30000,
  "targets": [
     { "target": "upper_50", "refId": "A", "type": "timeserie" },
     { "target": "upper_75", "refId": "B", "type": "timeserie" }
  ],
  "adhocFilters": [
    "key": "City"
    "operator": "=",
    "value": "Berlin"
  ]
  "format": "json",
  "maxDataPoints": 550
}
"#;
    // As it is printed, it is no JSON.
    let refused = client.post("/query", older);
    assert_eq!(refused.status, 400);
    assert!(
        refused.message().starts_with("the request is not understood: invalid type"),
        "{}",
        refused.message()
    );
    let filters = older.find("  \"adhocFilters\"").unwrap()..older.find("  \"format\"").unwrap();
    let mut valid = older.replace("upper_50", "sites").replace(
        "upper_75\", \"refId\": \"B\", \"type\": \"timeserie",
        "hosts\", \"refId\": \"B\", \"type\": \"table",
    );
    let shift = valid.find("  \"adhocFilters\"").unwrap();
    valid.replace_range(shift..shift + filters.len(), "");
    let answer = client.good("/query", &valid);
    let answers = answer.as_array().unwrap();
    assert_eq!(answers.len(), 5, "four sites and a table");
    let table = &answers[4];
    assert_eq!(table["type"], "table");
    assert_eq!(table["columns"][0], json!({ "text": "host", "type": "string" }));
    assert_eq!(table["columns"][1], json!({ "text": "requests", "type": "number" }));
    let expected = store::count(in_range, |request| Some(request.host));
    for row in table["rows"].as_array().unwrap() {
        let (requests, bytes) = expected[&row[0].as_str()];
        assert_eq!(*row, json!([row[0], requests, bytes]));
    }
    assert_eq!(table["rows"].as_array().unwrap().len(), expected.len());
}

#[test]
fn annotations_have_the_tags_that_are_asked_for() {
    let client = over(store::shared());
    let documented = r##"{
  "range": {
    "from": "2016-04-15T13:44:39.070Z",
    "to": "2016-04-15T14:44:39.070Z"
  },
  "rangeRaw": {
    "from": "now-1h",
    "to": "now"
  },
  "annotation": {
    "name": "deploy",
    "datasource": "Simple JSON Datasource",
    "iconColor": "rgba(255, 96, 96, 1)",
    "enable": true,
    "query": "#deploy"
  }
}
"##;
    assert_eq!(client.good("/annotations", documented), json!([]));
    let range = documented
        .replace("2016-04-15T13:44:39.070Z", "2016-10-31T06:33:44.866Z")
        .replace("2016-04-15T14:44:39.070Z", "2016-10-31T12:33:44.866Z");
    let found = client.good("/annotations", &range.replace("#deploy", "#errors"));
    let [mark] = found.as_array().unwrap().as_slice() else { panic!("{found}") };
    let sent: Value = serde_json::from_str(&range.replace("#deploy", "#errors")).unwrap();
    assert_eq!(mark["annotation"], sent["annotation"]);
    let (from, to) = (mark["time"].as_i64().unwrap(), mark["timeEnd"].as_i64().unwrap());
    let within = |request: &store::Request| (from..to).contains(&request.time);
    let failed = store::count(|r| within(r) && r.status == 502, |_| Some(())).remove(&()).unwrap().0;
    let all = store::count(within, |_| Some(())).remove(&()).unwrap().0;
    assert_eq!(mark["title"], format!("{failed} of {all} requests failed"));
    assert_eq!(mark["text"], format!("{failed} × 502"));
    let every = store::count(|r| r.status == 502, |_| Some(())).remove(&()).unwrap().0;
    assert_eq!(failed, every, "the mark covers the burst");
    assert_eq!(mark["tags"], json!(["errors", "5xx"]));
    assert_eq!(client.good("/annotations", &range.replace("#deploy", "errors?least=100000")), json!([]));
    assert_eq!(client.post("/annotations", &range.replace("#deploy", "pages")).status, 400);
    assert!(TO > to);
}

#[test]
fn menus_are_asked_for_as_documented() {
    let client = over(store::shared());
    // The documentation writes JavaScript; what is sent is JSON.
    assert_eq!(client.post("/search", "{ target: 'upper_50' }").status, 400);
    assert_eq!(client.good("/search", r#"{"target":"upper_50"}"#), json!([]));
    let keys = client.good("/tag-keys", "{ }");
    assert_eq!(keys[0], json!({ "type": "string", "text": "host" }));
    assert_eq!(client.post("/tag-values", r#"{"key": "City"}"#).message(), "there is no filter `City`");
    let described = client.good("/metrics", "{}");
    let body = r#"{
  "metric": "DescribeMetricList",
  "payload":{
    "cloud": "cf6591c5dad211eaa22100163e120f6e",
    "namespace": "MySQL"
  }
}
"#;
    assert_eq!(client.good("/metrics", body), described);
    let refused = client.post(
        "/metric-payload-options",
        r#"{"metric":"DescribeMetricList","payload":{"namespace":"acs_ecs"},"name":"cms_metric"}"#,
    );
    assert_eq!(refused.message(), "the parameter `cms_metric` has no values to choose from");
    let variable = r#"{
  "payload":{"target":"systems"},
  "range":{
    "from":"2022-02-14T08:09:32.164Z",
    "to":"2022-02-21T08:09:32.164Z",
    "raw":{"from":"now-7d","to":"now"}
  }
}
"#;
    assert!(client.post("/variable", variable).message().starts_with("there is no target `systems`"));
    assert_eq!(client.good("/variable", &variable.replace("systems", "hosts")), json!([]), "nothing in 2022");
    let then = variable
        .replace("systems", "hosts")
        .replace("2022-02-14", "2016-10-31")
        .replace("2022-02-21", "2016-11-01");
    let found = client.good("/variable", &then);
    assert!(
        found.as_array().unwrap().contains(&json!({ "__text": "a.test", "__value": "a.test" })),
        "{found}"
    );
}
