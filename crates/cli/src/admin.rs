//! The admin interface of a running proxy, as `[admin]` has it.

use std::os::fd::BorrowedFd;

use offramp_admin::{Admin, Mount, Settings, Store};
use offramp_config::Config;
use offramp_config::model::ListenAddress;
use offramp_control::{Carried, Server, Socket};
use offramp_net::Address;
use offramp_observe::Log;

use crate::failure::Failure;
use crate::logs::place::Place;

/// The admin interface as a server carries it.
struct Interface {
    admin: Admin,
    address: Address,
    foreign: bool,
}

impl Carried for Interface {
    fn address(&self) -> Address {
        self.address.clone()
    }

    fn is_foreign(&self) -> bool {
        self.foreign
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.admin.socket()
    }

    fn leave(self: Box<Self>) {
        self.admin.leave();
    }
}

/// Starts the admin interface, if the configuration has one, for `server` to carry.
///
/// # Errors
/// Its address cannot be listened on.
pub(crate) fn add(server: &mut Server, config: &Config, log: &Log) -> Result<(), Failure> {
    let Some(endpoint) = &config.admin else { return Ok(()) };
    let store = Place::of(config).map(|place| Store { url: place.url, geoip: place.geoip });
    let history = Some(server.history());
    let settings = Settings { store, history, mount: Mount::Grafana, log: log.clone() };
    let address = net_address(&endpoint.address);
    let inherited = server.inherited_socket("admin", &address);
    let foreign = inherited.as_ref().is_some_and(|socket| socket.foreign);
    let admin = match inherited {
        Some(Socket { fd, .. }) => Admin::start_on(fd, foreign, &address, settings)
            .map_err(|error| Failure::runtime(format_args!("error: {error}")))?,
        None => start(&endpoint.address, settings)?,
    };
    log.info("admin", &[("address", admin.address().into())]);
    server.carry(Box::new(Interface { admin, address, foreign }));
    Ok(())
}

/// Starts an interface.
///
/// # Errors
/// Its address cannot be listened on.
pub(crate) fn start(address: &ListenAddress, settings: Settings) -> Result<Admin, Failure> {
    Admin::start(&net_address(address), settings)
        .map_err(|error| Failure::runtime(format_args!("error: {error}")))
}

fn net_address(address: &ListenAddress) -> Address {
    match address {
        ListenAddress::Ip(address) => Address::Tcp(*address),
        ListenAddress::Unix(path) => Address::Unix(path.clone()),
    }
}
