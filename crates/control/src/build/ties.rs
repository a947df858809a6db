//! The secret of the cookies that tie clients to servers and backends.

use std::fs;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use offramp_config::model::{RelayConfig, RelayTarget, RouteTarget};
use offramp_config::{At, Config};
use offramp_process::state_dir;
use offramp_upstream::StickyKey;

use super::Findings;

/// The time for which cookies of versions without a secret count, from when the secret was made: they live as long as a
/// browser's session.
const TRANSITION: Duration = Duration::from_secs(30 * 24 * 3600);

/// The secret that the state directory has; it is made there where a cookie needs it, and `mint` allows it.
pub(super) fn key(config: &Config, mint: bool, report: &mut Findings) -> StickyKey {
    let unused = || StickyKey::new(Default::default(), UNIX_EPOCH);
    if !is_needed(config) {
        return unused();
    }
    let path = config.process.state_dir.join("sticky.key");
    if mint {
        match state_dir::prepare(&config.process.state_dir) {
            Ok(warnings) => report.warnings.extend(warnings),
            Err(error) => {
                report.error(&At::NOWHERE, format!("sticky_cookie: {error}"));
                return unused();
            }
        }
    } else if !path.exists() {
        // Nothing is served by this configuration.
        return unused();
    }
    let made = |found: fs::Metadata| found.modified().map(|made| made + TRANSITION);
    let read =
        || -> io::Result<(_, SystemTime)> { Ok((state_dir::secret(&path)?, made(fs::metadata(&path)?)?)) };
    match read() {
        Ok((secret, known_until)) => StickyKey::new(secret, known_until),
        Err(error) => {
            let path = path.display();
            report.error(
                &At::NOWHERE,
                format!("sticky_cookie: the secret {path} cannot be used: {error}; remove it to have a new one made: clients \
                     that have a cookie may then come to another server once"),
            );
            unused()
        }
    }
}

fn is_needed(config: &Config) -> bool {
    let split = |target: &RouteTarget| match target {
        RouteTarget::Relay(RelayConfig { to: RelayTarget::Split(split), .. }) => {
            split.sticky_cookie.is_some()
        }
        _ => false,
    };
    config.backends.iter().any(|backend| backend.sticky_cookie.is_some())
        || config.routes.iter().any(|route| split(&route.target))
}

#[cfg(test)]
mod tests {
    use offramp_config::Environment;

    use super::*;

    fn config(folder: &std::path::Path, text: &str) -> Config {
        let text = format!(
            "state_dir = {:?}\n[[listener]]\nmode = \"http\"\ntls = false\n{text}",
            folder.join("state")
        );
        offramp_config::parse(&text, "offramp.toml", &Environment::default()).expect(&text).0
    }

    const BACKEND: &str = "[[route]]\nbackend = \"a\"\n[backend.a]\nservers = \"127.0.0.1:1\"\n";

    #[test]
    fn the_secret_is_made_where_a_cookie_needs_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = Findings::default();
        let file = folder.path().join("state/sticky.key");
        key(&config(folder.path(), BACKEND), true, &mut report);
        assert!(!file.exists());
        let tied = config(folder.path(), &format!("{BACKEND}sticky_cookie = \"s\"\n"));
        key(&tied, false, &mut report);
        assert!(!file.exists(), "a check writes nothing");
        let made = key(&tied, true, &mut report);
        assert!(
            file.exists() && made == key(&tied, true, &mut report) && made == key(&tied, false, &mut report)
        );
        let split = BACKEND.replace(
            "backend = \"a\"",
            "split = { backends = [\"a\", \"b\"], by = \"request\", sticky_cookie = \"s\" }",
        );
        assert!(
            made == key(
                &config(folder.path(), &format!("{split}[backend.b]\nservers = \"127.0.0.1:2\"\n")),
                true,
                &mut report
            )
        );
        assert!(report.errors.is_empty());
        fs::write(&file, "short").unwrap();
        key(&tied, true, &mut report);
        let said = report.errors[0].to_string();
        for part in ["sticky.key cannot be used", "it has 5 bytes, and a secret has 16", "remove it"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
