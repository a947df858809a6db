//! The time that the store covers.

use crate::error::Error;
use crate::questions::Questions;
use crate::questions::plan::hour_of;
use crate::rollup::{GONE, HOUR_US, LATE, REMOVING};
use crate::store::{Engine, FactRange, SEQUENCE_BITS};
use crate::time::Zone;

/// The times of the first and last request kept, in microseconds since 1970.
pub(crate) fn of_facts(engine: &mut dyn Engine) -> Result<Option<(i64, i64)>, Error> {
    // Two steps into the index; one statement for both would be a scan.
    let first = engine.ints::<1>("SELECT id FROM fact ORDER BY id LIMIT 1")?;
    let last = engine.ints::<1>("SELECT id FROM fact ORDER BY id DESC LIMIT 1")?;
    Ok(match (first.first(), last.first()) {
        (Some([first]), Some([last])) => Some((first >> SEQUENCE_BITS, last >> SEQUENCE_BITS)),
        _ => None,
    })
}

/// Returns `true` if requests of a range of fact numbers were removed, so that only sums are left.
pub(crate) fn is_partly_removed(engine: &mut dyn Engine, range: FactRange) -> Result<bool, Error> {
    let FactRange { from, to } = range;
    let sql = format!(
        "SELECT hour FROM hours WHERE hour >= {} AND hour <= {} AND state IN ({GONE}, {LATE}, {REMOVING}) LIMIT 1",
        hour_of(from),
        hour_of(to.saturating_sub(1)).min(i64::from(i32::MAX))
    );
    Ok(!engine.ints::<1>(&sql)?.is_empty())
}

/// A remark on removed requests, for answers that need all requests.
pub(crate) fn removed(
    engine: &mut dyn Engine,
    range: FactRange,
    zone: &Zone,
) -> Result<Option<String>, Error> {
    if !is_partly_removed(engine, range)? {
        return Ok(None);
    }
    let kept = match of_facts(engine)? {
        Some((first, last)) => {
            format!("which are kept from {} to {}", zone.words(first), zone.words(last))
        }
        None => "of which none is kept any more".to_owned(),
    };
    Ok(Some(format!("counted from the requests themselves, {kept}; sums of earlier time cannot tell")))
}

impl Questions {
    /// The remark for an empty answer.
    pub(crate) fn nothing(&mut self, zone: &Zone) -> Result<String, Error> {
        Ok(match self.covered()? {
            Some((first, last)) => {
                format!(
                    "no request matches; the store knows of {} to {}",
                    zone.words(first),
                    zone.words(last)
                )
            }
            None => "the store has no requests yet".to_owned(),
        })
    }

    /// The time that the store covers, in microseconds since 1970; of the oldest requests only the hour may
    /// be known.
    pub(crate) fn covered(&mut self) -> Result<Option<(i64, i64)>, Error> {
        let engine = self.engine.as_mut();
        let facts = of_facts(engine)?;
        let hour = |order: &str| {
            format!(
                "SELECT hour FROM hours WHERE state IN ({GONE}, {LATE}, {REMOVING}) ORDER BY hour {order} LIMIT 1"
            )
        };
        let first = engine.int(&hour("ASC"))?.map(|hour| hour * HOUR_US);
        let last = engine.int(&hour("DESC"))?.map(|hour| (hour + 1) * HOUR_US - 1_000_000);
        let first = first.into_iter().chain(facts.map(|(first, _)| first)).min();
        let last = last.into_iter().chain(facts.map(|(_, last)| last)).max();
        Ok(first.zip(last))
    }
}
