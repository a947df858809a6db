//! Shares of requests, and copies of them.

use http::HeaderName;
use offramp_config::At;
use offramp_config::model::{self, SplitBy};
use offramp_proxy::{Mirror, Share, Split};
use offramp_upstream::HashSource;

use super::Findings;
use super::backends::Backends;
use super::routes::place;

/// The shares of a route; `None` where there is no such backend, as is reported.
pub(super) fn split(
    split: &model::TrafficSplit,
    at: &At,
    backends: &mut Backends<'_>,
    report: &mut Findings,
) -> Option<Split> {
    let mut shares = Vec::new();
    for model::BackendShare { backend, weight } in &split.backends {
        let place = place(&model::RelayTarget::Backend(backend.clone()), at, backends, report)?;
        shares.push(Share { name: backend.to_string().into(), backend: place, weight: *weight });
    }
    let by = match &split.by {
        SplitBy::Request => None,
        SplitBy::Hash(key) => Some(hash_key(key, at, report)?),
    };
    let header = match &split.header {
        Some(name) => Some(field_name(name, at, report)?),
        None => None,
    };
    let sticky = split.sticky_cookie.as_ref().map(|name| backends.sticky(name.as_str()));
    Some(Split { shares, by, header, cookie: split.cookie.as_ref().map(|name| name.as_str().into()), sticky })
}

/// The copies of a route; `None` where there is no such backend, as is reported.
pub(super) fn mirror(
    mirror: &model::MirrorConfig,
    at: &At,
    backends: &mut Backends<'_>,
    report: &mut Findings,
) -> Option<Mirror> {
    let place = place(&model::RelayTarget::Backend(mirror.backend.clone()), at, backends, report)?;
    Some(Mirror {
        backend: place,
        max_body: mirror.max_body.bytes(),
        requests: mirror.requests,
        one_in: mirror.one_in,
    })
}

/// The key of a request's share.
fn hash_key(key: &model::HashKey, at: &At, report: &mut Findings) -> Option<HashSource> {
    Some(match key {
        model::HashKey::Client => HashSource::Client,
        model::HashKey::Cookie(name) => HashSource::Cookie(name.as_str().into()),
        model::HashKey::Header(name) => HashSource::Header(field_name(name, at, report)?),
    })
}

fn field_name(name: &model::HeaderName, at: &At, report: &mut Findings) -> Option<HeaderName> {
    let parsed = name.as_str().parse();
    parsed.map_err(|error| report.error(at, format!("split: `{name}`: {error}"))).ok()
}
