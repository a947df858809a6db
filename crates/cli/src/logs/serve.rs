//! `offramp logs serve`: a Grafana data source for any store, without a proxy.

use std::io;
use std::sync::Arc;

use offramp_admin::{Mount, Settings, Store};
use offramp_observe::{Level, Log, LogFormat, Output};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::admin;
use crate::failure::Failure;
use crate::flags::logs::LogsServe;
use crate::log_store::StoreTarget;

pub(super) fn run(arguments: LogsServe) -> Result<(), Failure> {
    let place = StoreTarget::find(arguments.store)?;
    let store = Store { url: place.url, geoip: arguments.geoip.or(place.geoip) };
    if let Some(file) = &store.geoip {
        offramp_analytics::check_geoip(file).map_err(|error| Failure::of_store(&error))?;
    }
    let log = Log::open(Output::Stderr, LogFormat::Text, Level::Info)
        .map_err(|error| Failure::runtime(format_args!("error: the log: {error}")))?;
    let failed = |error: io::Error| Failure::runtime(format_args!("error: cannot wait: {error}"));
    let runtime = Builder::new_current_thread().enable_io().build().map_err(failed)?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let settings = Settings {
            store: Some(store),
            control: None,
            token: None,
            users: None,
            hosts: Arc::default(),
            identity: None,
            mount: Mount::Root,
            log: log.clone(),
        };
        let mut admin = admin::start(&arguments.address, settings)?;
        log.info("listening", &[("address", admin.address().into())]);
        tokio::select! {
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
            () = admin.ended() => Err(Failure::runtime("error: nothing is listening any more, see above")),
        }
    })
}
