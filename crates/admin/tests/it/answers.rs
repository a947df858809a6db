//! Every target, as points and as a table, against counts of the tests' own.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::client::{Client, over};
use super::store::{self, FROM, Request, Sums, TO, in_range};

const HOUR: i64 = 3_600_000;

fn query(client: &Client, target: &Value) -> Value {
    client.good("/query", &body(target, 48).to_string())
}

fn body(target: &Value, points: i64) -> Value {
    json!({
        "range": { "from": "2016-10-31T06:33:44.866Z", "to": "2016-10-31T12:33:44.866Z" },
        "intervalMs": 1000,
        "maxDataPoints": points,
        "targets": [target],
    })
}

fn network(request: &Request) -> String {
    let address = request.client.to_string();
    format!("{}.0/24", address.rsplit_once('.').unwrap().0)
}

/// The name of a request in a list.
fn name(list: &str, request: &Request) -> Option<String> {
    Some(match list {
        "pages" => request.path.clone(),
        "referrers" => request.referer?.to_owned(),
        "hosts" => request.host.unwrap_or("-").to_owned(),
        "clients" => request.client.to_string(),
        "status" => request.status.to_string(),
        "agents" => request.agent.to_owned(),
        "networks" => network(request),
        _ => unreachable!(),
    })
}

const LISTS: [&str; 7] = ["pages", "referrers", "hosts", "clients", "status", "agents", "networks"];

#[test]
fn lists_as_tables() {
    let client = over(store::shared());
    for list in LISTS {
        let answer =
            query(&client, &json!({ "target": format!("{list}?limit=100&host=a.test,b.test&bots=exclude") }));
        let table = &answer[0];
        let columns: Vec<&str> =
            table["columns"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
        let at = |column: &str| columns.iter().position(|name| *name == column).unwrap();
        let mut found: BTreeMap<String, Sums> = BTreeMap::new();
        for row in table["rows"].as_array().unwrap() {
            let sum = found.entry(row[0].as_str().unwrap().to_owned()).or_default();
            sum.0 += row[at("requests")].as_i64().unwrap();
            sum.1 += row[at("bytes")].as_i64().unwrap();
        }
        let admits = |r: &Request| in_range(r) && matches!(r.host, Some("a.test" | "b.test")) && !r.is_bot();
        assert_eq!(found, store::count(admits, |request| name(list, request)), "{list}");
    }
}

#[test]
fn lists_over_time() {
    let client = over(store::shared());
    for list in LISTS {
        for by in ["requests", "bytes"] {
            let target = json!({ "target": list, "refId": "Q", "type": "timeserie", "payload": { "by": by, "limit": 5, "interval": "30m" } });
            let answer = query(&client, &target);
            let width = HOUR / 2;
            let (first, last) = (FROM.div_euclid(width), (TO - 1).div_euclid(width));
            let shown = |request: &Request| (first..=last).contains(&request.time.div_euclid(width));
            let whole = |request: &Request| {
                let name = name(list, request)?;
                Some(if list == "pages" { format!("{}{name}", request.host.unwrap_or("-")) } else { name })
            };
            let all = store::count(shown, whole);
            let value = |sums: &Sums| if by == "bytes" { sums.1 } else { sums.0 };
            let mut heaviest: Vec<i64> = all.values().map(value).collect();
            heaviest.sort_unstable_by_key(|value| -value);
            heaviest.truncate(5);
            let lines = answer.as_array().unwrap();
            assert_eq!(lines.len(), heaviest.len(), "{list}");
            for (line, sum) in lines.iter().zip(&heaviest) {
                let title = line["target"].as_str().unwrap();
                let expected = store::count(
                    |request| shown(request) && whole(request).as_deref() == Some(title),
                    |request| Some(request.time.div_euclid(width)),
                );
                let points = line["datapoints"].as_array().unwrap();
                assert_eq!(points.len(), usize::try_from(last - first + 1).unwrap());
                for (point, bucket) in points.iter().zip(first..) {
                    let expected = expected.get(&bucket).map_or(0, value);
                    assert_eq!(*point, json!([expected, bucket * width]), "{list} {title}");
                }
                assert_eq!(
                    points.iter().map(|p| p[0].as_i64().unwrap()).sum::<i64>(),
                    *sum,
                    "{list} {title}"
                );
                assert_eq!(line["refId"], "Q");
            }
        }
    }
}

/// A store that has only roll-ups of 300 clients, of which not all have names there.
#[test]
fn counts_that_are_lower_bounds_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("rolled.db").display());
    store::fill_and_forget(&url, 300);
    let client = over(&url);
    let table = &query(&client, &json!({ "target": "clients?limit=5" }))[0];
    let columns: Vec<(&str, &str)> = table["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| (column["text"].as_str().unwrap(), column["type"].as_str().unwrap()))
        .collect();
    let numbers = [("requests", "number"), ("bytes", "number")];
    let bounds = [("requests_at_most", "number"), ("bytes_at_most", "number")];
    assert_eq!(columns, [&[("client", "string")][..], &numbers, &bounds].concat());
    let rows = table["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row[1] == 1 && row[3].as_i64().unwrap() > 1), "{rows:?}");
    let unnamed = rows[0][3].as_i64().unwrap() - 1;

    let over_time =
        json!({ "target": "clients", "type": "timeserie", "payload": { "limit": 5, "interval": "1h" } });
    let answer = query(&client, &over_time);
    let lines = answer.as_array().unwrap();
    assert_eq!((lines.len(), lines[5]["target"].as_str()), (6, Some("(without a name)")), "{answer}");
    assert_eq!(sum(&lines[5]), unnamed);
    // Hosts are few, and all have names.
    let hosts = query(&client, &json!({ "target": "hosts?format=table" }));
    assert_eq!(hosts[0]["columns"].as_array().unwrap().len(), 3, "{hosts}");
}

/// The sum of a line's values.
fn sum(line: &Value) -> i64 {
    line["datapoints"].as_array().unwrap().iter().map(|point| point[0].as_i64().unwrap()).sum()
}

#[test]
fn blog_hits_are_of_people() {
    let client = over(store::shared());
    let ten_minutes = |request: &Request| {
        let width = HOUR / 6;
        (FROM.div_euclid(width)..=(TO - 1).div_euclid(width)).contains(&request.time.div_euclid(width))
    };
    let count = |admits: &dyn Fn(&Request) -> bool| {
        store::count(|r| ten_minutes(r) && r.host == Some("blog.test") && admits(r), |_| Some(()))[&()]
    };
    let hits = query(&client, &json!({ "target": "blog_hits?host=blog.test&interval=10m" }));
    assert_eq!((hits[0]["target"].as_str(), sum(&hits[0])), (Some("blog_hits"), count(&|r| !r.is_bot()).0));
    let bots =
        query(&client, &json!({ "target": "blog_hits?host=blog.test&interval=10m&bots=only&by=bytes" }));
    assert_eq!(sum(&bots[0]), count(&Request::is_bot).1);
    let table = query(&client, &json!({ "target": "blog_hits?host=blog.test", "type": "table" }));
    assert_eq!(table[0]["columns"][0]["text"], "page");
    let most =
        store::count(|r| in_range(r) && r.host == Some("blog.test") && !r.is_bot(), |r| Some(r.path.clone()));
    assert_eq!(table[0]["rows"][0][2].as_i64(), most.values().map(|sums| sums.0).max());
}

#[test]
fn sites_and_traffic_and_errors() {
    let client = over(store::shared());
    let answer =
        query(&client, &json!({ "target": "sites?limit=2&host=a.test,b.test,unheard.test&interval=1h" }));
    assert_eq!(answer.as_array().unwrap().len(), 2);
    assert!(answer.as_array().unwrap().iter().all(|line| sum(line) > 0));
    let table = query(&client, &json!({ "target": "traffic?interval=1h", "type": "table" }));
    let hourly = store::count(|_| true, |request| Some(request.time.div_euclid(HOUR) * HOUR));
    let rows = table[0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7);
    for row in rows {
        let (requests, bytes) = hourly[&row[0].as_i64().unwrap()];
        assert_eq!(*row, json!([row[0], requests, bytes]));
    }
    let errors = query(&client, &json!({ "target": "errors?interval=1h" }));
    assert_eq!(sum(&errors[0]), store::count(|r| r.status == 502, |_| Some(()))[&()].0);
    let marks = query(&client, &json!({ "target": "errors", "type": "table" }));
    assert_eq!(marks[0]["columns"][1], json!({ "text": "timeEnd", "type": "time" }));
    assert_eq!(marks[0]["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn searches() {
    let client = over(store::shared());
    let table = query(&client, &json!({ "target": "search?text=/page22&limit=10000" }));
    let expected = store::count(|r| in_range(r) && r.path == "/page22", |r| Some(r.time));
    let rows = table[0]["rows"].as_array().unwrap();
    assert_eq!(i64::try_from(rows.len()).unwrap(), expected.values().map(|sums| sums.0).sum::<i64>());
    assert!(
        rows.iter().all(|row| expected.contains_key(&row[0].as_i64().unwrap())),
        "times are in milliseconds"
    );
    let points = query(
        &client,
        &json!({ "target": "search", "type": "timeseries", "payload": { "text": "page22", "interval": "6h" } }),
    );
    let shown = |r: &Request| {
        (FROM.div_euclid(6 * HOUR)..=(TO - 1).div_euclid(6 * HOUR)).contains(&r.time.div_euclid(6 * HOUR))
    };
    assert_eq!(sum(&points[0]), store::count(|r| shown(r) && r.path == "/page22", |_| Some(()))[&()].0);
    let refused = client.post("/query", &body(&json!({ "target": "search" }), 10).to_string());
    assert_eq!(refused.message(), "a search needs a text: write `search?text=login`");
}

#[test]
fn what_is_hidden_or_not_chosen_is_passed_over() {
    let client = over(store::shared());
    for target in [
        json!({ "target": "sites", "hide": true }),
        json!({}),
        json!({ "target": "select metric" }),
        json!({ "target": "" }),
    ] {
        assert_eq!(query(&client, &target), json!([]), "{target}");
    }
}

#[test]
fn filters_that_contradict_each_other_leave_nothing() {
    let client = over(store::shared());
    let ask = |target: &str| {
        let mut body = body(&json!({ "target": target }), 50);
        body["adhocFilters"] = json!([{ "key": "host", "operator": "=", "value": "b.test" }]);
        client.good("/query", &body.to_string())
    };
    assert_eq!(ask("sites?host=a.test"), json!([]));
    assert_eq!(ask("pages?host=a.test")[0]["rows"], json!([]));
    assert_eq!(sum(&ask("traffic?host=a.test")[0]), 0);
    assert!(sum(&ask("traffic")[0]) > 0);
}

#[test]
fn ranges_and_intervals_that_make_no_sense_are_refused() {
    let client = over(store::shared());
    for (change, expected) in [
        (
            json!({ "range": { "from": "2016-10-31T12:00:00Z", "to": "2016-10-31T06:00:00Z" } }),
            "ends before it begins",
        ),
        (json!({ "range": { "from": "now-6h", "to": "now" } }), "is not a time like"),
        (json!({ "targets": [{ "target": "traffic?interval=1s" }] }), "the interval is too short"),
        (
            json!({ "targets": [{ "target": "status?interval=1m", "type": "timeserie" }] }),
            "at most 48 intervals",
        ),
        (json!({ "targets": [{ "target": "sites", "type": "heatmap" }] }), "no type of answers"),
        (json!({ "targets": [{ "target": "countries" }] }), "GeoIP"),
        (json!({ "targets": 7 }), "the request is not understood"),
        (json!({ "targets": vec![json!({ "target": "sites" }); 65] }), "at most 64 targets"),
    ] {
        let mut body = body(&json!({ "target": "sites" }), 550);
        for (key, value) in change.as_object().unwrap() {
            body[key] = value.clone();
        }
        let refused = client.post("/query", &body.to_string());
        assert_eq!(refused.status, 400, "{change}");
        assert!(refused.message().contains(expected), "{change}: {}", refused.message());
    }
}
