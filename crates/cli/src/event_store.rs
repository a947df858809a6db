//! The log store of a running proxy: `analytics` plugged into what `control` feeds events to.

use offramp_analytics::{Background, BackgroundSettings};
use offramp_config::model::StoreUrl;
use offramp_config::{At, Config};
use offramp_control::{Error, EventStore, Finding, OpenStore};
use offramp_observe::{Log, Tap};
use rustix::fs::{Access, access};

use crate::logs::place::Place;

/// In the state directory: events that the store does not take for now.
const SPOOL: &str = "log-store.spool";

/// Opens the store that a configuration has.
pub(crate) fn opener() -> OpenStore {
    Box::new(open)
}

struct Open(Background);

impl EventStore for Open {
    fn tap(&self, anonymize: bool) -> Box<dyn Tap> {
        Box::new(self.0.tap(anonymize))
    }

    fn stop(self: Box<Self>) -> u64 {
        self.0.stop().dropped
    }
}

fn open(config: &Config, log: &Log) -> Result<Option<Box<dyn EventStore>>, Error> {
    let (Some(url), Some(place)) = (&config.log_store.url, Place::of(config)) else { return Ok(None) };
    let refused =
        |text: String| Error::from(vec![Finding { at: At::NOWHERE, text: format!("[log_store] {text}") }]);
    if let StoreUrl::Sqlite(file) = url
        && let Some(folder) = file.path.parent()
        && let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK)
    {
        // It would never come right by itself, as it does where the store is locked, full or away.
        return Err(refused(format!(
            "cannot be used: the user that Offramp runs as cannot make files in {}: {error}",
            folder.display()
        )));
    }
    let teller = log.clone();
    let settings = BackgroundSettings {
        url: place.url,
        options: place.options,
        spool: config.state_dir.join(SPOOL),
        spool_limit: config.log_store.spool.bytes(),
        notify: Box::new(move |notice| {
            let fields = [("state", notice.into())];
            if notice.is_problem() {
                teller.warn("log store", &fields);
            } else {
                teller.info("log store", &fields);
            }
        }),
    };
    log.info("log store", &[("where", (&shown(url)).into())]);
    let background =
        Background::start(settings).map_err(|error| refused(format!("cannot be used: {error}")))?;
    Ok(Some(Box::new(Open(background))))
}

/// Where the store is, without who is to be there by which password.
fn shown(url: &StoreUrl) -> String {
    match url {
        StoreUrl::Sqlite(file) => file.path.display().to_string(),
        StoreUrl::Postgres(url) => {
            let place = url.split_once('?').map_or(url.as_str(), |(place, _)| place);
            let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
            format!("PostgreSQL at {}", place.split_once("://").map_or(place, |(_, place)| place))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for url in
            ["postgres://log:secret@db.test/access", "postgres://db.test/access?user=log&password=secret"]
        {
            assert_eq!(shown(&StoreUrl::Postgres(url.to_owned())), "PostgreSQL at db.test/access");
        }
    }
}
