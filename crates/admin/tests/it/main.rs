//! The data source for Grafana, asked over the wire as Grafana asks; and the dashboards that come with it.

mod answers;
mod changes;
mod client;
mod dashboards;
mod documented;
mod doors;
mod following;
mod menus;
mod store;
mod versions;
