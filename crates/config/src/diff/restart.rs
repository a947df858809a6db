//! Changes that take effect only after a restart.

use std::path::Path;

use crate::error::At;
use crate::keys::{self, Reload};
use crate::model::Config;
use crate::settings::{Binding, Scalar, ValueOrigin, WrittenValue};

/// Reverts changes that take effect only after a restart: sets their keys in `new` to the values of `old`.
/// Returns the keys in the order of the table.
///
/// The table of keys alone decides which keys these are.
pub fn keep_until_restart(old: &Config, new: &mut Config) -> Vec<&'static str> {
    let mut kept = Vec::new();
    for (key, binding) in keys::settings().filter(|(key, _)| key.reload == Reload::Restart) {
        let value = (binding.get)(old);
        if value != (binding.get)(new) {
            kept.push(key.path);
            set(binding, new, key.name(), value.as_ref());
            new.origins.set(key.path, old.origins.of(key.path).cloned());
        }
    }
    kept
}

/// Sets a field to a value that a field of its type gave, and so takes.
fn set(binding: &Binding<Config>, config: &mut Config, name: &str, value: Option<&Scalar>) {
    let origin = |_: Option<usize>| ValueOrigin { folder: Path::new(""), at: At::NOWHERE };
    let written = value.map(|value| WrittenValue { name, value, origin: &origin });
    (binding.set)(config, written.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, parse};

    /// Files with another value than the default for each plain key; two, as some keys exclude each other.
    const OTHERS: [&str; 2] = [
        r#"
workers = 3
user = "other"
state_dir = "/other"
watch = true
sandbox = "required"
geoip = "/countries.mmdb"
[admin]
enabled = false
address = "127.0.0.1:9999"
token_file = "/other"
users = "/other"
hosts = ["other.example"]
certificate = "/other"
key = "/other"
[log]
level = "debug"
format = "json"
output = "syslog"
syslog = "udp://192.0.2.1:514"
[access_log]
format = "text"
output = "/other.log"
rotate_size = "9MiB"
rotate_keep = 3
omit = ["referer"]
hash = ["client"]
anonymize = "ip"
[log_store]
url = "postgres://user:secret@host/other"
retention = "9d"
rollup_retention = "99d"
spool = "9MiB"
full_text = true
geoip = "/other.mmdb"
[metrics]
address = "127.0.0.1:9998"
graphite = "192.0.2.1:2003"
graphite_interval = "9s"
graphite_prefix = "other"
top_clients = 9
[tracing]
otlp = "http://127.0.0.1:9997"
sample_one_in = 9
metrics = true
[tls]
policy = "modern"
tickets = 2
ticket_rotation = "9h"
record_size = "4KiB"
post_quantum = false
certificates = "acme"
acme = ["letsencrypt"]
[limits]
connections = 9
connections_per_client = 9
handshakes_per_client = "9/s"
bandwidth_per_client = "9MiB"
handshake_timeout = "9s"
connect_timeout = "9s"
idle_timeout = "9s"
max_age = "9s"
max_age_grace = "9s"
request_header_timeout = "9s"
request_body_timeout = "9s"
min_body_rate = "9B"
keepalive_timeout = "9s"
response_timeout = "9s"
request_headers = 9
request_header_size = "9KiB"
request_target_size = "9KiB"
requests_per_client = "9/s"
streams = 9
drain_timeout = "9s"
upgrade_timeout = "9s"
memory = "9MiB"
max_window = "9MiB"
process_memory = "9MiB"
file_cache = "9MiB"
compression_memory = "9MiB"
"#,
        "[access_log]\noutput = \"syslog\"\nsyslog = \"udp://192.0.2.1:514\"\n\
         [tls]\nmax_version = \"1.2\"\naeads = [\"aes-256-gcm\"]\nno_server_name = \"refuse\"\nunknown_name = \"refuse\"\n",
    ];

    #[test]
    fn every_key_is_applied_or_named_and_kept() {
        let read = |text: &str| parse(text, "f.toml", &Environment::default()).unwrap().0;
        let (old, others) = (Config::default(), OTHERS.map(read));
        for (key, binding) in keys::settings() {
            let path = key.path;
            let values = others.iter().map(binding.get);
            let value = values.into_iter().find(|value| *value != (binding.get)(&old));
            let value = value.unwrap_or_else(|| panic!("{path} has no other value in this test"));
            let mut changed = old.clone();
            set(binding, &mut changed, key.name(), value.as_ref());
            assert_eq!((binding.get)(&changed), value, "{path}");
            let mut new = changed.clone();
            let kept = keep_until_restart(&old, &mut new);
            match key.reload {
                Reload::Restart => assert_eq!((kept, &new), (vec![path], &old)),
                Reload::Live => assert_eq!((kept, &new), (vec![], &changed), "{path}"),
            }
            // And back again, which is another path for keys that may be absent.
            let mut back = old.clone();
            let kept = keep_until_restart(&changed, &mut back);
            let is_live = key.reload == Reload::Live;
            assert_eq!((kept.is_empty(), &back), (is_live, if is_live { &old } else { &changed }), "{path}");
        }
    }
}
