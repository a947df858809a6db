//! The admin interface of a running proxy, as `[admin]` has it.

use offramp_admin::{Admin, Mount, Settings, Store};
use offramp_config::Config;
use offramp_config::model::ListenAddress;
use offramp_control::History;
use offramp_net::Address;
use offramp_observe::Log;

use crate::failure::Failure;
use crate::logs::place::Place;

/// Starts the admin interface, if the configuration has one.
///
/// # Errors
/// Its address cannot be listened on.
pub(crate) fn of(config: &Config, history: History, log: &Log) -> Result<Option<Admin>, Failure> {
    let Some(endpoint) = &config.admin else { return Ok(None) };
    let store = Place::of(config).map(|place| Store { url: place.url, geoip: place.geoip });
    let settings = Settings { store, history: Some(history), mount: Mount::Grafana, log: log.clone() };
    let admin = start(&endpoint.address, settings)?;
    log.info("admin", &[("address", admin.address().into())]);
    Ok(Some(admin))
}

/// Starts an interface.
///
/// # Errors
/// Its address cannot be listened on.
pub(crate) fn start(address: &ListenAddress, settings: Settings) -> Result<Admin, Failure> {
    let address = match address {
        ListenAddress::Ip(address) => Address::Tcp(*address),
        ListenAddress::Unix(path) => Address::Unix(path.clone()),
    };
    Admin::start(&address, settings).map_err(|error| Failure::runtime(format_args!("error: {error}")))
}
