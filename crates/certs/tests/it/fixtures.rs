//! Keys, certificates and files for the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SignatureAlgorithm,
};

/// 2026-11-21 00:00 UTC: the tests' present.
pub(crate) fn present() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_219_200)
}

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A certificate and its key, as PEM.
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// A CA that can issue.
pub(crate) struct Authority {
    pub(crate) cert: String,
    issuer: Issuer<'static, KeyPair>,
}

/// What to issue; see [`Leaf::default`].
pub(crate) struct Leaf<'a> {
    pub(crate) common_name: &'a str,
    /// DNS names, IP addresses, or `uri:` and a URI.
    pub(crate) names: &'a [&'a str],
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    pub(crate) algorithm: &'static SignatureAlgorithm,
}

impl Default for Leaf<'_> {
    fn default() -> Self {
        Leaf {
            common_name: "leaf",
            names: &["example.org"],
            not_before: present() - DAY,
            not_after: present() + 60 * DAY,
            algorithm: &rcgen::PKCS_ECDSA_P256_SHA256,
        }
    }
}

impl Leaf<'_> {
    fn params(&self) -> CertificateParams {
        let (uris, names): (Vec<&str>, Vec<&str>) =
            self.names.iter().partition(|name| name.starts_with("uri:"));
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(names).unwrap();
        for uri in uris {
            let uri = uri.trim_start_matches("uri:").try_into().unwrap();
            params.subject_alt_names.push(rcgen::SanType::URI(uri));
        }
        params.distinguished_name = DistinguishedName::new();
        if !self.common_name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, self.common_name);
        }
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        params.not_before = epoch + self.not_before.duration_since(UNIX_EPOCH).unwrap();
        params.not_after = epoch + self.not_after.duration_since(UNIX_EPOCH).unwrap();
        params.use_authority_key_identifier_extension = true;
        params
    }
}

impl Authority {
    pub(crate) fn root(name: &str) -> Self {
        let (params, key) = Self::parts(name);
        let cert = params.self_signed(&key).unwrap().pem();
        Authority { cert, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn intermediate(&self, name: &str) -> Self {
        let (params, key) = Self::parts(name);
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Authority { cert, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn issue(&self, leaf: &Leaf<'_>) -> Pair {
        let key = KeyPair::generate_for(leaf.algorithm).unwrap();
        self.issue_for(leaf, &key)
    }

    pub(crate) fn issue_for(&self, leaf: &Leaf<'_>, key: &KeyPair) -> Pair {
        let cert = leaf.params().signed_by(key, &self.issuer).unwrap();
        Pair { cert: cert.pem(), key: key.serialize_pem() }
    }

    fn parts(name: &str) -> (CertificateParams, KeyPair) {
        let leaf =
            Leaf { common_name: name, names: &[], not_after: present() + 1000 * DAY, ..Leaf::default() };
        let mut params = leaf.params();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        (params, KeyPair::generate().unwrap())
    }
}

/// A leaf that is its own issuer.
pub(crate) fn self_signed(leaf: &Leaf<'_>) -> Pair {
    let key = KeyPair::generate_for(leaf.algorithm).unwrap();
    let cert = leaf.params().self_signed(&key).unwrap();
    Pair { cert: cert.pem(), key: key.serialize_pem() }
}

/// A directory that goes away at the end of the test.
pub(crate) struct Dir(tempfile::TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        Dir(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A file with mode 0600.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        chmod(&path, 0o600);
        path
    }

    /// Runs the `openssl` command here; its standard output is the answer.
    pub(crate) fn openssl(&self, arguments: &str) -> String {
        let output = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(self.path())
            .output()
            .expect("these tests need the openssl command");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments}: {complaint}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}
