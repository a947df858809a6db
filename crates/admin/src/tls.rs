//! TLS on a TCP address: a certificate from files, reloaded when they change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use offramp_certs::{DnsPattern, Error, Stamp, file};
use offramp_observe::Log;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The interval of checks of the files; only handshakes check.
const AGAIN: Duration = Duration::from_secs(5);

/// The certificate of the admin interface, with the files it comes from.
#[derive(Debug)]
pub struct AdminCertificate {
    cert: PathBuf,
    key: Option<PathBuf>,
    state: Mutex<LoadedCertificate>,
    log: Log,
}

#[derive(Debug)]
struct LoadedCertificate {
    certified: Arc<CertifiedKey>,
    /// The names of the certificate.
    names: Vec<DnsPattern>,
    /// The stamps of the files at the last load or failed attempt.
    stamps: [Option<Stamp>; 2],
    looked: Instant,
}

impl AdminCertificate {
    /// Loads a chain and its key, from one file or two.
    ///
    /// # Errors
    /// The files are unusable.
    pub fn load(cert: PathBuf, key: Option<PathBuf>, log: Log) -> Result<Self, Error> {
        let stamps = stamps(&cert, key.as_ref());
        let loaded = file::load(&cert, key.as_deref(), SystemTime::now())?;
        let certified = Arc::clone(&loaded.certificate.certified_key);
        let names = loaded.certificate.names.clone();
        let state = Mutex::new(LoadedCertificate { certified, names, stamps, looked: Instant::now() });
        Ok(Self { cert, key, state, log })
    }

    /// The TLS configuration for a handshake.
    ///
    /// # Errors
    /// The library refuses the protocol versions.
    pub fn config(self: &Arc<Self>) -> io::Result<ServerConfig> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(io::Error::other)?.with_no_client_auth();
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(self) as _;
        let mut config = builder.with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// The names of the certificate.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.current(Instant::now()).names.iter().map(ToString::to_string).collect()
    }

    /// Returns `true` if the certificate has this name.
    pub(crate) fn is_for(&self, name: &str, now: Instant) -> bool {
        self.current(now).names.iter().any(|own| own.matches(name))
    }

    /// The certificate in the files, or the last usable one.
    fn current(&self, now: Instant) -> MutexGuard<'_, LoadedCertificate> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.looked) >= AGAIN {
            state.looked = now;
            let stamps = stamps(&self.cert, self.key.as_ref());
            if stamps != state.stamps {
                state.stamps = stamps;
                let path = self.cert.display().to_string();
                match file::load(&self.cert, self.key.as_deref(), SystemTime::now()) {
                    Ok(loaded) => {
                        state.certified = Arc::clone(&loaded.certificate.certified_key);
                        state.names = loaded.certificate.names.clone();
                        self.log.info(
                            "the certificate of the admin interface changed",
                            &[("file", (&path).into())],
                        );
                    }
                    Err(error) => {
                        let fields = [("file", (&path).into()), ("reason", (&error).into())];
                        self.log.error(
                            "the admin interface keeps its certificate: the new one cannot be used",
                            &fields,
                        );
                    }
                }
            }
        }
        state
    }
}

impl ResolvesServerCert for AdminCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current(Instant::now()).certified))
    }
}

fn stamps(cert: &Path, key: Option<&PathBuf>) -> [Option<Stamp>; 2] {
    [Stamp::of(cert), key.and_then(|key| Stamp::of(key))]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use offramp_testkit::ca::{Ca, Key, Leaf};

    use super::*;

    #[test]
    fn a_new_pair_replaces_the_old_one_and_half_a_pair_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let ca = Ca::new(folder.path()).unwrap();
        let issue = |name: &str| ca.issue(name, &Leaf::server(Key::P256, &["admin.test"])).unwrap();
        let (first, second) = (issue("first"), issue("second"));
        let key = Some(first.key.clone());
        let identity = AdminCertificate::load(first.chain.clone(), key, Log::silent()).unwrap();
        let begun = Instant::now();
        let shown = |after: Duration| identity.current(begun + after).certified.cert[0].to_vec();
        let before = shown(Duration::ZERO);
        assert!(identity.is_for("admin.test", begun) && !identity.is_for("other.test", begun));
        fs::rename(second.chain, &first.chain).unwrap();
        assert_eq!(shown(Duration::ZERO), before, "the files are not looked at each time");
        assert_eq!(shown(AGAIN * 2), before, "the key is another one's");
        fs::rename(second.key, &first.key).unwrap();
        assert_ne!(shown(AGAIN * 4), before);
        assert!(AdminCertificate::load(folder.path().join("none"), None, Log::silent()).is_err());
    }
}
