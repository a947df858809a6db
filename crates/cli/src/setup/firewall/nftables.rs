//! Rules of `nft -j list ruleset` (libnftables-json(5)): the chains at the hook `input`.

use serde_json::Value;

use super::Passage;

/// A base chain at the hook `input`, with its rules.
#[derive(Debug)]
pub(super) struct InputChain {
    drops: bool,
    rules: Vec<Value>,
}

/// The chains that decide on what comes in; `None` if the text is not understood. A chain without rules that accepts is
/// left out.
pub(super) fn chains(text: &str) -> Option<Vec<InputChain>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let objects = value.get("nftables")?.as_array()?;
    let is_input = |chain: &&Value| {
        chain["hook"] == "input" && matches!(chain["family"].as_str(), Some("ip" | "ip6" | "inet"))
    };
    let bases = objects.iter().filter_map(|object| object.get("chain")).filter(is_input);
    let chains = bases.map(|chain| {
        let of_chain = |rule: &&Value| {
            rule["family"] == chain["family"]
                && rule["table"] == chain["table"]
                && rule["chain"] == chain["name"]
        };
        let rules = objects.iter().filter_map(|object| object.get("rule")).filter(of_chain);
        InputChain {
            drops: chain["policy"] == "drop",
            rules: rules.map(|rule| rule["expr"].clone()).collect(),
        }
    });
    Some(chains.filter(|chain| chain.drops || !chain.rules.is_empty()).collect())
}

/// Judges a port: every chain must let it pass.
pub(super) fn judge(chains: &[InputChain], port: u16) -> Passage {
    let mut passage = Passage::Open;
    for chain in chains {
        match chain.judge(port) {
            Passage::Open => {}
            Passage::Closed => return Passage::Closed,
            Passage::Unclear => passage = Passage::Unclear,
        }
    }
    passage
}

impl InputChain {
    fn judge(&self, port: u16) -> Passage {
        let mut unclear = false;
        for rule in &self.rules {
            let expressions = rule.as_array().map(Vec::as_slice).unwrap_or_default();
            let mut applies = Some(true);
            for expression in expressions {
                if let Some(condition) = expression.get("match") {
                    match holds(condition, port) {
                        Some(true) => {}
                        Some(false) => applies = Some(false),
                        None => applies = applies.filter(|applies| !applies),
                    }
                }
                let verdict = ["accept", "drop", "reject", "jump", "goto", "vmap", "xt"];
                let Some(verdict) = verdict.into_iter().find(|name| expression.get(name).is_some()) else {
                    continue;
                };
                match (applies, verdict) {
                    (Some(false), _) => {}
                    (Some(true), "accept") => return if unclear { Passage::Unclear } else { Passage::Open },
                    (Some(true), "drop" | "reject") => {
                        return if unclear { Passage::Unclear } else { Passage::Closed };
                    }
                    _ => unclear = true,
                }
            }
        }
        match (unclear, self.drops) {
            (true, _) => Passage::Unclear,
            (false, true) => Passage::Closed,
            (false, false) => Passage::Open,
        }
    }
}

/// Returns true if a condition holds for new connections of every client to the port, false if for none of them.
fn holds(condition: &Value, port: u16) -> Option<bool> {
    let (left, right) = (&condition["left"], &condition["right"]);
    let is_equal = matches!(condition["op"].as_str(), Some("==" | "in"));
    if left["payload"]["protocol"] == "tcp" && left["payload"]["field"] == "dport" && is_equal {
        return Some(has(right, port));
    }
    if left["payload"]["protocol"] == "udp" {
        return Some(false);
    }
    match (left["meta"]["key"].as_str(), is_equal) {
        (Some("l4proto"), true) => Some(names(right, "tcp")),
        (Some("iif" | "iifname"), true) if right == "lo" => Some(false),
        _ if left["ct"]["key"] == "state" && is_equal => Some(names(right, "new")),
        _ => None,
    }
}

/// Returns true if a number, a range or a set has the port.
fn has(value: &Value, port: u16) -> bool {
    if let Some(set) = value.get("set").and_then(Value::as_array) {
        return set.iter().any(|part| has(part, port));
    }
    if let Some([first, last]) = value.get("range").and_then(Value::as_array).map(Vec::as_slice) {
        let bounds = (first.as_u64().unwrap_or(u64::MAX), last.as_u64().unwrap_or(0));
        return (bounds.0..=bounds.1).contains(&u64::from(port));
    }
    value.as_u64() == Some(u64::from(port))
}

/// Returns true if a word, or a list or set of words, has the word.
fn names(value: &Value, word: &str) -> bool {
    let list = value.as_array().or_else(|| value.get("set").and_then(Value::as_array));
    value == word || list.is_some_and(|list| list.iter().any(|part| part == word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ruleset(policy: &str, rules: &[Value]) -> Vec<InputChain> {
        let mut objects = vec![
            json!({"metainfo": {"json_schema_version": 1}}),
            json!({"chain": {"family": "inet", "table": "filter", "name": "input", "hook": "input", "policy": policy}}),
            json!({"chain": {"family": "inet", "table": "filter", "name": "output", "hook": "output", "policy": "drop"}}),
            json!({"rule": {"family": "inet", "table": "filter", "chain": "output", "expr": [{"drop": null}]}}),
        ];
        objects.extend(rules.iter().map(
            |expr| json!({"rule": {"family": "inet", "table": "filter", "chain": "input", "expr": expr}}),
        ));
        chains(&json!({"nftables": objects}).to_string()).unwrap()
    }

    fn dport(right: &Value) -> Value {
        json!({"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": right}})
    }

    #[test]
    fn the_first_rule_that_decides_counts() {
        let accept = json!({"accept": null});
        let established = json!([
            {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}, accept]);
        let lo =
            json!([{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "lo"}}, accept]);
        let set = json!([dport(&json!({"set": [22, 80, {"range": [8000, 9000]}]})), accept]);
        let from = json!({"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "10.0.0.1"}});
        for (policy, rules, port, passage) in [
            ("drop", vec![established.clone(), lo.clone(), set.clone()], 443, Passage::Closed),
            ("drop", vec![established.clone(), set.clone()], 80, Passage::Open),
            ("drop", vec![lo.clone(), set.clone()], 8443, Passage::Open),
            ("drop", vec![json!([dport(&json!(443)), {"counter": {}}, accept])], 443, Passage::Open),
            ("accept", vec![json!([{"reject": null}])], 443, Passage::Closed),
            ("accept", vec![json!([dport(&json!(443)), {"drop": null}])], 443, Passage::Closed),
            ("accept", vec![json!([dport(&json!(443)), {"drop": null}])], 80, Passage::Open),
            ("drop", vec![json!([from, dport(&json!(443)), accept])], 443, Passage::Unclear),
            ("drop", vec![json!([from, dport(&json!(22)), accept])], 443, Passage::Closed),
            ("drop", vec![json!([{"jump": {"target": "other"}}])], 443, Passage::Unclear),
            ("drop", vec![json!([{"xt": null}])], 443, Passage::Unclear),
        ] {
            assert_eq!(judge(&ruleset(policy, &rules), port), passage, "{policy} {rules:?} {port}");
        }
        assert!(ruleset("accept", &[]).is_empty() && !ruleset("drop", &[]).is_empty());
        assert!(chains("no JSON").is_none());
    }
}
