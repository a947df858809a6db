//! The table of operations, from which dispatch and the OpenAPI document derive.

use hyper::Method;
use offramp_config::Item;
use percent_encoding::percent_decode_str;

use super::ask::AskOperation;
use super::change::{ChangeOperation, Verb};
use super::connections::{FILTER, PAGES};
use super::logs::{self, LogList};
use super::query::{Parameter, ParameterKind};
use super::read::ReadOperation;
use super::why;
use super::{ProblemDetails, figures};

/// One method of one path.
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// The path below `/v1`; names in braces stand for any segment.
    pub(crate) path: &'static str,
    pub(crate) call: OperationCall,
    /// A summary in one line.
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [Parameter],
    pub(crate) body: Body,
}

impl Operation {
    /// Returns `true` if a request may require a version of the configuration.
    pub(crate) fn may_expect(&self) -> bool {
        let is_tried = self.query.iter().any(|parameter| parameter.name == DRY_RUN.name);
        is_tried || matches!(self.call, OperationCall::Change(ChangeOperation::Confirm))
    }
}

/// The handler of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OperationCall {
    Ask(AskOperation),
    Read(ReadOperation),
    Change(ChangeOperation),
}

/// The body that a request must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    None,
    /// A configuration in TOML.
    Toml,
    /// The same, which may be empty.
    Draft,
    /// The keys of an item, as in the configuration.
    Item,
    /// A ClientHello in any of the forms that are read from files.
    Hello,
    /// A JSON object with these members.
    Json(&'static [Member]),
}

/// A member of a JSON object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    pub(crate) takes: Takes,
    pub(crate) doc: &'static str,
}

/// The values of a member.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// A text without spaces.
    Text,
    Flag,
    /// An integer from 1 to this.
    UpTo(u16),
    Words(&'static [&'static str]),
}

/// The result of routing a path and method.
pub(crate) enum RoutedPath {
    /// An operation, with the values of the path's parameters.
    Operation(&'static Operation, Vec<String>),
    /// A known path with other methods, which are listed.
    OtherMethod(String),
    Nothing,
}

/// Routes the part of the path after `/v1`.
pub(crate) fn find(method: &Method, path: &str) -> RoutedPath {
    // HEAD is answered like GET, without the body.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let mut allowed = Vec::new();
    for operation in OPERATIONS {
        let Some(names) = names(operation.path, path) else { continue };
        if operation.method == *method {
            return RoutedPath::Operation(operation, names);
        }
        allowed.push(operation.method.as_str());
        if operation.method == Method::GET {
            allowed.push("HEAD");
        }
    }
    if allowed.is_empty() { RoutedPath::Nothing } else { RoutedPath::OtherMethod(allowed.join(", ")) }
}

/// The refusal of an unknown path, with the most similar known one.
pub(crate) fn nothing_at(path: &str) -> ProblemDetails {
    let segments: Vec<&str> = path.split('/').collect();
    // A name may be anything: only the fixed words can be wrong.
    let like = |template: &str| -> Option<String> {
        let parts: Vec<&str> = template.split('/').collect();
        let fits = parts.len() == segments.len();
        let filled = parts.iter().zip(&segments).map(|(part, segment)| {
            if part.starts_with('{') && !segment.is_empty() { *segment } else { *part }
        });
        fits.then(|| format!("/v1{}", filled.collect::<Vec<_>>().join("/")))
    };
    let mut known: Vec<String> = OPERATIONS.iter().filter_map(|operation| like(operation.path)).collect();
    known.dedup();
    ProblemDetails::unknown("path", &format!("/v1{path}"), known.iter().map(String::as_str))
}

/// The segments of `path` in the places of the names in braces, if it matches the template.
fn names(template: &str, path: &str) -> Option<Vec<String>> {
    let mut segments = path.split('/');
    let mut names = Vec::new();
    for part in template.split('/') {
        let segment = segments.next()?;
        if part.starts_with('{') {
            let name = percent_decode_str(segment).decode_utf8().ok()?;
            if name.is_empty() {
                return None;
            }
            names.push(name.into_owned());
        } else if part != segment {
            return None;
        }
    }
    segments.next().is_none().then_some(names)
}

const DRY_RUN: Parameter = Parameter {
    name: "dry_run",
    kind: ParameterKind::Flag,
    doc: "Change nothing, and tell what would change",
};
const PERSIST: Parameter = Parameter {
    name: "persist",
    kind: ParameterKind::Flag,
    doc: "Write the change to the configuration file too; comments and order stay",
};
const CONFIRM: Parameter = Parameter {
    name: "confirm",
    kind: ParameterKind::Time,
    doc: "Take the change back after this time, unless it is confirmed",
};

const FORCE: Parameter = Parameter {
    name: "force",
    kind: ParameterKind::Flag,
    doc: "Use a configuration without routes or listeners though the one in force has some",
};
const LOSE: Parameter = Parameter {
    name: "force",
    kind: ParameterKind::Flag,
    doc: "Use the configuration on disk as it is: changes that were not written to it may be lost",
};
const NO_PERSIST: Parameter = Parameter {
    name: "no_persist",
    kind: ParameterKind::Flag,
    doc: "Do not write the change to the configuration file, though that was asked for with it",
};

const NOW: Parameter = Parameter {
    name: "now",
    kind: ParameterKind::Flag,
    doc: "Close open connections at once, also if it drains already",
};

/// Parameters of changes of the whole configuration.
const WHOLE: &[Parameter] = &[
    DRY_RUN,
    CONFIRM,
    PERSIST,
    FORCE,
    Parameter { name: "name", kind: ParameterKind::Text, doc: "What error messages call the document" },
    Parameter { name: "folder", kind: ParameterKind::Text, doc: "The directory where relative paths start" },
];
/// Parameters of changes of one item.
const ITEM: &[Parameter] = &[DRY_RUN, CONFIRM, PERSIST];

const STATE: Member = Member {
    name: "state",
    required: false,
    takes: Takes::Words(&["enabled", "drain", "disabled"]),
    doc: "Whether it gets connections and requests",
};
const WEIGHT: Member = Member { name: "weight", required: false, takes: Takes::UpTo(256), doc: "Its share" };
const SERVER: Body = Body::Json(&[
    Member { name: "address", required: true, takes: Takes::Text, doc: "The address, such as 10.0.0.7:3000" },
    WEIGHT,
    Member {
        name: "backup",
        required: false,
        takes: Takes::Flag,
        doc: "Whether it is used only if no other is available",
    },
    STATE,
]);
const SERVER_CHANGE: Body = Body::Json(&[STATE, WEIGHT]);
const LEVEL: Body = Body::Json(&[Member {
    name: "level",
    required: true,
    takes: Takes::Words(&["error", "warn", "info", "debug"]),
    doc: "The level from which messages are written",
}]);

macro_rules! operations {
    ($($method:ident $path:literal $call:expr, $query:expr, $body:expr, $summary:literal;)*) => {
        &[$(Operation {
            method: Method::$method,
            path: $path,
            call: $call,
            summary: $summary,
            query: $query,
            body: $body,
        }),*]
    };
}

use OperationCall::{Ask as A, Change as C, Read as R};

/// Every operation, in the order of the document.
#[rustfmt::skip]
pub(crate) static OPERATIONS: &[Operation] = operations! {
    GET "/openapi.json" R(ReadOperation::OpenApi), &[], Body::None, "This description";
    GET "/status" R(ReadOperation::Status), &[], Body::None, "The process: version, connections, what is in force, what waits to be confirmed";
    GET "/config" R(ReadOperation::Config), &[Parameter { name: "format", kind: ParameterKind::Format, doc: "JSON with the origin of each value, or TOML" }], Body::None, "The configuration in force, with every default";
    PUT "/config" C(ChangeOperation::Document), WHOLE, Body::Toml, "Replace the whole configuration";
    GET "/config/file" A(AskOperation::ConfigFile), &[], Body::None, "The text of the configuration in force, with its comments, and whether its file differs; it has passwords that it was given";
    POST "/check" A(AskOperation::Check), &[], Body::Draft, "All mistakes and warnings of a configuration, with their places; nothing changes";
    GET "/listeners" R(ReadOperation::Listeners), &[], Body::None, "All listeners, and where they listen";
    POST "/listeners" C(ChangeOperation::Item(Item::Listener, Verb::Add)), ITEM, Body::Item, "Add a listener";
    GET "/listeners/{listener}" R(ReadOperation::Listener), &[], Body::None, "One listener";
    PUT "/listeners/{listener}" C(ChangeOperation::Item(Item::Listener, Verb::Replace)), ITEM, Body::Item, "Replace a listener";
    PATCH "/listeners/{listener}" C(ChangeOperation::Item(Item::Listener, Verb::Change)), ITEM, Body::Item, "Change some keys of a listener; null takes a key away";
    DELETE "/listeners/{listener}" C(ChangeOperation::Item(Item::Listener, Verb::Remove)), ITEM, Body::None, "Remove a listener";
    GET "/routes" R(ReadOperation::Routes), &[], Body::None, "All routes";
    POST "/routes" C(ChangeOperation::Item(Item::Route, Verb::Add)), ITEM, Body::Item, "Add a route";
    GET "/routes/{route}" R(ReadOperation::Route), &[], Body::None, "One route; its name is what it matches, such as example.org/api";
    PUT "/routes/{route}" C(ChangeOperation::Item(Item::Route, Verb::Replace)), ITEM, Body::Item, "Replace a route";
    PATCH "/routes/{route}" C(ChangeOperation::Item(Item::Route, Verb::Change)), ITEM, Body::Item, "Change some keys of a route; null takes a key away";
    DELETE "/routes/{route}" C(ChangeOperation::Item(Item::Route, Verb::Remove)), ITEM, Body::None, "Remove a route";
    GET "/backends" R(ReadOperation::Backends), &[], Body::None, "All backends, with the state of each server and its reason";
    POST "/backends" C(ChangeOperation::Item(Item::Backend, Verb::Add)), ITEM, Body::Item, "Add a backend, whose name is the key `name`";
    GET "/backends/{backend}" R(ReadOperation::Backend), &[], Body::None, "One backend";
    PUT "/backends/{backend}" C(ChangeOperation::Item(Item::Backend, Verb::Replace)), ITEM, Body::Item, "Add or replace a backend";
    PATCH "/backends/{backend}" C(ChangeOperation::Item(Item::Backend, Verb::Change)), ITEM, Body::Item, "Change some keys of a backend; null takes a key away";
    DELETE "/backends/{backend}" C(ChangeOperation::Item(Item::Backend, Verb::Remove)), ITEM, Body::None, "Remove a backend";
    POST "/backends/{backend}/servers" C(ChangeOperation::Server(Verb::Add)), ITEM, SERVER, "Add a server";
    PATCH "/backends/{backend}/servers/{server}" C(ChangeOperation::Server(Verb::Change)), ITEM, SERVER_CHANGE, "Drain, disable or enable a server, or change its weight";
    DELETE "/backends/{backend}/servers/{server}" C(ChangeOperation::Server(Verb::Remove)), ITEM, Body::None, "Remove a server";
    GET "/certificates" R(ReadOperation::Certificates), &[], Body::None, "The certificates in use, and the items of the configuration that they come from";
    POST "/certificates" C(ChangeOperation::Item(Item::Certificate, Verb::Add)), ITEM, Body::Item, "Add a certificate";
    GET "/certificates/{certificate}" R(ReadOperation::Certificate), &[], Body::None, "One item; its name is its file, its directory, or its names joined by commas";
    PUT "/certificates/{certificate}" C(ChangeOperation::Item(Item::Certificate, Verb::Replace)), ITEM, Body::Item, "Replace a certificate";
    PATCH "/certificates/{certificate}" C(ChangeOperation::Item(Item::Certificate, Verb::Change)), ITEM, Body::Item, "Change some keys of a certificate; null takes a key away";
    DELETE "/certificates/{certificate}" C(ChangeOperation::Item(Item::Certificate, Verb::Remove)), ITEM, Body::None, "Remove a certificate";
    POST "/certificates/{certificate}/renew" A(AskOperation::Renew), &[], Body::None, "Order a certificate of an authority now, by its item or one of its names; after 20 s the order goes on by itself, and the answer is a 202";
    GET "/workers" R(ReadOperation::Workers), &[], Body::None, "The workers";
    GET "/connections" R(ReadOperation::Connections), PAGES, Body::None, "The connections that are open, in pages";
    DELETE "/connections" C(ChangeOperation::CloseConnections), FILTER, Body::None, "Close all connections that the filter means; at least one filter is needed";
    GET "/connections/{connection}" R(ReadOperation::Connection), &[], Body::None, "One connection, by its id";
    DELETE "/connections/{connection}" C(ChangeOperation::CloseConnection), &[], Body::None, "Close one connection";
    GET "/counters" R(ReadOperation::Counters), &[], Body::None, "Every figure of the metrics";
    GET "/figures" A(AskOperation::Figures), figures::PARAMETERS, Body::None, "Figures of now, as a stream of events: rates, causes, and the heaviest hosts, routes, backends and clients";
    GET "/logs/top" A(AskOperation::Logs(LogList::Top)), &logs::TOP, Body::None, "The heaviest pages, clients and so on in the log store; slow pages; errors";
    GET "/logs/traffic" A(AskOperation::Logs(LogList::Traffic)), &logs::TRAFFIC, Body::None, "Requests and bytes over time";
    GET "/logs/visitors" A(AskOperation::Logs(LogList::Visitors)), &logs::VISITORS, Body::None, "Different clients over time";
    GET "/logs/compare" A(AskOperation::Logs(LogList::Compare)), &logs::COMPARE, Body::None, "A period of time, compared with the one before; by default the last seven days";
    GET "/logs/search" A(AskOperation::Logs(LogList::Search)), &logs::SEARCH, Body::None, "Requests with a text in path, query, referrer or agent, the newest first";
    GET "/logs/requests" A(AskOperation::Logs(LogList::Requests)), &logs::REQUESTS, Body::None, "Requests, the newest first";
    GET "/logs/tail" A(AskOperation::Tail), &logs::TAIL, Body::None, "Requests as they end, as a stream of events, after the ten latest";
    GET "/why" A(AskOperation::Why), why::ASKED, Body::None, "The way of a URL, servers that do not answer, the end of a stored request, or a cause: one sentence, evidence with sources, and what to do";
    POST "/why" A(AskOperation::Why), why::ASKED, Body::Hello, "The question `handshake` with a ClientHello that is too long for a query: its bytes, or their digits in hexadecimal or base64; nothing changes";
    GET "/requests/{request}" A(AskOperation::Request), &[], Body::None, "One request of the log store, by its id, and its steps in time";
    GET "/notify" R(ReadOperation::Receivers), &[], Body::None, "The receivers of notifications, and the fates of their messages";
    POST "/notify/{receiver}/test" A(AskOperation::TryReceiver), &[], Body::None, "Send a message to a receiver of notifications now, and tell what it answers; a 502 if it does not take it";
    GET "/changes" R(ReadOperation::Changes), &[], Body::None, "The latest changes of the configuration";
    GET "/refused" R(ReadOperation::Refused), &[], Body::None, "The latest changes that were refused";
    GET "/events" R(ReadOperation::Events), &[Parameter { name: "kind", kind: ParameterKind::Text, doc: "The kinds that are wanted, joined by commas: change, refused, closed, server, certificate, upgrade, stop, confirm, limit, late" }], Body::None, "What happens from now on, as a stream of events";
    PUT "/log-level" C(ChangeOperation::LogLevel), ITEM, LEVEL, "Change the level of the log";
    POST "/reload" C(ChangeOperation::Reload), &[DRY_RUN, FORCE], Body::None, "Read the configuration file and the certificates again";
    POST "/confirm" C(ChangeOperation::Confirm), &[NO_PERSIST], Body::None, "Confirm the latest change";
    POST "/persist" C(ChangeOperation::Persist), &[DRY_RUN], Body::None, "Write the configuration in force to its file, with all changes that it does not have";
    POST "/rollback" C(ChangeOperation::Rollback), &[DRY_RUN, CONFIRM, Parameter { name: "to", kind: ParameterKind::Number, doc: "The version to go back to; by default that before the latest change" }], Body::None, "Go back to an earlier configuration";
    POST "/upgrade" C(ChangeOperation::Upgrade), &[LOSE], Body::None, "Have the program on disk take over, with the configuration on disk: no connection is lost";
    POST "/stop" C(ChangeOperation::Stop), &[NOW], Body::None, "Stop: open connections may finish within drain_timeout; while it stops already, nothing changes";
};

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &Method, path: &str) -> Option<(&'static str, Vec<String>)> {
        match find(method, path) {
            RoutedPath::Operation(operation, names) => Some((operation.path, names)),
            _ => None,
        }
    }

    #[test]
    fn paths_are_matched_by_segments() {
        assert_eq!(found(&Method::GET, "/status"), Some(("/status", vec![])));
        assert_eq!(found(&Method::HEAD, "/status"), Some(("/status", vec![])));
        let route = found(&Method::DELETE, "/routes/example.org%2Fapi");
        assert_eq!(route, Some(("/routes/{route}", vec!["example.org/api".to_owned()])));
        for path in ["", "/", "/statu", "/status/", "/routes/", "/routes/a/b", "/routes/%ff"] {
            assert!(matches!(find(&Method::GET, path), RoutedPath::Nothing), "{path}");
        }
        let RoutedPath::OtherMethod(allowed) = find(&Method::POST, "/config") else {
            panic!("POST is none of its")
        };
        assert_eq!(allowed, "GET, HEAD, PUT");
    }

    #[test]
    fn an_unknown_path_gets_the_nearest_suggested() {
        for (path, near) in [
            ("/statu", Some("/v1/status")),
            ("/backend", Some("/v1/backends")),
            ("/backend/shop", Some("/v1/backends/shop")),
            ("/backends/shop/server/127.0.0.1%3A3000", Some("/v1/backends/shop/servers/127.0.0.1%3A3000")),
            ("/status/", None),
            ("/something/else/that/is/long", None),
        ] {
            let detail = nothing_at(path).detail;
            let said = near.map(|near| format!("; the nearest one is `{near}`")).unwrap_or_default();
            assert_eq!(detail, format!("there is no path `/v1{path}`{said}"));
        }
    }

    /// The operations as a table, then their parameters.
    fn page() -> String {
        use std::fmt::Write as _;
        let mut out = String::from("| operation | what it does | parameters |\n| --- | --- | --- |\n");
        let mut parameters: Vec<&Parameter> = Vec::new();
        for Operation { method, path, summary, query, .. } in OPERATIONS {
            let names: Vec<String> = query.iter().map(|parameter| format!("`{}`", parameter.name)).collect();
            writeln!(out, "| `{method} /v1{path}` | {summary} | {} |", names.join(", ")).unwrap();
            parameters.extend(query.iter());
        }
        parameters.sort_by_key(|parameter| (parameter.name, parameter.doc));
        parameters.dedup_by_key(|parameter| (parameter.name, parameter.doc));
        out.push_str("\n| parameter | meaning |\n| --- | --- |\n");
        for Parameter { name, doc, .. } in parameters {
            writeln!(out, "| `{name}` | {doc} |").unwrap();
        }
        out
    }

    #[test]
    fn the_page_on_the_api_has_every_operation() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/api.md");
        let before = std::fs::read_to_string(path).unwrap();
        let (head, rest) = before.split_once("<!-- generated: operations -->\n").unwrap();
        let (_, tail) = rest.split_once("<!-- end -->").unwrap();
        let expected = format!("{head}<!-- generated: operations -->\n{}<!-- end -->{tail}", page());
        if std::env::var_os("OFFRAMP_BLESS").is_some_and(|bless| bless == "1") {
            std::fs::write(path, expected).unwrap();
        } else {
            assert!(
                before == expected,
                "docs/reference/api.md is out of date: run the tests with OFFRAMP_BLESS=1"
            );
        }
    }

    #[test]
    fn each_operation_is_there_once() {
        for (at, one) in OPERATIONS.iter().enumerate() {
            let same = |other: &&Operation| other.path == one.path && other.method == one.method;
            assert_eq!(OPERATIONS.iter().position(|other| same(&other)), Some(at), "{}", one.path);
            assert!(!one.summary.is_empty() && !one.summary.ends_with('.'), "{}", one.path);
        }
    }
}
