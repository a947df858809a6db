//! IANA names for the numbers in a ClientHello.
//!
//! Only values in use are listed; others print as `0x1234`. The registries: "TLS Cipher Suites", "TLS
//! Supported Groups", "TLS SignatureScheme".

use std::fmt;

/// A number of a TLS registry that prints as its name. GREASE values print as `GREASE`, unknown ones in
/// hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegistryName {
    number: u16,
    known: Option<&'static str>,
}

impl RegistryName {
    /// The registered name, or `None` for numbers that are not listed.
    #[must_use]
    pub fn known(self) -> Option<&'static str> {
        self.known
    }

    /// The number as sent on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        self.number
    }

    fn find(number: u16, table: &[(u16, &'static str)]) -> Self {
        let row = table.iter().find(|(listed, _)| *listed == number);
        Self { number, known: row.map(|(_, name)| *name) }
    }
}

impl fmt::Display for RegistryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known {
            Some(name) => f.pad(name),
            None if is_grease(self.number) => f.pad("GREASE"),
            None => write!(f, "0x{:04x}", self.number),
        }
    }
}

/// Returns true for GREASE values (RFC 8701), which keep peers tolerant of unknown ones: 0x0a0a, 0x1a1a …
/// 0xfafa.
#[must_use]
pub fn is_grease(number: u16) -> bool {
    let [high, low] = number.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}

/// The name of a protocol version, as in `TLSv1.3`.
#[must_use]
pub fn version_name(version: u16) -> RegistryName {
    RegistryName::find(version, VERSIONS)
}

/// The name of a cipher suite, as in `TLS_AES_128_GCM_SHA256`.
#[must_use]
pub fn suite_name(suite: u16) -> RegistryName {
    RegistryName::find(suite, SUITES)
}

/// The name of a key exchange group, as in `x25519`.
#[must_use]
pub fn group_name(group: u16) -> RegistryName {
    RegistryName::find(group, GROUPS)
}

/// The name of a signature scheme, as in `ecdsa_secp256r1_sha256`.
#[must_use]
pub fn scheme_name(scheme: u16) -> RegistryName {
    RegistryName::find(scheme, SCHEMES)
}

/// The OpenSSL name of a TLS 1.3 suite, or of a TLS 1.2 AEAD suite with ephemeral keys. Readers of the PROXY
/// protocol's cipher field expect this spelling.
#[must_use]
pub fn openssl_suite_name(suite: u16) -> Option<&'static str> {
    match suite {
        0x1301..=0x1305 => suite_name(suite).known(),
        0xc02b => Some("ECDHE-ECDSA-AES128-GCM-SHA256"),
        0xc02c => Some("ECDHE-ECDSA-AES256-GCM-SHA384"),
        0xc02f => Some("ECDHE-RSA-AES128-GCM-SHA256"),
        0xc030 => Some("ECDHE-RSA-AES256-GCM-SHA384"),
        0xcca8 => Some("ECDHE-RSA-CHACHA20-POLY1305"),
        0xcca9 => Some("ECDHE-ECDSA-CHACHA20-POLY1305"),
        _ => None,
    }
}

const VERSIONS: &[(u16, &str)] = &[
    (0x0002, "SSLv2"),
    (0x0300, "SSLv3"),
    (0x0301, "TLSv1.0"),
    (0x0302, "TLSv1.1"),
    (0x0303, "TLSv1.2"),
    (0x0304, "TLSv1.3"),
];

#[rustfmt::skip]
const SUITES: &[(u16, &str)] = &[
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0x1304, "TLS_AES_128_CCM_SHA256"),
    (0x1305, "TLS_AES_128_CCM_8_SHA256"),
    (0xc02b, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (0xc02c, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    (0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0xc030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0xcca8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xcca9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xccaa, "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0x009c, "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    (0x009d, "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    (0x009e, "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0x009f, "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0x00a2, "TLS_DHE_DSS_WITH_AES_128_GCM_SHA256"),
    (0x00a3, "TLS_DHE_DSS_WITH_AES_256_GCM_SHA384"),
    (0xc009, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    (0xc00a, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    (0xc013, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    (0xc014, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    (0xc023, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    (0xc024, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"),
    (0xc027, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0xc028, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"),
    (0xc0ac, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM"),
    (0xc0ad, "TLS_ECDHE_ECDSA_WITH_AES_256_CCM"),
    (0xc0ae, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8"),
    (0xc0af, "TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8"),
    (0x002f, "TLS_RSA_WITH_AES_128_CBC_SHA"),
    (0x0035, "TLS_RSA_WITH_AES_256_CBC_SHA"),
    (0x003c, "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    (0x003d, "TLS_RSA_WITH_AES_256_CBC_SHA256"),
    (0x0033, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA"),
    (0x0039, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA"),
    (0x0067, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0x006b, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256"),
    (0x000a, "TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0x0016, "TLS_DHE_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0xc008, "TLS_ECDHE_ECDSA_WITH_3DES_EDE_CBC_SHA"),
    (0xc012, "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0x0004, "TLS_RSA_WITH_RC4_128_MD5"),
    (0x0005, "TLS_RSA_WITH_RC4_128_SHA"),
    (0x00ff, "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"),
    (0x5600, "TLS_FALLBACK_SCSV"),
];

#[rustfmt::skip]
const GROUPS: &[(u16, &str)] = &[
    (0x001d, "x25519"),
    (0x11ec, "X25519MLKEM768"),
    (0x0017, "secp256r1"),
    (0x0018, "secp384r1"),
    (0x0019, "secp521r1"),
    (0x001e, "x448"),
    (0x11eb, "SecP256r1MLKEM768"),
    (0x11ed, "SecP384r1MLKEM1024"),
    (0x0200, "MLKEM512"),
    (0x0201, "MLKEM768"),
    (0x0202, "MLKEM1024"),
    (0x6399, "X25519Kyber768Draft00"),
    (0x639a, "SecP256r1Kyber768Draft00"),
    (0x0100, "ffdhe2048"),
    (0x0101, "ffdhe3072"),
    (0x0102, "ffdhe4096"),
    (0x0103, "ffdhe6144"),
    (0x0104, "ffdhe8192"),
    (0x0013, "secp192r1"),
    (0x0015, "secp224r1"),
    (0x0016, "secp256k1"),
    (0x001a, "brainpoolP256r1"),
    (0x001b, "brainpoolP384r1"),
    (0x001c, "brainpoolP512r1"),
    (0x001f, "brainpoolP256r1tls13"),
    (0x0020, "brainpoolP384r1tls13"),
    (0x0021, "brainpoolP512r1tls13"),
    (0x0029, "curveSM2"),
];

#[rustfmt::skip]
const SCHEMES: &[(u16, &str)] = &[
    (0x0403, "ecdsa_secp256r1_sha256"),
    (0x0503, "ecdsa_secp384r1_sha384"),
    (0x0603, "ecdsa_secp521r1_sha512"),
    (0x0804, "rsa_pss_rsae_sha256"),
    (0x0805, "rsa_pss_rsae_sha384"),
    (0x0806, "rsa_pss_rsae_sha512"),
    (0x0807, "ed25519"),
    (0x0808, "ed448"),
    (0x0809, "rsa_pss_pss_sha256"),
    (0x080a, "rsa_pss_pss_sha384"),
    (0x080b, "rsa_pss_pss_sha512"),
    (0x0401, "rsa_pkcs1_sha256"),
    (0x0501, "rsa_pkcs1_sha384"),
    (0x0601, "rsa_pkcs1_sha512"),
    (0x0201, "rsa_pkcs1_sha1"),
    (0x0203, "ecdsa_sha1"),
    (0x081a, "ecdsa_brainpoolP256r1tls13_sha256"),
    (0x081b, "ecdsa_brainpoolP384r1tls13_sha384"),
    (0x081c, "ecdsa_brainpoolP512r1tls13_sha512"),
    (0x0904, "mldsa44"),
    (0x0905, "mldsa65"),
    (0x0906, "mldsa87"),
    (0x0708, "sm2sig_sm3"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_names() {
        assert_eq!(version_name(0x0304).to_string(), "TLSv1.3");
        assert_eq!(suite_name(0x1301).to_string(), "TLS_AES_128_GCM_SHA256");
        assert_eq!(group_name(0x11ec).to_string(), "X25519MLKEM768");
        assert_eq!(scheme_name(0x0804).to_string(), "rsa_pss_rsae_sha256");
        assert_eq!(suite_name(0x1a1a).to_string(), "GREASE");
        assert_eq!(suite_name(0x00fe).to_string(), "0x00fe");
        assert_eq!((group_name(0xfe00).known(), group_name(0xfe00).number()), (None, 0xfe00));
        assert_eq!(openssl_suite_name(0xc02f), Some("ECDHE-RSA-AES128-GCM-SHA256"));
        assert_eq!(openssl_suite_name(0x1303), Some("TLS_CHACHA20_POLY1305_SHA256"));
        assert_eq!(openssl_suite_name(0x002f), None);
    }

    #[test]
    fn grease_has_sixteen_values() {
        let all: Vec<u16> = (0..=u16::MAX).filter(|&number| is_grease(number)).collect();
        assert_eq!(all.len(), 16);
        assert_eq!((all[0], all[1], all[15]), (0x0a0a, 0x1a1a, 0xfafa));
    }

    #[test]
    fn no_number_is_listed_twice() {
        for table in [VERSIONS, SUITES, GROUPS, SCHEMES] {
            for (at, (number, _)) in table.iter().enumerate() {
                assert!(table[..at].iter().all(|(other, _)| other != number), "0x{number:04x}");
            }
        }
    }
}
