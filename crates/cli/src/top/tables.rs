//! The tables: their columns as data, and how their rows are taken out of figures.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use super::{text, units};

/// A table, in the order of the keys that choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopTable {
    Hosts,
    Routes,
    Servers,
    Clients,
    Connections,
    Causes,
    Requests,
}

/// The kind of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopUnit {
    Text,
    /// The time of day in a timestamp of RFC 3339.
    Clock,
    Rate,
    Count,
    Bytes,
    BytesPerSecond,
    Milliseconds,
    Microseconds,
    Age,
}

/// A column of a table.
#[derive(Debug)]
pub(super) struct TopColumn {
    pub(super) title: &'static str,
    /// Member of a row.
    pub(super) key: &'static str,
    pub(super) unit: TopUnit,
    /// Width in columns of the screen; 0 for an equal part of what is left.
    pub(super) width: u16,
}

const fn column(title: &'static str, key: &'static str, unit: TopUnit, width: u16) -> TopColumn {
    TopColumn { title, key, unit, width }
}

/// The order of a table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TopOrder {
    /// Index of the column.
    pub(super) column: usize,
    pub(super) descending: bool,
}

impl TopTable {
    pub(super) const ALL: [Self; 7] = [
        Self::Hosts,
        Self::Routes,
        Self::Servers,
        Self::Clients,
        Self::Connections,
        Self::Causes,
        Self::Requests,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Routes => "routes",
            Self::Servers => "servers",
            Self::Clients => "clients",
            Self::Connections => "connections",
            Self::Causes => "causes",
            Self::Requests => "requests",
        }
    }

    pub(super) fn columns(self) -> &'static [TopColumn] {
        use TopUnit::{Age, Bytes, BytesPerSecond, Clock, Count, Microseconds, Milliseconds, Rate, Text};
        const HOSTS: &[TopColumn] = &[
            column("HOST", "name", Text, 0),
            column("REQ/S", "requests_per_second", Rate, 8),
            column("OUT/S", "bytes_out_per_second", BytesPerSecond, 10),
        ];
        const ROUTES: &[TopColumn] = &[
            column("ROUTE", "route", Text, 0),
            column("LISTENER", "listener", Text, 14),
            column("REQ/S", "requests_per_second", Rate, 8),
            column("ERR/S", "errors_per_second", Rate, 8),
            column("P95", "p95_ms", Milliseconds, 8),
        ];
        const SERVERS: &[TopColumn] = &[
            column("BACKEND", "backend", Text, 0),
            column("SERVER", "server", Text, 0),
            column("STATE", "state", Text, 10),
            column("REQ/S", "requests_per_second", Rate, 8),
            column("ACTIVE", "active", Count, 7),
        ];
        const CLIENTS: &[TopColumn] = &[
            column("CLIENT", "client", Text, 0),
            column("CONNS", "connections", Count, 8),
            column("REQ/S", "requests_per_second", Rate, 8),
            column("BYTES/S", "bytes_per_second", BytesPerSecond, 10),
        ];
        const CONNECTIONS: &[TopColumn] = &[
            column("CLIENT", "client", Text, 0),
            column("PROTO", "protocol", Text, 8),
            column("AGE", "age_s", Age, 5),
            column("IN", "bytes_from_client", Bytes, 9),
            column("OUT", "bytes_to_client", Bytes, 9),
            column("ROUTE", "route", Text, 0),
        ];
        const CAUSES: &[TopColumn] = &[
            column("CAUSE", "cause", Text, 0),
            column("SIDE", "side", Text, 8),
            column("PER S", "per_second", Rate, 8),
            column("TOTAL", "total", Count, 8),
        ];
        const REQUESTS: &[TopColumn] = &[
            column("TIME", "time", Clock, 8),
            column("CLIENT", "client", Text, 15),
            column("HOST", "host", Text, 0),
            column("METHOD", "method", Text, 6),
            column("PATH", "path", Text, 0),
            column("ST", "status", Count, 3),
            column("TOOK", "duration_us", Microseconds, 8),
        ];
        match self {
            Self::Hosts => HOSTS,
            Self::Routes => ROUTES,
            Self::Servers => SERVERS,
            Self::Clients => CLIENTS,
            Self::Connections => CONNECTIONS,
            Self::Causes => CAUSES,
            Self::Requests => REQUESTS,
        }
    }

    /// The order of a table at first.
    pub(super) fn order(self) -> TopOrder {
        let (key, descending) = match self {
            Self::Hosts | Self::Routes => ("requests_per_second", true),
            // The order of servers is that of their backends, so that they stay where they are.
            Self::Servers => ("backend", false),
            Self::Clients => ("bytes_per_second", true),
            Self::Connections => ("bytes_to_client", true),
            Self::Causes => ("per_second", true),
            Self::Requests => ("time", true),
        };
        let column = self.columns().iter().position(|column| column.key == key).unwrap_or(0);
        TopOrder { column, descending }
    }

    /// The text that stands for no rows.
    pub(super) fn nothing(self) -> &'static str {
        match self {
            Self::Hosts | Self::Routes => "no HTTP routes",
            Self::Servers => "no servers",
            Self::Clients => "no clients: they are counted where [metrics] is on",
            Self::Connections => "no open connections",
            Self::Causes => "no errors, and no limit was reached",
            Self::Requests => "no requests yet",
        }
    }

    /// Members whose values together tell a row from all others.
    fn identity(self) -> &'static [&'static str] {
        match self {
            Self::Hosts => &["name"],
            Self::Routes => &["route", "listener"],
            Self::Servers => &["backend", "server"],
            Self::Clients => &["client"],
            Self::Connections => &["id"],
            Self::Causes => &["cause", "side"],
            Self::Requests => &["request_id", "time", "client", "path"],
        }
    }

    /// Returns true if these are two states of one thing.
    pub(super) fn is_same(self, one: &Value, other: &Value) -> bool {
        self.identity().iter().all(|key| one[*key] == other[*key])
    }

    /// Returns true if a text of the row has the `filter`, which is in lower case.
    pub(super) fn matches(self, row: &Value, filter: &str) -> bool {
        let mut columns = self.columns().iter();
        columns.any(|column| match &row[column.key] {
            Value::String(text) => text.to_lowercase().contains(filter),
            Value::Number(number) if column.key == "status" => number.to_string().contains(filter),
            _ => false,
        })
    }

    pub(super) fn compare(self, one: &Value, other: &Value, order: TopOrder) -> Ordering {
        let Some(column) = self.columns().get(order.column) else { return Ordering::Equal };
        let (one, other) = (&one[column.key], &other[column.key]);
        let by_value = match (one.as_str(), other.as_str()) {
            (Some(one), Some(other)) => one.cmp(other),
            // What is not known is less than any number.
            _ => one.as_f64().unwrap_or(-1.0).total_cmp(&other.as_f64().unwrap_or(-1.0)),
        };
        if order.descending { by_value.reverse() } else { by_value }
    }

    /// Takes the rows of this table out of figures; `None` where they are not in figures.
    pub(super) fn take(self, figures: &mut Value) -> Option<Vec<Value>> {
        let mut list = |key: &str| match figures[key].take() {
            Value::Array(rows) => rows,
            _ => Vec::new(),
        };
        match self {
            Self::Hosts => Some(list("hosts")),
            Self::Routes => Some(list("routes")),
            Self::Clients => Some(list("clients")),
            Self::Servers => Some(list("backends").into_iter().flat_map(servers).collect()),
            Self::Causes => {
                let limits = list("limits").into_iter().map(|limit| {
                    json!({ "cause": limit["limit"], "side": "limit", "per_second": limit["refused_per_second"],
                            "total": limit["total"] })
                });
                let limits: Vec<Value> = limits.collect();
                Some(list("causes").into_iter().chain(limits).collect())
            }
            Self::Connections | Self::Requests => None,
        }
    }
}

/// The servers of a backend, each with the name of the backend.
fn servers(mut backend: Value) -> Vec<Value> {
    let Value::Array(servers) = backend["servers"].take() else { return Vec::new() };
    let with_backend = |server: Value| {
        let Value::Object(members) = server else { return Value::Null };
        let name = ("backend".to_owned(), backend["backend"].clone());
        Value::Object(Map::from_iter(members.into_iter().chain([name])))
    };
    servers.into_iter().map(with_backend).collect()
}

impl TopColumn {
    /// The value of a row as it is shown.
    pub(super) fn cell<'row>(&self, row: &'row Value) -> Cow<'row, str> {
        let value = &row[self.key];
        let number = |format: fn(f64) -> String| match value.as_f64() {
            Some(number) => Cow::Owned(format(number)),
            None => Cow::Borrowed("-"),
        };
        match self.unit {
            TopUnit::Text => match value.as_str() {
                Some(text) => text::clean(text),
                None => Cow::Borrowed("-"),
            },
            TopUnit::Clock => clock(value),
            TopUnit::Rate => number(units::rate),
            TopUnit::Count => number(units::count),
            TopUnit::Bytes | TopUnit::BytesPerSecond => number(units::bytes),
            TopUnit::Milliseconds => number(units::milliseconds),
            TopUnit::Microseconds => number(|value| units::milliseconds(value / 1_000.0)),
            TopUnit::Age => number(units::age),
        }
    }

    /// Returns true for columns of numbers, which end at the right.
    pub(super) fn is_number(&self) -> bool {
        !matches!(self.unit, TopUnit::Text | TopUnit::Clock)
    }
}

/// The time of day in a timestamp of RFC 3339.
pub(super) fn clock(time: &Value) -> Cow<'_, str> {
    text::clean(time.as_str().and_then(|time| time.get(11..19)).unwrap_or("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_out_of_figures() {
        let mut figures = json!({
            "hosts": [{ "name": "a.example", "requests_per_second": 2.5 }],
            "causes": [{ "cause": "connect_refused", "side": "server", "per_second": 0.5, "total": 7 }],
            "limits": [{ "limit": "too_many_connections", "refused_per_second": null, "total": 3 }],
            "backends": [
                { "backend": "apps", "servers": [{ "server": "10.0.0.1:80", "state": "up" }, { "server": "10.0.0.2:80" }] },
                { "backend": "none", "servers": [] },
            ],
        });
        let mut take = |table: TopTable| table.take(&mut figures);
        assert_eq!(take(TopTable::Hosts).unwrap()[0]["name"], "a.example");
        let servers = take(TopTable::Servers).unwrap();
        assert_eq!(servers.len(), 2);
        assert_eq!((&servers[1]["backend"], &servers[1]["server"]), (&"apps".into(), &"10.0.0.2:80".into()));
        let causes = take(TopTable::Causes).unwrap();
        assert_eq!(
            (&causes[1]["cause"], &causes[1]["side"]),
            (&"too_many_connections".into(), &"limit".into())
        );
        assert_eq!(take(TopTable::Routes).unwrap(), Vec::<Value>::new());
        assert!(take(TopTable::Connections).is_none() && take(TopTable::Requests).is_none());
    }

    #[test]
    fn what_is_not_known_is_last_in_a_descending_order() {
        let rows = [json!({ "p95_ms": null }), json!({ "p95_ms": 0.5 }), json!({ "p95_ms": 12 })];
        let order = TopOrder { column: 4, descending: true };
        let mut sorted: Vec<&Value> = rows.iter().collect();
        sorted.sort_by(|one, other| TopTable::Routes.compare(one, other, order));
        assert_eq!(sorted, [&rows[2], &rows[1], &rows[0]]);
    }

    #[test]
    fn every_table_is_ordered_by_one_of_its_columns_and_fits_80_columns() {
        for table in TopTable::ALL {
            let columns = table.columns();
            assert!(table.order().column < columns.len());
            let fixed: u16 = columns.iter().map(|column| column.width + 1).sum();
            let flexible = columns.iter().filter(|column| column.width == 0).count() as u16;
            assert!(fixed + 12 * flexible <= 80, "{}", table.name());
        }
    }

    #[test]
    fn cells_are_clean() {
        let row = json!({ "path": "/\u{1b}[31m", "time": "2026-11-28T10:11:12.345Z", "status": 200, "duration_us": 1_234 });
        let cells: Vec<Cow<'_, str>> =
            TopTable::Requests.columns().iter().map(|column| column.cell(&row)).collect();
        assert_eq!(cells, ["10:11:12", "-", "-", "-", "/\u{fffd}[31m", "200", "1.2 ms"]);
    }
}
