//! The admin interface of a running proxy, as `[admin]` has it.

use std::fs::{self, DirBuilder};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::thread::JoinHandle;

use offramp_admin::{Admin, Control, Identity, Mount, Settings, Store};
use offramp_config::Config;
use offramp_config::model::ListenAddress;
use offramp_control::{Carried, Origin, Server, Socket};
use offramp_net::{Address, listen};
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

    fn leave(self: Box<Self>) -> Option<JoinHandle<()>> {
        self.admin.leave()
    }

    fn close(self: Box<Self>) -> Option<JoinHandle<()>> {
        self.admin.close()
    }
}

/// A token that is shorter could be guessed.
const SHORTEST_TOKEN: usize = 16;

/// What the admin interface of a configuration needs while the process has the rights that it was started with.
pub(crate) struct Prepared {
    address: Where,
    token: Option<Arc<str>>,
    identity: Option<Arc<Identity>>,
}

/// Where it listens.
enum Where {
    /// Nowhere.
    Nowhere,
    /// Where the configuration says: what stands in the way is an error.
    Written(ListenAddress),
    /// Where it does by default: what stands in the way is a warning.
    Default(ListenAddress),
}

/// Reads the token and the certificate, and makes the directory of the socket.
///
/// # Errors
/// A file cannot be used.
pub(crate) fn prepare(config: &Config, origin: &Origin, log: &Log) -> Result<Prepared, Failure> {
    let admin = &config.admin;
    let address = match (&admin.endpoint, origin) {
        _ if !admin.enabled => Where::Nowhere,
        (Some(endpoint), _) => Where::Written(endpoint.address.clone()),
        (None, Origin::CommandLine) => Where::Nowhere,
        (None, Origin::File(_)) => {
            // Where it cannot be made, there is a warning later: that the socket cannot be.
            let _ = config.state_dir.parent().map(fs::create_dir_all);
            let _ = DirBuilder::new().mode(0o700).create(&config.state_dir);
            Where::Default(ListenAddress::Unix(config.admin_socket()))
        }
    };
    let token = match &admin.token_file {
        Some(file) if admin.enabled => {
            let wrong = |why: &dyn std::fmt::Display| {
                Failure::usage(format_args!("error: [admin] token_file: {why}"))
            };
            let token = offramp_certs::read_secret(&file.path).map_err(|error| wrong(&error))?;
            if token.len() < SHORTEST_TOKEN || token.contains(char::is_whitespace) {
                let path = file.path.display();
                let why = format!("{path} must have one word of at least {SHORTEST_TOKEN} characters");
                return Err(wrong(&why));
            }
            Some(Arc::from(token.as_str()))
        }
        _ => None,
    };
    let identity = match &admin.certificate {
        Some(cert) if admin.enabled => {
            let key = admin.key.as_ref().map(|key| key.path.clone());
            let identity = Identity::load(cert.path.clone(), key, log.clone())
                .map_err(|error| Failure::usage(format_args!("error: [admin] certificate: {error}")))?;
            Some(Arc::new(identity))
        }
        _ => None,
    };
    Ok(Prepared { address, token, identity })
}

/// Starts the admin interface, if there is to be one, for `server` to carry.
///
/// # Errors
/// The address that the configuration names cannot be listened on.
pub(crate) fn add(
    server: &mut Server,
    prepared: Prepared,
    config: &Config,
    log: &Log,
) -> Result<(), Failure> {
    let Prepared { address, token, identity } = prepared;
    let (address, written) = match &address {
        Where::Nowhere => return Ok(()),
        Where::Written(address) => (net(address), true),
        Where::Default(address) => (net(address), false),
    };
    let store = Place::of(config).map(|place| Store { url: place.url, geoip: place.geoip });
    let control = Some(Control::new(server.handle(), server.view()));
    let settings = Settings { store, control, token, identity, mount: Mount::Grafana, log: log.clone() };
    let inherited = server.inherited_socket("admin", &address);
    let foreign = inherited.as_ref().is_some_and(|socket| socket.foreign);
    let started = match inherited {
        Some(Socket { fd, .. }) if foreign || is_reachable(&address) => {
            Admin::start_on(fd, foreign, &address, settings)
        }
        Some(Socket { fd, .. }) => anew(fd, &address, settings, log),
        None => Admin::start(&address, settings),
    };
    let admin = match started {
        Ok(admin) => admin,
        Err(error) if written => return Err(Failure::runtime(format_args!("error: {error}"))),
        Err(error) => {
            let advice = "`offramp ctl` cannot reach this process; see `address` in [admin]";
            log.warn(advice, &[("reason", (&error).into())]);
            return Ok(());
        }
    };
    log.info("admin", &[("address", admin.address().into())]);
    server.carry(Box::new(Interface { admin, address, foreign }));
    Ok(())
}

/// Whether clients come to a socket of this address: somebody may have removed its file, or its directory.
fn is_reachable(address: &Address) -> bool {
    match address {
        Address::Tcp(_) => true,
        // One that may not be asked is taken for one that others may ask.
        Address::Unix(path) => listen::is_bound(path).unwrap_or(true),
    }
}

/// Starts the interface at an address whose socket came from the process before and has no file any more: on a new
/// socket, else on that one, which nobody finds.
fn anew(
    fd: OwnedFd,
    address: &Address,
    settings: Settings,
    log: &Log,
) -> Result<Admin, offramp_admin::Error> {
    match Admin::start(address, settings.clone()) {
        Ok(admin) => {
            log.info(
                "the file of the admin socket was gone; it is made again",
                &[("address", address.into())],
            );
            Ok(admin)
        }
        Err(error) => {
            let advice = "the file of the admin socket is gone: `offramp ctl` cannot reach this process until it can be \
                          made again at an upgrade or a start";
            log.warn(advice, &[("reason", (&error).into())]);
            Admin::start_on(fd, false, address, settings)
        }
    }
}

/// Starts an interface.
///
/// # Errors
/// Its address cannot be listened on.
pub(crate) fn start(address: &ListenAddress, settings: Settings) -> Result<Admin, Failure> {
    Admin::start(&net(address), settings).map_err(|error| Failure::runtime(format_args!("error: {error}")))
}

fn net(address: &ListenAddress) -> Address {
    match address {
        ListenAddress::Ip(address) => Address::Tcp(*address),
        ListenAddress::Unix(path) => Address::Unix(path.clone()),
    }
}
