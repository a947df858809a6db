//! Fields of requests and responses, and compression.

use offramp_config::model::{HeaderName, HeaderTemplate};

use super::tree::Directive;
use super::values;
use super::{Lowering, Scope};
use crate::draft::{DraftKeys, inline, list, quoted};
use crate::report::Fate;

/// The reach of a field with `always`, and of one without it.
const ALWAYS: &str = "responses of every status get it, but not pages of errors that Offramp makes itself";
const SUCCESSES: &str = "responses of every status get it, errors of servers too, but not pages of errors that Offramp makes itself";

impl<'a> Lowering<'a> {
    /// The `request_headers` of a route to servers. `authority` is what `proxy_pass` names, which nginx sends as `Host`
    /// unless told otherwise.
    pub(super) fn request_headers(&mut self, scope: &Scope<'a>, authority: Option<&str>) -> DraftKeys {
        let (mut set, mut remove) = (DraftKeys::new(), Vec::new());
        let mut has_host = false;
        let fields = [scope.all("proxy_set_header"), scope.all("grpc_set_header")].concat();
        for one in fields {
            let (name, value) = (one.argument(0), one.argument(1));
            let lower = name.to_ascii_lowercase();
            self.take(one);
            match (lower.as_str(), value) {
                ("host", value) => {
                    has_host = true;
                    match value {
                        "$host" | "$http_host" | "${host}" => {}
                        "$host:$server_port" | "$host:$proxy_port" => {
                            self.note(one, Fate::changed("servers get Host as the client sent it"));
                        }
                        "$proxy_host" => set.extend(authority.map(|text| ("Host".to_owned(), quoted(text)))),
                        value => self.field(one, "Host", value, &mut set),
                    }
                }
                ("x-real-ip", "$remote_addr" | "$realip_remote_addr" | "$http_x_real_ip")
                | (
                    "x-forwarded-proto" | "x-forwarded-scheme" | "x-scheme",
                    "$scheme" | "$http_x_forwarded_proto",
                )
                | ("x-forwarded-host", "$host" | "$http_host" | "$server_name")
                | ("x-forwarded-port", "$server_port")
                | ("x-request-id", "$request_id") => {
                    if matches!(lower.as_str(), "x-forwarded-scheme" | "x-scheme") {
                        self.field(one, name, "$scheme", &mut set);
                    }
                }
                ("x-forwarded-for", "$proxy_add_x_forwarded_for" | "$remote_addr") => {
                    if value != "$remote_addr" {
                        let how = "what a client sends there is replaced, unless it is in `trusted_proxies` of the listener";
                        self.note(one, Fate::changed(how));
                    }
                }
                ("upgrade" | "connection" | "keep-alive" | "te" | "proxy-connection", _) => {}
                ("accept-encoding" | "content-length" | "transfer-encoding", "")
                    if lower != "accept-encoding" => {}
                (_, "") => remove.push(name.to_owned()),
                (_, value) => {
                    if value == format!("$http_{}", lower.replace('-', "_")) {
                        continue;
                    }
                    self.field(one, name, value, &mut set);
                }
            }
        }
        if !has_host {
            set.extend(authority.map(|text| ("Host".to_owned(), quoted(text))));
        }
        let mut keys = DraftKeys::new();
        if !set.is_empty() {
            keys.push(("set".to_owned(), inline(&set)));
        }
        if !remove.is_empty() {
            keys.push(("remove".to_owned(), list(&remove)));
        }
        if keys.is_empty() { keys } else { vec![("request_headers".to_owned(), inline(&keys))] }
    }

    /// Adds a field with its value, or notes why it cannot be.
    fn field(&mut self, one: &'a Directive, name: &str, value: &str, set: &mut DraftKeys) {
        let Some(value) = self.checked(one, name, value) else { return };
        set.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        set.push((name.to_owned(), value));
    }

    /// The value of a field in TOML.
    fn checked(&mut self, one: &'a Directive, name: &str, value: &str) -> Option<String> {
        if let Err(problem) = name.parse::<HeaderName>() {
            self.refuse(one, problem.message(), "leave it out");
            return None;
        }
        let template = match values::template(value) {
            Ok(template) => template,
            Err(variable) => {
                let why = format!("fields have no variable {variable}");
                self.refuse(one, why, "see the variables of header fields in the book");
                return None;
            }
        };
        if let Err(problem) = template.parse::<HeaderTemplate>() {
            let remedy = problem.remedy().unwrap_or("write another value").to_owned();
            self.refuse(one, problem.message(), remedy);
            return None;
        }
        Some(quoted(&template))
    }

    /// The `response_headers` of a route.
    pub(super) fn response_headers(&mut self, scope: &Scope<'a>, cache: Option<String>) -> DraftKeys {
        let mut add: Vec<(String, Vec<String>)> = Vec::new();
        let (mut set, mut remove) = (DraftKeys::new(), Vec::new());
        for one in [scope.all("add_header"), scope.all("more_set_headers")].concat() {
            if one.name != "add_header" {
                continue;
            }
            self.take(one);
            let (name, value) = (one.argument(0), one.argument(1));
            if value.is_empty() {
                continue;
            }
            if name.eq_ignore_ascii_case("alt-svc") && value.contains("h3") {
                self.refuse(one, "Offramp speaks no HTTP/3", "leave it out");
                continue;
            }
            if let Some(value) = self.checked(one, name, value) {
                self.note(one, Fate::changed(if one.has("always") { ALWAYS } else { SUCCESSES }));
                match add.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
                    Some((_, values)) => values.push(value),
                    None => add.push((name.to_owned(), vec![value])),
                }
            }
        }
        for one in scope.all("proxy_hide_header") {
            match one.argument(0).parse::<HeaderName>() {
                Ok(_) => {
                    self.take(one);
                    remove.push(one.argument(0).to_owned());
                }
                Err(problem) => self.refuse(one, problem.message(), "leave it out"),
            }
        }
        set.extend(cache.map(|value| ("Cache-Control".to_owned(), quoted(&value))));
        let mut keys = DraftKeys::new();
        if !set.is_empty() {
            keys.push(("set".to_owned(), inline(&set)));
        }
        if !add.is_empty() {
            let one_or_more = |values: Vec<String>| match &values[..] {
                [one] => one.clone(),
                _ => format!("[{}]", values.join(", ")),
            };
            let add: DraftKeys = add.into_iter().map(|(name, values)| (name, one_or_more(values))).collect();
            keys.push(("add".to_owned(), inline(&add)));
        }
        if !remove.is_empty() {
            keys.push(("remove".to_owned(), list(&remove)));
        }
        if keys.is_empty() { keys } else { vec![("response_headers".to_owned(), inline(&keys))] }
    }

    /// The `compress` of a route.
    pub(super) fn compression(&mut self, scope: &Scope<'a>) -> DraftKeys {
        let gzip = scope.is_on("gzip");
        let brotli = scope.is_on("brotli");
        let Some(on) = gzip.or(brotli) else { return DraftKeys::new() };
        for one in [gzip, brotli].into_iter().flatten() {
            self.note(one, Fate::changed("clients that decode zstd or Brotli get that"));
        }
        let kind = on.name.as_str();
        let mut keys = DraftKeys::new();
        if let Some(one) = scope.one(&format!("{kind}_types")) {
            self.take(one);
            if !one.has("*") {
                let mut types: Vec<&str> = vec!["text/html"];
                types.extend(one.arguments.iter().map(String::as_str).filter(|text| *text != "text/html"));
                types.dedup();
                keys.push(("types".to_owned(), list(&types)));
            }
        }
        if let Some(one) = scope.one(&format!("{kind}_min_length")) {
            match values::size(one.argument(0)) {
                Some(size) => {
                    self.take(one);
                    keys.push(("min_size".to_owned(), values::toml_size(size)));
                }
                None => self.refuse(one, "this is no size", "write `compress.min_size`"),
            }
        }
        if let Some(one) = scope.one("gzip_comp_level") {
            self.note(one, Fate::changed("each algorithm has a level of its own, see `compress.level`"));
        }
        let value = if keys.is_empty() { "true".to_owned() } else { inline(&keys) };
        vec![("compress".to_owned(), value)]
    }
}
