//! Parameters from every place that they come from.

use serde_json::json;

use super::{PanelShape, TargetParameters};
use crate::grafana::request::AdhocFilter;
use crate::grafana::target::QueryTarget;
use offramp_analytics::Top;
use offramp_analytics::question::{Bots, SortOrder};

fn read(text: &str) -> Result<TargetParameters, String> {
    TargetParameters::of_text(text).map(|(_, parameters)| parameters).map_err(|refusal| refusal.text)
}

fn hosts(text: &str) -> Vec<String> {
    read(text).unwrap().hosts
}

#[test]
fn a_target_says_what_it_is_about() {
    let text = "pages?host=A.test&exclude=10.0.0.0/8,2001:db8::1&bots=only&limit=7&by=bytes&interval=1h&format=table";
    let (target, parameters) = TargetParameters::of_text(text).unwrap();
    assert_eq!(target, QueryTarget::List(Top::Pages));
    assert_eq!(parameters.hosts, ["a.test"]);
    assert_eq!(parameters.exclude, ["10.0.0.0/8".parse().unwrap(), "2001:db8::1".parse().unwrap()]);
    assert_eq!(
        (parameters.bots, parameters.limit, parameters.by),
        (Some(Bots::Only), Some(7), Some(SortOrder::Bytes))
    );
    assert_eq!((parameters.interval, parameters.shape), (Some(3_600_000), Some(PanelShape::Table)));
    assert_eq!(read("search?text=a%20b%26c\\.d").unwrap().text.as_deref(), Some("a b&c\\.d"));
    assert_eq!(read("traffic").unwrap(), TargetParameters::default());
    assert_eq!(read(" traffic ? host= & bots=&").unwrap(), TargetParameters::default());
}

#[test]
fn variables_come_in_the_formats_of_grafana() {
    for text in [r"sites?host=(a\.test|b\.test)", "sites?host={a.test,b.test}", "sites?host=a.test,b.test"] {
        assert_eq!(hosts(text), ["a.test", "b.test"], "{text}");
    }
    assert_eq!(hosts(r"sites?host=a\.test"), ["a.test"]);
    for all in ["sites?host=$__all", "sites?host=.*", "sites?host=", "sites?host=(.*)", "sites?host=All"] {
        assert!(hosts(all).is_empty(), "{all}");
    }
}

#[test]
fn payloads_are_objects_or_their_text() {
    let with = |payload: serde_json::Value| {
        TargetParameters::read("pages?limit=3", &[&payload])
            .map(|(_, parameters)| parameters)
            .map_err(|r| r.text)
    };
    let expected = with(json!({ "host": ["a.test", "b.test"], "limit": 9 })).unwrap();
    assert_eq!((expected.hosts.len(), expected.limit), (2, Some(3)), "the text goes first");
    assert_eq!(with(json!("{\"host\": [\"a.test\", \"b.test\"]}")).unwrap(), expected);
    assert_eq!(with(json!({ "host": r"(a\.test|b\.test)" })).unwrap(), expected);
    assert!(with(json!({ "host": ["$__all"] })).unwrap().hosts.is_empty());
    assert_eq!(with(json!("")).unwrap(), with(json!(null)).unwrap());
    for wrong in [
        json!([1]),
        json!(7),
        json!("{"),
        json!({ "host": { "a": 1 } }),
        json!({ "bots": true }),
        json!("\"x\""),
    ] {
        assert!(with(wrong.clone()).is_err(), "{wrong}");
    }
    // What the plugin's documentation has as an example says nothing here.
    let refused = with(json!({ "additional": "optional json" })).unwrap_err();
    assert!(refused.contains("`pages` has no parameter `additional`; it has host, exclude"), "{refused}");
}

#[test]
fn what_is_not_understood_is_refused_with_what_would_be() {
    for (text, expected) in [
        ("upper_50", "there is no target `upper_50`; there are blog_hits, sites, outbound_data"),
        ("", "there is no target ``"),
        ("pages?hosts=a", "no parameter `hosts`"),
        ("traffic?limit=5", "`traffic` has no parameter `limit`"),
        ("pages?text=a", "no parameter `text`"),
        ("pages?limit=0", "a number from 1 to 10000"),
        ("pages?limit=1,2", "more than one value"),
        ("pages?bots=maybe", "include, only or exclude"),
        ("pages?interval=1y", "a time like 30s"),
        ("pages?by=size", "requests or bytes"),
        ("pages?format=graph", "time_series or table"),
        ("pages?exclude=me", "neither an address nor a network"),
        ("search?text=%4", "a % that no two digits follow"),
        ("search?text=%+4", "a % that no two digits follow"),
        ("errors?share=101", "a percentage"),
    ] {
        let refused = read(text).unwrap_err();
        assert!(refused.contains(expected), "{text}: {refused}");
    }
}

#[test]
fn filters_of_a_dashboard_narrow() {
    let filter = |key: &str, operator: &str, value: &str| AdhocFilter {
        key: key.into(),
        operator: operator.into(),
        value: Some(value.into()),
        values: None,
    };
    let narrow = |text: &str, filters: &[AdhocFilter]| {
        let mut parameters = read(text).unwrap();
        parameters.narrow(filters).map(|()| parameters).map_err(|refusal| refusal.text)
    };
    assert_eq!(narrow("sites", &[filter("host", "=", "A.test")]).unwrap().hosts, ["a.test"]);
    let both = narrow("sites?host=a.test,b.test", &[filter("host", "=", "b.test")]).unwrap();
    assert_eq!((both.hosts, both.nothing), (vec!["b.test".to_owned()], false));
    assert!(narrow("sites?host=a.test", &[filter("host", "=", "b.test")]).unwrap().nothing);
    let several = AdhocFilter { values: Some(vec!["a".into(), "b".into()]), ..filter("host", "=|", "a") };
    assert_eq!(narrow("sites", &[several]).unwrap().hosts, ["a", "b"]);
    let without = narrow(
        "sites?exclude=10.0.0.1",
        &[filter("client", "!=", "10.0.0.2"), filter("network", "!=", "10.1.0.0/16")],
    );
    assert_eq!(without.unwrap().exclude.len(), 3);
    assert_eq!(narrow("sites", &[filter("bots", "=", "only")]).unwrap().bots, Some(Bots::Only));
    for (key, operator, value) in [
        ("City", "=", "Berlin"),
        ("host", "!=", "a"),
        ("client", "=", "10.0.0.1"),
        ("client", "!=", "x"),
        ("bots", "=", "x"),
    ] {
        assert!(narrow("sites", &[filter(key, operator, value)]).is_err(), "{key} {operator} {value}");
    }
}
