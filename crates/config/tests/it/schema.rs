//! The JSON Schema: it takes every configuration that is right, and refuses mistakes that a table shows.

use std::sync::LazyLock;

use jsonschema::Validator;
use offramp_config::{Environment, keys, parse, print};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use toml::de::{DeTable, DeValue};

use crate::documentation::configurations;
use crate::fixtures::texts_of_tests;
use crate::language::{FULL, HTTP};
use crate::strategies::config;

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(&keys::schema::schema()).unwrap();
    jsonschema::draft7::meta::validate(&schema).unwrap();
    jsonschema::draft7::new(&schema).unwrap()
});

/// The text of a configuration as JSON, as editors hand it to the schema.
fn json_of(text: &str) -> Value {
    let table = DeTable::parse(text).unwrap();
    table_of(table.get_ref())
}

fn table_of(table: &DeTable<'_>) -> Value {
    let pairs = table.iter().map(|(name, value)| (name.get_ref().to_string(), value_of(value.get_ref())));
    Value::Object(pairs.collect::<Map<_, _>>())
}

fn value_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => json!(text),
        DeValue::Integer(number) => {
            json!(i128::from_str_radix(&number.as_str().replace('_', ""), number.radix()).unwrap() as i64)
        }
        DeValue::Float(number) => json!(number.as_str().parse::<f64>().unwrap()),
        DeValue::Boolean(value) => json!(value),
        DeValue::Datetime(time) => json!(time.to_string()),
        DeValue::Array(values) => values.iter().map(|value| value_of(value.get_ref())).collect(),
        DeValue::Table(table) => table_of(table),
    }
}

/// The mistakes that the schema finds.
fn mistakes(text: &str) -> Vec<String> {
    SCHEMA.iter_errors(&json_of(text)).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn is_accepted(text: &str) -> bool {
    let environment = Environment { home: Some("/home/operator".into()), ..Environment::default() };
    parse(text, "offramp.toml", &environment).is_ok()
}

/// Fails where the schema refuses a text that `check` accepts; returns the number of such texts.
fn agree<'t>(texts: impl IntoIterator<Item = &'t str>) -> usize {
    let accepted = texts.into_iter().filter(|text| is_accepted(text)).inspect(|text| {
        let found = mistakes(text);
        assert!(found.is_empty(), "{text}\n{found:#?}");
    });
    accepted.count()
}

#[test]
fn configurations_of_the_pages_and_the_examples_are_valid() {
    let texts: Vec<String> = configurations().iter().map(ToString::to_string).collect();
    let whole = agree(texts.iter().map(String::as_str));
    assert!(whole >= 80, "{whole}");
    // Parts of a file that name items of the rest are valid by themselves.
    let others = texts.iter().filter(|text| !is_accepted(text));
    let wrong: Vec<_> = others.filter(|text| !mistakes(text).is_empty()).collect();
    assert!(wrong.len() <= 3, "{wrong:#?}");
    assert_eq!(agree([FULL, HTTP]), 2);
}

#[test]
fn configurations_of_tests_are_valid() {
    let mut whole = 0;
    for texts in texts_of_tests() {
        whole += agree(texts.iter().map(String::as_str));
    }
    assert!(whole >= 800, "{whole}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_configuration_that_is_printed_is_valid(config in config()) {
        let text = print(&config);
        let found = mistakes(&text);
        prop_assert!(found.is_empty(), "{}\n{:#?}", text, found);
    }
}

/// A route and its backend, for texts that need one.
const ROUTE: &str = "[[route]]\nserver = \"127.0.0.1:3000\"\n";

/// Mistakes, each alone in its file.
const MISTAKES: &[&str] = &[
    // Unknown keys and sections.
    "worker = 2",
    "[limit]\nconnections = 5",
    "[limits]\nidle_timout = \"5m\"",
    "[[route]]\nserver = \"127.0.0.1:3000\"\nhosts = \"a.example\"",
    "[backend.a]\nserver = \"127.0.0.1:3000\"",
    "[[route]]\nserver = \"127.0.0.1:3000\"\nhsts = { age = \"1d\" }",
    // Keys in the wrong table.
    "idle_timeout = \"5m\"",
    "[log]\nconnections = 5",
    "[limits]\nworkers = 2",
    "[listener]\naddress = \"[::]:443\"",
    "[[backend]]\nservers = \"127.0.0.1:3000\"",
    "[route]\nserver = \"127.0.0.1:3000\"",
    "[[log]]\nlevel = \"info\"",
    "[defaults.route]\nserver = \"127.0.0.1:3000\"",
    "[policy.a]\nhost = \"a.example\"",
    "[defaults.route]\nclient_auth = { ca = \"/ca.pem\" }",
    // Wrong types.
    "workers = \"2\"",
    "watch = \"yes\"",
    "workers = 2.5",
    "[limits]\nidle_timeout = 5",
    "[limits]\nmemory = 5",
    "[limits]\nhandshakes_per_client = 5",
    "[[route]]\nserver = [\"127.0.0.1:3000\"]",
    "[[route]]\nserver = \"127.0.0.1:3000\"\nhost = [1]",
    "[[route]]\nserver = \"127.0.0.1:3000\"\nhsts = \"on\"",
    "[log]\nlevel = true",
    "log = \"info\"",
    // Out of bounds.
    "workers = 1025",
    "workers = -1",
    "[limits]\nconnections = 0",
    "[limits]\nidle_timeout = \"0s\"",
    "[limits]\nidle_timeout = \"31d\"",
    "[limits]\nmemory = \"1023KiB\"",
    "[limits]\nmemory = \"1025GiB\"",
    "[tls]\ntickets = 9",
    "[tls]\nrecord_size = \"2KiB\"",
    // Quantities of no kind.
    "[limits]\nidle_timeout = \"5\"",
    "[limits]\nidle_timeout = \"1.5s\"",
    "[limits]\nidle_timeout = \"1h30m\"",
    "[limits]\nmemory = \"5MB\"",
    "[limits]\nhandshakes_per_client = \"0/s\"",
    "[limits]\nhandshakes_per_client = \"5/d\"",
    // Words.
    "sandbox = \"On\"",
    "[log]\nlevel = \"verbose\"",
    "[log]\noutput = \"file\"",
    "[tls]\npolicy = \"old\"",
    "[tls]\naeads = \"aes-128-ccm\"",
    "[tls]\nrecord_size = \"small\"",
    "[[listener]]\nmode = \"https\"",
    "[backend.a]\nservers = \"127.0.0.1:3000\"\nbalance = \"hash:cookie:\"",
    "[backend.a]\nservers = \"127.0.0.1:3000\"\nbalance = \"hash:path\"",
    // Addresses, names and other texts.
    "[[listener]]\naddress = \":443\"",
    "[[listener]]\naddress = \"localhost:443\"",
    "[[listener]]\naddress = \"1.2.3.256:443\"",
    "[[listener]]\naddress = \"[::1]:65536\"",
    "[[listener]]\naccept_proxy = \"10.0.0.0/33\"",
    "[[listener]]\nname = \"a b\"",
    "[[route]]\nserver = \"127.0.0.1:0\"",
    "[[route]]\nserver = \"http://127.0.0.1:3000\"",
    "[[route]]\nserver = \"localhost\"",
    "[[route]]\nserver = \"unix:/run/\"",
    "[[route]]\npassthrough = \"tls://a.example:443\"",
    "[[route]]\nserver = \"127.0.0.1:3000\"\nhost = \"10.0.0.1\"",
    "[[route]]\nserver = \"127.0.0.1:3000\"\nhost = \"a.*.example\"",
    "[[route]]\nserver = \"127.0.0.1:3000\"\nallow = \"country:Germany\"",
    "[[listener]]\nmode = \"http\"\n[[route]]\nserver = \"127.0.0.1:3000\"\npath = \"api\"",
    "[[listener]]\nmode = \"http\"\n[[route]]\nserver = \"127.0.0.1:3000\"\npath = \"/a/../b\"",
    "[backend.a]\nservers = \"127.0.0.1:3000 weight=0\"",
    "[backend.a]\nservers = \"127.0.0.1:3000 backup backup\"",
    "[backend.\"a b\"]\nservers = \"127.0.0.1:3000\"",
    "[backend.a]\nservers = \"127.0.0.1:3000\"\nhealth = { path = \"/\", status = 600 }",
    "[backend.a]\nservers = \"127.0.0.1:3000\"\ntls = { pin = \"sha256/AAAA\" }",
    // Lists.
    "[backend.a]\nservers = []",
    "[[listener]]\naddress = [\"[::]:443\", \"[::]:443\"]",
    // Missing keys.
    "[backend.a]\nbalance = \"least_conn\"",
    "[log_store]\nretention = \"1d\"",
    "[[route]]\nhost = \"a.example\"",
    "[[certificate]]\ndefault = true",
    "[[route]]\nserver = \"127.0.0.1:3000\"\nclient_auth = { mode = \"optional\" }",
    "[[listener]]\nmode = \"http\"\n[[route]]\nserver = \"127.0.0.1:3000\"\njwt = { leeway = \"1s\" }",
    // Keys that exclude or need each other.
    "[[route]]\nserver = \"127.0.0.1:3000\"\nbackend = \"a\"",
    "[[route]]\nserver = \"127.0.0.1:3000\"\nindex = \"a.html\"",
    "[[route]]\nredirect = \"https://b.example\"\nmax_body = \"1MiB\"",
    "[[route]]\npassthrough = \"a.example:443\"\nhsts = true",
    "[[route]]\nroot = \"/srv\"\nsend_proxy = \"v2\"",
    "[[certificate]]\ncert = \"a.pem\"\nlocal = true",
    "[[certificate]]\ndirectory = \"a\"\nkey = \"a.key\"",
    "[[certificate]]\ncert = \"a.pem\"\nkey_type = \"p256\"",
    "[[listener]]\nvia = true",
    "[[listener]]\nmode = \"tcp\"\nvia = true",
    "[[listener]]\ncancel = \"clear\"",
    "[log]\nsyslog = \"/dev/log\"",
    "[log]\noutput = \"stderr\"\nsyslog = \"/dev/log\"",
    "[access_log]\nrotate_keep = 5",
    "[metrics]\ngraphite_prefix = \"a\"",
    "[backend.a]\nservers = \"127.0.0.1:3000\"\nhealth = { status = 200 }",
    "[backend.a]\nservers = \"127.0.0.1:3000\"\ntls = { key = \"a.key\" }",
    "[[listener]]\nmode = \"http\"\n[[route]]\nrespond = { body = \"a\", file = \"b\" }",
];

#[test]
fn mistakes_are_refused() {
    let mut taken = Vec::new();
    for text in MISTAKES {
        // What is wrong is the one mistake, wherever it stands.
        let text = if text.contains("[route]") { (*text).to_owned() } else { format!("{text}\n{ROUTE}") };
        assert!(!is_accepted(&text), "check accepts\n{text}");
        taken.extend(mistakes(&text).is_empty().then_some(text));
    }
    assert!(taken.is_empty(), "the schema accepts\n{}", taken.join("\n"));
}

#[test]
fn spellings_that_are_easily_forgotten_are_valid() {
    for text in [
        "",
        "workers = 0x10\n",
        "[limits]\nidle_timeout = \"007 m\"\n",
        "[tls]\nrecord_size = \"8KiB\"\n",
        "[log]\noutput = \"./offramp.log\"\n",
        "[[listener]]\naddress = [\"[fe80::1%3]:00443\", \"unix:../run/a b.sock\"]\n",
        "[backend.a]\nservers = [\" 10.0.0.1:80  drain weight=+07 backup\"]\n[[route]]\nbackend = \"a\"\n",
        "[defaults.route]\nmax_body = \"1MiB\"\n[[listener]]\nmode = \"http\"\n[[route]]\nredirect = \"https://b.example\"\nmax_body = false\n",
        "[[listener]]\nmode = \"http\"\n[[route]]\nserver = \"a.example:80\"\nrewrite = { match = \"a\", to = \"/b\" }\n",
        "[[route]]\nserver = \"tls://Mail.example.:443\"\nhost = [\"*.1-2.example\", \"_x.example.\"]\n",
    ] {
        assert!(is_accepted(text), "{text}{:?}", parse(text, "f", &Environment::default()).err());
        assert_eq!(mistakes(text), [""; 0], "{text}");
    }
}
