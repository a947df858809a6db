//! Files of receivers: URLs and tokens that are secrets, and authorities.

use std::path::Path;
use std::time::SystemTime;

use http::header::HeaderValue;
use offramp_certs::anchors::Anchors;
use offramp_certs::client_auth::load_roots;
use offramp_certs::read_secret;
use offramp_config::model::{FilePath, NotifyUrl};
use offramp_process::Finding;

/// The value, or the finding among those that are wrong.
pub(super) fn gather<T>(wrong: &mut Vec<Finding>, outcome: Result<T, Finding>) -> Option<T> {
    outcome.map_err(|finding| wrong.push(finding)).ok()
}

/// The text of a file that is a secret.
pub(super) fn secret(file: &FilePath) -> Result<String, Finding> {
    let read = read_secret(&file.path).map_err(|error| Finding::new(&file.at, error.to_string()))?;
    Ok(read.as_str().to_owned())
}

fn named(path: &Path, what: &str) -> String {
    format!("{}: {what}", path.display())
}

/// The URL in a file.
pub(super) fn url_of(file: &FilePath) -> Result<NotifyUrl, Finding> {
    let url = secret(file)?.parse::<NotifyUrl>();
    url.map_err(|problem| Finding::new(&file.at, named(&file.path, problem.message())))
}

/// The value of `Authorization` with the token in a file.
pub(super) fn authorization(file: &FilePath) -> Result<HeaderValue, Finding> {
    let token = secret(file)?;
    let value = HeaderValue::try_from(format!("Bearer {token}")).ok().filter(|_| !token.is_empty());
    let mut value = value.ok_or_else(|| {
        Finding::new(
            &file.at,
            named(&file.path, "this is no token: it is empty, or has other characters than ASCII"),
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// The authorities in a file.
pub(super) fn anchors(file: &FilePath) -> Result<Anchors, Finding> {
    let loaded = load_roots(&file.path, SystemTime::now());
    loaded.map(|loaded| loaded.anchors).map_err(|error| Finding::new(&file.at, error.to_string()))
}
