//! Every operation of the API: one table, from which the dispatch and the OpenAPI document follow.

use hyper::Method;
use percent_encoding::percent_decode_str;

use super::Problem;
use super::change::Change;
use super::connections::{FILTER, PAGES};
use super::query::{Kind, Parameter};
use super::read::Read;

/// One method of one path.
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// Below `/v1`; names in braces stand for any segment.
    pub(crate) path: &'static str,
    pub(crate) call: Call,
    /// What it does.
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [Parameter],
    pub(crate) body: Body,
}

impl Operation {
    /// Whether a request may name the version of the configuration that must be in force.
    pub(crate) fn may_expect(&self) -> bool {
        let is_tried = self.query.iter().any(|parameter| parameter.name == DRY_RUN.name);
        is_tried || matches!(self.call, Call::Change(Change::Confirm))
    }
}

/// What an operation leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Read(Read),
    Change(Change),
}

/// What a request has to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    None,
    /// A configuration in TOML.
    Toml,
    /// The keys of an item, as in the configuration.
    Item,
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

/// What a member takes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// A text without spaces.
    Text,
    Flag,
    /// A whole number from 1 to this.
    UpTo(u16),
    Words(&'static [&'static str]),
}

/// What a path and a method lead to.
pub(crate) enum Found {
    /// An operation, and what the path has in the places of its parameters.
    Operation(&'static Operation, Vec<String>),
    /// The path is known; these are its methods.
    OtherMethod(String),
    Nothing,
}

/// Finds an operation by what follows `/v1` in the path.
pub(crate) fn find(method: &Method, path: &str) -> Found {
    // What GET answers, HEAD answers without the body.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let mut allowed = Vec::new();
    for operation in OPERATIONS {
        let Some(names) = names(operation.path, path) else { continue };
        if operation.method == *method {
            return Found::Operation(operation, names);
        }
        allowed.push(operation.method.as_str());
        if operation.method == Method::GET {
            allowed.push("HEAD");
        }
    }
    if allowed.is_empty() { Found::Nothing } else { Found::OtherMethod(allowed.join(", ")) }
}

/// That there is no such path, and which one may be meant.
pub(crate) fn nothing_at(path: &str) -> Problem {
    let segments: Vec<&str> = path.split('/').collect();
    // A name may be anything: only the words around it can be wrong.
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
    Problem::unknown("path", &format!("/v1{path}"), known.iter().map(String::as_str))
}

/// The segments of `path` in the places of the names in braces, if it fits.
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

const DRY_RUN: Parameter =
    Parameter { name: "dry_run", kind: Kind::Flag, doc: "Change nothing, and tell what would change" };
const PERSIST: Parameter = Parameter {
    name: "persist",
    kind: Kind::Flag,
    doc: "Write the change to the configuration file too; comments and order stay",
};
const CONFIRM: Parameter = Parameter {
    name: "confirm",
    kind: Kind::Time,
    doc: "Take the change back after this time, unless it is confirmed",
};

const FORCE: Parameter = Parameter {
    name: "force",
    kind: Kind::Flag,
    doc: "Use a configuration without routes or listeners though the one in force has some",
};
const LOSE: Parameter = Parameter {
    name: "force",
    kind: Kind::Flag,
    doc: "Use the configuration on disk as it is: changes that were not written to it may be lost",
};
const NO_PERSIST: Parameter = Parameter {
    name: "no_persist",
    kind: Kind::Flag,
    doc: "Do not write the change to the configuration file, though that was asked for with it",
};

/// Of the end.
const NOW: Parameter = Parameter {
    name: "now",
    kind: Kind::Flag,
    doc: "Close open connections at once, also if it drains already",
};

/// Of a change of the whole configuration.
const WHOLE: &[Parameter] = &[
    DRY_RUN,
    CONFIRM,
    PERSIST,
    FORCE,
    Parameter { name: "name", kind: Kind::Text, doc: "What error messages call the document" },
    Parameter { name: "folder", kind: Kind::Text, doc: "The directory where relative paths start" },
];
/// Of a change of one item.
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

use Call::{Change as C, Read as R};

/// Every operation.
#[rustfmt::skip]
pub(crate) static OPERATIONS: &[Operation] = operations! {
    GET "/openapi.json" R(Read::OpenApi), &[], Body::None, "This description";
    GET "/status" R(Read::Status), &[], Body::None, "The process: version, connections, what is in force, what waits to be confirmed";
    GET "/config" R(Read::Config), &[Parameter { name: "format", kind: Kind::Format, doc: "JSON with the origin of each value, or TOML" }], Body::None, "The configuration in force, with every default";
    PUT "/config" C(Change::Document), WHOLE, Body::Toml, "Replace the whole configuration";
    GET "/listeners" R(Read::Listeners), &[], Body::None, "All listeners, and where they listen";
    POST "/listeners" C(Change::AddListener), ITEM, Body::Item, "Add a listener";
    GET "/listeners/{listener}" R(Read::Listener), &[], Body::None, "One listener";
    PUT "/listeners/{listener}" C(Change::PutListener), ITEM, Body::Item, "Replace a listener";
    PATCH "/listeners/{listener}" C(Change::PatchListener), ITEM, Body::Item, "Change some keys of a listener; null takes a key away";
    DELETE "/listeners/{listener}" C(Change::DeleteListener), ITEM, Body::None, "Remove a listener";
    GET "/routes" R(Read::Routes), &[], Body::None, "All routes";
    POST "/routes" C(Change::AddRoute), ITEM, Body::Item, "Add a route";
    GET "/routes/{route}" R(Read::Route), &[], Body::None, "One route; its name is what it matches, such as example.org/api";
    PUT "/routes/{route}" C(Change::PutRoute), ITEM, Body::Item, "Replace a route";
    PATCH "/routes/{route}" C(Change::PatchRoute), ITEM, Body::Item, "Change some keys of a route; null takes a key away";
    DELETE "/routes/{route}" C(Change::DeleteRoute), ITEM, Body::None, "Remove a route";
    GET "/backends" R(Read::Backends), &[], Body::None, "All backends, with the state of each server and its reason";
    POST "/backends" C(Change::AddBackend), ITEM, Body::Item, "Add a backend, whose name is the key `name`";
    GET "/backends/{backend}" R(Read::Backend), &[], Body::None, "One backend";
    PUT "/backends/{backend}" C(Change::PutBackend), ITEM, Body::Item, "Add or replace a backend";
    PATCH "/backends/{backend}" C(Change::PatchBackend), ITEM, Body::Item, "Change some keys of a backend; null takes a key away";
    DELETE "/backends/{backend}" C(Change::DeleteBackend), ITEM, Body::None, "Remove a backend";
    POST "/backends/{backend}/servers" C(Change::AddServer), ITEM, SERVER, "Add a server";
    PATCH "/backends/{backend}/servers/{server}" C(Change::PatchServer), ITEM, SERVER_CHANGE, "Drain, disable or enable a server, or change its weight";
    DELETE "/backends/{backend}/servers/{server}" C(Change::DeleteServer), ITEM, Body::None, "Remove a server";
    GET "/certificates" R(Read::Certificates), &[], Body::None, "The certificates in use, and the items of the configuration that they come from";
    POST "/certificates" C(Change::AddCertificate), ITEM, Body::Item, "Add a certificate";
    GET "/certificates/{certificate}" R(Read::Certificate), &[], Body::None, "One item; its name is its file, its directory, or its names joined by commas";
    PUT "/certificates/{certificate}" C(Change::PutCertificate), ITEM, Body::Item, "Replace a certificate";
    PATCH "/certificates/{certificate}" C(Change::PatchCertificate), ITEM, Body::Item, "Change some keys of a certificate; null takes a key away";
    DELETE "/certificates/{certificate}" C(Change::DeleteCertificate), ITEM, Body::None, "Remove a certificate";
    GET "/workers" R(Read::Workers), &[], Body::None, "The workers";
    GET "/connections" R(Read::Connections), PAGES, Body::None, "The connections that are open, in pages";
    DELETE "/connections" C(Change::CloseConnections), FILTER, Body::None, "Close all connections that the filter means; at least one filter is needed";
    GET "/connections/{connection}" R(Read::Connection), &[], Body::None, "One connection, by its id";
    DELETE "/connections/{connection}" C(Change::CloseConnection), &[], Body::None, "Close one connection";
    GET "/counters" R(Read::Counters), &[], Body::None, "Every figure of the metrics";
    GET "/changes" R(Read::Changes), &[], Body::None, "The latest changes of the configuration";
    GET "/refused" R(Read::Refused), &[], Body::None, "The latest changes that were refused";
    GET "/events" R(Read::Events), &[Parameter { name: "kind", kind: Kind::Text, doc: "The kinds that are wanted, joined by commas: change, refused, closed, server, certificate, upgrade, stop, confirm, limit, late" }], Body::None, "What happens from now on, as a stream of events";
    PUT "/log-level" C(Change::LogLevel), ITEM, LEVEL, "Change the level of the log";
    POST "/reload" C(Change::Reload), &[DRY_RUN, FORCE], Body::None, "Read the configuration file and the certificates again";
    POST "/confirm" C(Change::Confirm), &[NO_PERSIST], Body::None, "Confirm the latest change";
    POST "/rollback" C(Change::Rollback), &[DRY_RUN, Parameter { name: "to", kind: Kind::Number, doc: "The version to go back to; by default that before the latest change" }], Body::None, "Go back to an earlier configuration";
    POST "/upgrade" C(Change::Upgrade), &[LOSE], Body::None, "Have the program on disk take over, with the configuration on disk: no connection is lost";
    POST "/stop" C(Change::Stop), &[NOW], Body::None, "Stop: open connections may finish within drain_timeout; while it stops already, nothing changes";
};

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &Method, path: &str) -> Option<(&'static str, Vec<String>)> {
        match find(method, path) {
            Found::Operation(operation, names) => Some((operation.path, names)),
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
            assert!(matches!(find(&Method::GET, path), Found::Nothing), "{path}");
        }
        let Found::OtherMethod(allowed) = find(&Method::POST, "/config") else {
            panic!("POST is none of its")
        };
        assert_eq!(allowed, "GET, HEAD, PUT");
    }

    #[test]
    fn of_an_unknown_path_the_nearest_is_told() {
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

    #[test]
    fn each_operation_is_there_once() {
        for (at, one) in OPERATIONS.iter().enumerate() {
            let same = |other: &&Operation| other.path == one.path && other.method == one.method;
            assert_eq!(OPERATIONS.iter().position(|other| same(&other)), Some(at), "{}", one.path);
            assert!(!one.summary.is_empty() && !one.summary.ends_with('.'), "{}", one.path);
        }
    }
}
