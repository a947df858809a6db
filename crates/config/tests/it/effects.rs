//! Every key has an effect: without it, or with another value, an example means something else.

use std::collections::BTreeMap;

use offramp_config::keys::{self, Default, Kind};
use offramp_config::{Config, Environment, parse};
use toml_edit::{DocumentMut, Item, TableLike, Value};

use crate::documentation::configurations;
use crate::language::{FULL, HTTP};

/// Other values of keys that the examples show with their default.
const OTHERS: &str = r#"
sandbox = "off"

[admin]
enabled = false

[log]
level = "debug"

[access_log]
output = "syslog"
syslog = "/run/syslog"

[log_store]
url = "sqlite:/a.db"
rollup_retention = "9d"

[metrics]
graphite = "192.0.2.1:2003"
graphite_interval = "9s"
graphite_prefix = "other"

[tls]
max_version = "1.2"
aeads = "aes-256-gcm"
certificates = "acme"
acme = ["own", "letsencrypt"]

[acme.own]
directory = "https://ca.example/dir"
challenge = "dns-01"
dns_hook = "/hook"
dns_wait = "9s"

[[certificate]]
acme = "own"
names = "www.example.org"
key_type = "p384"
reuse_key = true

[[listener]]
mode = "http"

[[route]]
backend = "apps"
hsts = { include_subdomains = true, preload = true }
send_proxy = { version = "v2", tls = false }
client_auth = { ca = "/ca.pem", mode = "optional" }
jwt = { jwks = "https://idp.example/keys", issuer = "a", audience = "a", refresh = "9m" }

[backend.apps]
servers = "192.0.2.1:80"
health = { timeout = "9s", rise = 9, fall = 9 }
"#;

/// The way to a key in a document: names, and indexes of arrays.
#[derive(Clone, Debug)]
enum Step {
    Name(String),
    Index(usize),
}

/// The places of every key in `table`, which is the section `path`.
fn places(
    table: &dyn TableLike,
    path: &str,
    way: &[Step],
    found: &mut BTreeMap<&'static str, Vec<Vec<Step>>>,
) {
    let below = |way: &[Step], step: Step| way.iter().cloned().chain([step]).collect::<Vec<_>>();
    for (name, item) in table.iter() {
        let Some(key) = keys::find_in(path, name) else { continue };
        let here = below(way, Step::Name(name.to_owned()));
        found.entry(key.path).or_default().push(here.clone());
        if matches!(key.kind, Kind::Named) {
            for (name, item) in item.as_table_like().into_iter().flat_map(TableLike::iter) {
                let here = below(&here, Step::Name(name.to_owned()));
                let inner = format!("{}.*", key.path);
                item.as_table_like().into_iter().for_each(|table| places(table, &inner, &here, found));
            }
            continue;
        }
        item.as_table_like().into_iter().for_each(|table| places(table, key.path, &here, found));
        let sections = item.as_array_of_tables().into_iter().flatten().map(|table| table as &dyn TableLike);
        let inline = item.as_array().into_iter().flatten().filter_map(Value::as_inline_table);
        let elements: Vec<&dyn TableLike> =
            sections.chain(inline.map(|table| table as &dyn TableLike)).collect();
        for (at, table) in elements.into_iter().enumerate() {
            places(table, key.path, &below(&here, Step::Index(at)), found);
        }
    }
}

/// The document without the key, or with another text for a key that must be written.
fn changed(document: &DocumentMut, way: &[Step], must_be_written: bool) -> String {
    let mut document = document.clone();
    let (last, way) = way.split_last().unwrap();
    let Step::Name(name) = last else { unreachable!("keys have names") };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    let mut steps = way.iter().peekable();
    while let Some(Step::Name(name)) = steps.next() {
        let item = table.get_mut(name).unwrap();
        table = match steps.next_if(|step| matches!(step, Step::Index(_))) {
            Some(Step::Index(at)) => match item {
                Item::ArrayOfTables(tables) => tables.get_mut(*at).unwrap(),
                item => item.as_array_mut().unwrap().get_mut(*at).unwrap().as_inline_table_mut().unwrap(),
            },
            _ => item.as_table_like_mut().unwrap(),
        };
    }
    if must_be_written {
        let value = table.get_mut(name).unwrap().as_value_mut().unwrap();
        let first = value.as_array().map_or(&*value, |values| values.get(0).unwrap());
        let other = format!("{}1", first.as_str().unwrap());
        *value = other.into();
    } else {
        table.remove(name);
    }
    document.to_string()
}

fn meaning(text: &str) -> Option<Config> {
    let environment = Environment { home: Some("/home/operator".into()), ..Environment::default() };
    parse(text, "f.toml", &environment).ok().map(|(config, _)| config)
}

#[test]
fn no_key_is_read_and_ignored() {
    for text in [FULL, HTTP, OTHERS] {
        parse(text, "f.toml", &Environment::default()).unwrap_or_else(|errors| panic!("{errors}"));
    }
    let others = [FULL, HTTP, OTHERS].map(|text| text.parse().unwrap());
    let documents: Vec<(DocumentMut, Config)> = configurations()
        .into_iter()
        .chain(others)
        .filter_map(|document| {
            let config = meaning(&document.to_string())?;
            Some((document, config))
        })
        .collect();
    let mut effects: BTreeMap<&str, bool> = BTreeMap::new();
    for (document, config) in &documents {
        let mut found = BTreeMap::new();
        places(document.as_table(), "", &[], &mut found);
        for (path, ways) in found {
            let key = keys::find(path).unwrap();
            for way in ways {
                let has_effect = effects.entry(path).or_default();
                let must_be_written = key.default == Default::Required;
                *has_effect = *has_effect
                    || meaning(&changed(document, &way, must_be_written)).as_ref() != Some(config);
            }
        }
    }
    // `include` is read before the keys are.
    let all = keys::TABLE.iter().filter(|key| key.path != "include" && key.support.is_now());
    let idle: Vec<&str> = all.map(|key| key.path).filter(|path| effects.get(path) != Some(&true)).collect();
    assert!(
        idle.is_empty(),
        "nothing reads these keys, or no whole configuration in docs/ and examples/ has them with another value than \
         their default: {idle:#?}\nShow each in a page with a value that matters, and see that `check` fills the struct of \
         the field in its row"
    );
}
