//! The OpenAPI 3.1 document, derived from the table of operations so that both have the same paths.

use serde_json::{Map, Value, json};

use super::ask::AskOperation;
use super::operations::{Body, Member, OPERATIONS, Operation, OperationCall, Takes};
use super::query::{Parameter, ParameterKind};
use super::read::ReadOperation;

/// The document for this version of the program.
pub(super) fn document(version: &str) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let path = format!("/v1{}", operation.path);
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[operation.method.as_str().to_ascii_lowercase()] = describe(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Offramp admin API",
            "version": version,
            "description": "Reads and changes a running Offramp. It listens on a Unix socket for root and for the user \
                            that Offramp runs as; on a TCP address it asks for a bearer token.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://localhost", "description": "the Unix socket, or a TCP address, which may have TLS" }],
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": {
                "Problem": problem(), "Report": report(), "Connection": connection(), "Backend": backend(),
            },
        },
    })
}

/// The description of one operation.
fn describe(operation: &Operation) -> Value {
    let refused =
        json!({ "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } });
    let (status, content) = success(operation);
    let mut described = json!({
        "operationId": id(operation),
        "summary": operation.summary,
        "parameters": parameters(operation),
        "responses": {
            status: { "description": "Done", "content": content },
            "default": { "description": "Refused", "content": refused },
        },
    });
    if operation.may_expect() {
        let about = "It conflicts with what is in force: with `If-Match`, `version` is in force and `difference` is what has \
                     changed since the expected one; other conflicts have neither";
        described["responses"]["409"] = json!({ "description": about, "content": refused });
    }
    if let Some(body) = body(operation.body) {
        described["requestBody"] = body;
    }
    described
}

/// The parameters of an operation: those of its path, of its query, and fields of the header.
fn parameters(operation: &Operation) -> Vec<Value> {
    let mut parameters: Vec<Value> = operation
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }))
        .collect();
    parameters.extend(operation.query.iter().map(query));
    if operation.may_expect() {
        parameters.push(json!({
            "name": "If-Match", "in": "header",
            "schema": { "type": "string", "pattern": "^([*]|\"[0-9a-f]+-[0-9]+\")$" },
            "description": "The ETag of the configuration that the change is meant for; if another is in force, the answer is a 409",
        }));
    }
    if matches!(operation.call, OperationCall::Read(ReadOperation::Events)) {
        parameters.push(json!({
            "name": "Last-Event-ID", "in": "header", "schema": { "type": "string" },
            "description": "The id of the last event that the client had: the stream goes on after it",
        }));
    }
    parameters
}

/// The status of success, and its content by media type.
fn success(operation: &Operation) -> (&'static str, Value) {
    let changes = matches!(operation.call, OperationCall::Change(_));
    let success =
        if changes { json!({ "$ref": "#/components/schemas/Report" }) } else { json!({ "type": "object" }) };
    let (status, success) = match operation.path {
        "/stop" => ("202", stopping()),
        "/upgrade" => ("200", upgraded()),
        "/connections" if changes => ("200", closed()),
        "/connections/{connection}" if changes => ("200", closed()),
        "/backends" if !changes => ("200", backends()),
        "/backends/{backend}" if !changes => ("200", json!({ "$ref": "#/components/schemas/Backend" })),
        "/connections" => ("200", page()),
        "/connections/{connection}" => ("200", json!({ "$ref": "#/components/schemas/Connection" })),
        _ => ("200", success),
    };
    let mut content = json!({ "application/json": { "schema": success } });
    if operation.query.iter().any(|parameter| parameter.kind == ParameterKind::Format) {
        content["application/toml"] = json!({ "schema": { "type": "string" } });
    }
    if is_stream(operation) {
        content = json!({ "text/event-stream": { "schema": { "type": "string" } } });
    }
    (status, content)
}

fn is_stream(operation: &Operation) -> bool {
    matches!(
        operation.call,
        OperationCall::Read(ReadOperation::Events) | OperationCall::Ask(AskOperation::Tail)
    )
}

/// The operation id: the method and the words of the path.
fn id(operation: &Operation) -> String {
    let mut id = operation.method.as_str().to_ascii_lowercase();
    for word in operation.path.split(['/', '{', '}', '-', '.']).filter(|word| !word.is_empty()) {
        id.push('_');
        id.push_str(word);
    }
    id
}

fn query(parameter: &Parameter) -> Value {
    let schema = match parameter.kind {
        ParameterKind::Flag => json!({ "type": "boolean" }),
        ParameterKind::Time => {
            json!({ "type": "string", "pattern": "^([1-9][0-9]{0,3}s|[1-9][0-9]{0,2}m|([1-9]|1[0-9]|2[0-4])h)$" })
        }
        ParameterKind::Number => json!({ "type": "integer", "minimum": 0 }),
        ParameterKind::Text => json!({ "type": "string", "minLength": 1 }),
        ParameterKind::Words(words) => json!({ "type": "string", "enum": words }),
        ParameterKind::When => json!({ "type": "string", "pattern": WHEN }),
        ParameterKind::Step => {
            json!({ "type": "string", "pattern": "^([1-9][0-9]{0,3}[smhdw]|hour|day|week|month)$" })
        }
        ParameterKind::Format => json!({ "type": "string", "enum": ["json", "toml"] }),
        ParameterKind::UpTo(most) => json!({ "type": "integer", "minimum": 1, "maximum": most }),
        ParameterKind::Age => json!({ "type": "string", "pattern": "^[0-9]{1,6}[smhd]$" }),
        ParameterKind::Size => json!({ "type": "string", "pattern": "^[0-9]{1,9}(B|KiB|MiB|GiB)$" }),
        ParameterKind::Network => json!({ "type": "string", "pattern": "^[0-9a-fA-F:.]+(/[0-9]{1,3})?$" }),
        ParameterKind::Cursor => json!({ "type": "string", "pattern": "^[0-9]{1,4}-[0-9]{1,9}$" }),
    };
    json!({ "name": parameter.name, "in": "query", "description": parameter.doc, "schema": schema })
}

/// A part of the points in time that are understood.
const WHEN: &str = "^([0-9]{1,4}[smhdw]|today|yesterday|20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])(T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z)?)$";

fn body(kind: Body) -> Option<Value> {
    let content = match kind {
        Body::None => return None,
        // Anything may be checked: that it is no text of TOML is an answer, not a refusal.
        Body::Draft => json!({ "application/toml": { "schema": {} } }),
        Body::Toml => json!({ "application/toml": { "schema": { "type": "string" } } }),
        Body::Hello => {
            let schema = json!({ "type": "string", "format": "binary" });
            json!({ "application/octet-stream": { "schema": schema } })
        }
        Body::Item => {
            let about = "The keys of the item, as docs/reference/keys.md has them";
            json!({ "application/json": { "schema": { "type": "object", "description": about } } })
        }
        Body::Json(members) => {
            let properties: Map<String, Value> =
                members.iter().map(|member| (member.name.to_owned(), self::member(member))).collect();
            let required: Vec<&str> =
                members.iter().filter(|member| member.required).map(|member| member.name).collect();
            json!({ "application/json": { "schema": {
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            } } })
        }
    };
    Some(json!({ "required": kind != Body::Draft, "content": content }))
}

fn member(member: &Member) -> Value {
    let mut schema = match member.takes {
        Takes::Text => json!({ "type": "string", "pattern": "^[^ ]+$" }),
        Takes::Flag => json!({ "type": "boolean" }),
        Takes::UpTo(most) => json!({ "type": "integer", "minimum": 1, "maximum": most }),
        Takes::Words(words) => json!({ "type": "string", "enum": words }),
    };
    schema["description"] = member.doc.into();
    schema
}

fn problem() -> Value {
    json!({
        "type": "object",
        "description": "RFC 9457; members beside these say more, such as `errors`, `nearest` or `difference`",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "version": { "type": "integer", "description": "The version in force, where the client expected another" },
            "difference": {
                "type": "array", "items": { "type": "string" },
                "description": "What has changed since the expected version; empty where that is not remembered",
            },
        },
    })
}

fn backends() -> Value {
    let all = json!({ "type": "array", "items": { "$ref": "#/components/schemas/Backend" } });
    json!({ "type": "object", "required": ["backends"], "properties": { "backends": all } })
}

/// The schema of a backend with the state of its servers.
fn backend() -> Value {
    let count = |description: &str| json!({ "type": "integer", "minimum": 0, "description": description });
    let check = json!({
        "type": ["object", "null"],
        "description": "The health checks since the state of the server changed; null where nothing checks it",
        "required": ["failed", "fall", "passed", "rise", "error"],
        "properties": {
            "failed": count("Checks in a row that failed, of a server that is up"),
            "fall": count("So many bring it down"),
            "passed": count("Checks in a row that succeeded, of a server that is down"),
            "rise": count("So many bring it up"),
            "error": { "type": ["string", "null"], "description": "Why the latest check failed; null if it succeeded" },
        },
    });
    let states = ["up", "down", "ejected", "draining", "disabled", "unresolved"];
    let server = json!({
        "type": "object",
        "required": ["name", "state", "why", "weight", "backup", "active", "addresses", "check"],
        "properties": {
            "name": { "type": "string", "description": "The address as configured" },
            "state": { "type": "string", "enum": states },
            "why": { "type": "string", "description": "The reason for the state, in one sentence" },
            "weight": count("Its share"),
            "backup": { "type": "boolean", "description": "Whether it is used only when no other works" },
            "active": count("Requests and relayed connections on it"),
            "addresses": { "type": "array", "items": { "type": "string" } },
            "check": check,
        },
    });
    json!({
        "type": "object",
        "required": ["name", "origin", "servers"],
        "properties": {
            "name": { "type": "string" },
            "origin": { "type": "string", "description": "Where it is written" },
            "servers": { "type": "array", "items": server },
            "config": { "type": ["object", "null"], "description": "Its keys, as docs/reference/keys.md has them" },
        },
    })
}

/// The schema of an upgrade's outcome.
fn upgraded() -> Value {
    json!({
        "type": "object",
        "required": ["process", "took_ms"],
        "properties": {
            "process": { "type": "integer", "description": "The process that has taken over" },
            "took_ms": { "type": "integer", "description": "Until it accepted connections" },
        },
    })
}

/// The schema of a stop's consequences.
fn stopping() -> Value {
    json!({
        "type": "object",
        "required": ["stopping", "already", "now", "open", "until"],
        "properties": {
            "stopping": { "type": "boolean" },
            "already": { "type": "boolean", "description": "Whether it was stopping before" },
            "now": { "type": "boolean", "description": "Whether open connections are closed at once" },
            "open": { "type": "integer", "minimum": 0, "description": "Open connections" },
            "until": { "type": ["string", "null"], "format": "date-time", "description": "When they are closed at the latest" },
        },
    })
}

/// The schema of the number of closed connections.
fn closed() -> Value {
    json!({
        "type": "object",
        "required": ["closed"],
        "properties": { "closed": { "type": "integer", "minimum": 0 } },
    })
}

/// The schema of a page of connections.
fn page() -> Value {
    json!({
        "type": "object",
        "required": ["connections", "next"],
        "properties": {
            "connections": { "type": "array", "items": { "$ref": "#/components/schemas/Connection" } },
            "next": { "type": ["string", "null"], "description": "The `after` of the next page; null on the last one" },
        },
    })
}

fn connection() -> Value {
    let text = json!({ "type": ["string", "null"] });
    let count = json!({ "type": "integer", "minimum": 0 });
    json!({
        "type": "object",
        "required": ["id", "worker", "listener", "client", "protocol", "accepted", "age_s", "bytes_from_client", "bytes_to_client"],
        "properties": {
            "id": { "type": "string", "format": "uuid", "description": "As in the event of the connection" },
            "worker": count,
            "listener": { "type": "string" },
            "client": { "type": "string", "description": "From a PROXY header where one is believed" },
            "peer": { "type": ["string", "null"], "description": "The peer of the socket, if a PROXY header named another client" },
            "name": { "type": ["string", "null"], "description": "The server name of the TLS handshake; without one, the host of the latest request where it is known" },
            "protocol": { "type": "string", "enum": ["opening", "tcp", "passthrough", "http/1.1", "h2"] },
            "tls": text,
            "route": { "type": ["string", "null"], "description": "Of an HTTP connection, that of the latest request; so are backend and server" },
            "backend": text,
            "server": text,
            "accepted": { "type": "string", "format": "date-time" },
            "age_s": count,
            "bytes_from_client": count,
            "bytes_to_client": count,
            "requests": { "type": "object", "properties": { "begun": count, "open": count } },
        },
    })
}

fn report() -> Value {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    json!({
        "type": "object",
        "required": ["version", "dry_run", "changes", "new_certificates", "needs_an_upgrade", "touched", "warnings"],
        "properties": {
            "version": { "type": "integer", "description": "The version in force afterwards" },
            "dry_run": { "type": "boolean" },
            "changes": texts,
            "new_certificates": { "type": "integer" },
            "needs_an_upgrade": texts,
            "touched": {
                "type": "object",
                "properties": { "opens": texts, "closes": texts, "connections": { "type": ["integer", "null"], "description": "Connections on what becomes another, or goes; null where a worker did not answer" }, "open": { "type": "integer" } },
            },
            "warnings": texts,
            "confirm_until": { "type": ["string", "null"], "format": "date-time" },
            "persisted": { "type": ["string", "null"] },
        },
    })
}
