//! The admin interface of a running proxy, configured by `[admin]`.

use std::fs::{self, DirBuilder};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::thread::JoinHandle;

use offramp_admin::{AdminCertificate, AdminServer, Control, Mount, PageUsers, Settings, Store};
use offramp_config::Config;
use offramp_config::model::ListenAddress;
use offramp_control::{Carried, Server, Socket};
use offramp_net::{Address, listen};
use offramp_observe::Log;
use offramp_process::Origin;

use crate::failure::Failure;
use crate::log_store::StoreTarget;

/// Adapter through which a [`Server`] owns the admin interface, also across upgrades.
struct Interface {
    admin: AdminServer,
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

/// Minimum length of a token in characters; shorter ones could be guessed.
const MIN_TOKEN: usize = 16;

/// Settings of the admin interface, read while the process still has the privileges that it was started with.
pub(crate) struct PreparedAdmin {
    address: ListenChoice,
    token: Option<Arc<str>>,
    users: Option<Arc<PageUsers>>,
    identity: Option<Arc<AdminCertificate>>,
}

/// Listen address of the interface, by origin.
enum ListenChoice {
    /// The interface is disabled.
    Nowhere,
    /// Address from the configuration; failure to listen there is an error.
    Written(ListenAddress),
    /// Default socket; failure to listen there is a warning.
    Default(ListenAddress),
}

/// Reads the token, the users and the certificate, and creates the directory of the socket.
///
/// # Errors
/// The token, the users or the certificate cannot be read, or the token is too weak.
pub(crate) fn prepare(config: &Config, origin: &Origin, log: &Log) -> Result<PreparedAdmin, Failure> {
    let admin = &config.admin;
    let address = match (&admin.endpoint, origin) {
        _ if !admin.enabled => ListenChoice::Nowhere,
        (Some(endpoint), _) => ListenChoice::Written(endpoint.address.clone()),
        (None, Origin::CommandLine) => ListenChoice::Nowhere,
        (None, Origin::File(_)) => {
            // Failure is reported later, when the socket cannot be created.
            let _ = config.process.state_dir.parent().map(fs::create_dir_all);
            let _ = DirBuilder::new().mode(0o700).create(&config.process.state_dir);
            ListenChoice::Default(ListenAddress::Unix(config.admin_socket()))
        }
    };
    let token = match &admin.token_file {
        Some(file) if admin.enabled => {
            let invalid = |why: &dyn std::fmt::Display| {
                Failure::usage(format_args!("error: [admin] token_file: {why}"))
            };
            let token = offramp_certs::read_secret(&file.path).map_err(|error| invalid(&error))?;
            if token.len() < MIN_TOKEN || token.contains(char::is_whitespace) {
                let path = file.path.display();
                let why = format!("{path} must have one word of at least {MIN_TOKEN} characters");
                return Err(invalid(&why));
            }
            Some(Arc::from(token.as_str()))
        }
        _ => None,
    };
    let identity = match &admin.certificate {
        Some(cert) if admin.enabled => {
            let key = admin.key.as_ref().map(|key| key.path.clone());
            let identity = AdminCertificate::load(cert.path.clone(), key, log.clone())
                .map_err(|error| Failure::usage(format_args!("error: [admin] certificate: {error}")))?;
            Some(Arc::new(identity))
        }
        _ => None,
    };
    let users = match &admin.users {
        Some(file) if admin.enabled => {
            let users = PageUsers::load(file.path.clone(), log.clone()).map_err(|mistakes| {
                let mistakes = mistakes.iter().map(|mistake| format!("error: [admin] users: {mistake}"));
                Failure::usage(mistakes.collect::<Vec<_>>().join("\n"))
            })?;
            Some(Arc::new(users))
        }
        _ => None,
    };
    Ok(PreparedAdmin { address, token, users, identity })
}

/// Starts the admin interface if it is enabled, and hands it to `server`.
///
/// # Errors
/// The address that the configuration names cannot be listened on.
pub(crate) fn add(
    server: &mut Server,
    prepared: PreparedAdmin,
    config: &Config,
    log: &Log,
) -> Result<(), Failure> {
    let PreparedAdmin { address, token, users, identity } = prepared;
    let (address, written) = match &address {
        ListenChoice::Nowhere => return Ok(()),
        ListenChoice::Written(address) => (net(address), true),
        ListenChoice::Default(address) => (net(address), false),
    };
    let store = StoreTarget::of(config).map(|place| Store { url: place.url, geoip: place.geoip });
    let control = Some(Control::new(server.handle(), server.view()));
    let hosts = config.admin.hosts.as_slice().into();
    let (mount, log_of_admin) = (Mount::Grafana, log.clone());
    let settings = Settings { store, control, token, users, hosts, identity, mount, log: log_of_admin };
    let inherited = server.inherited_socket("admin", &address);
    let foreign = inherited.as_ref().is_some_and(|socket| socket.foreign);
    let started = match inherited {
        Some(Socket { fd, .. }) if foreign || is_reachable(&address) => {
            AdminServer::start_on(fd, foreign, &address, settings)
        }
        Some(Socket { fd, .. }) => rebind(fd, &address, settings, log),
        None => AdminServer::start(&address, settings),
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

/// Returns true if clients can reach an inherited socket: the file of a Unix socket, or its directory, may
/// have been removed.
fn is_reachable(address: &Address) -> bool {
    match address {
        Address::Tcp(_) => true,
        // A path that cannot be inspected is assumed to be reachable.
        Address::Unix(path) => listen::is_bound(path).unwrap_or(true),
    }
}

/// Starts the interface when the file of an inherited socket is gone: on a new socket, else on the inherited
/// one, which stays unreachable.
fn rebind(
    fd: OwnedFd,
    address: &Address,
    settings: Settings,
    log: &Log,
) -> Result<AdminServer, offramp_admin::Error> {
    match AdminServer::start(address, settings.clone()) {
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
            AdminServer::start_on(fd, false, address, settings)
        }
    }
}

/// Starts an interface without a proxy, for `logs serve`.
///
/// # Errors
/// Its address cannot be listened on.
pub(crate) fn start(address: &ListenAddress, settings: Settings) -> Result<AdminServer, Failure> {
    AdminServer::start(&net(address), settings)
        .map_err(|error| Failure::runtime(format_args!("error: {error}")))
}

fn net(address: &ListenAddress) -> Address {
    match address {
        ListenAddress::Ip(address) => Address::Tcp(*address),
        ListenAddress::Unix(path) => Address::Unix(path.clone()),
    }
}
