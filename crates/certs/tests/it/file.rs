//! Certificates from files: every combination that occurs, and every refusal with its advice.

use std::path::Path;
use std::time::SystemTime;

use offramp_certs::client_auth::load_roots;
use offramp_certs::file::{Loaded, load};
use offramp_certs::{CertificateOrigin, Concern, ContentFault, Error, KeyKind, PairFault};
use rustls::SignatureScheme;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::fixtures::{Authority, DAY, Dir, Leaf, Pair, chmod, present, self_signed};

fn concerns(loaded: &Loaded) -> Vec<&Concern> {
    loaded.warnings.iter().map(|warning| &warning.concern).collect()
}

/// The fault of a file that must not load, having checked that the message names the file.
fn content_fault(cert: &Path, key: Option<&Path>) -> (Option<usize>, ContentFault, String) {
    let error = load(cert, key, present()).unwrap_err();
    let message = error.to_string();
    match error {
        Error::Content { path, line, fault } => {
            assert!(message.starts_with(&path.display().to_string()), "{message}");
            (line, fault, message)
        }
        other => panic!("{other}"),
    }
}

fn pair_fault(cert: &Path, key: Option<&Path>) -> (PairFault, String) {
    let error = load(cert, key, present()).unwrap_err();
    let message = error.to_string();
    match error {
        Error::Pair { fault, .. } => (fault, message),
        other => panic!("{other}"),
    }
}

#[test]
fn a_chain_and_its_key_load_in_any_order_and_combination() {
    let root = Authority::root("root");
    let intermediate = root.intermediate("intermediate");
    let lower = intermediate.intermediate("lower intermediate");
    let Pair { cert, key } =
        lower.issue(&Leaf { names: &["Example.org", "*.example.org"], ..Leaf::default() });
    let (root, intermediate, lower) = (&root.cert, &intermediate.cert, &lower.cert);
    let dir = Dir::new();
    let cases = [
        (cert.clone() + lower + intermediate + root, Some(key.clone())),
        (key.clone() + &cert + lower + intermediate + root, None),
        (cert.clone() + &key + lower + intermediate + root, None),
        (root.clone() + intermediate + lower + &cert, Some(key.clone())),
        (intermediate.clone() + &cert + root + lower + &key, None),
        (root.clone() + intermediate + lower, Some(key.clone() + &cert)),
        (key.clone(), Some(cert.clone() + root + lower + intermediate)),
        (cert.clone() + &cert + lower + intermediate + root + &key, Some(key.clone())),
    ];
    for (number, (first, second)) in cases.iter().enumerate() {
        let first = dir.file(&format!("{number}.pem"), first);
        let second = second.as_ref().map(|text| dir.file(&format!("{number}.key"), text));
        let loaded = load(&first, second.as_deref(), present()).unwrap();
        assert_eq!(concerns(&loaded), Vec::<&Concern>::new(), "case {number}");
        let certificate = loaded.certificate;
        let names: Vec<String> = certificate.names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["example.org", "*.example.org"]);
        assert_eq!(certificate.kind, KeyKind::Ecdsa);
        assert_eq!(certificate.not_after, present() + 60 * DAY);
        assert_eq!(certificate.source, CertificateOrigin::Files { cert: first, key: second });
        let chain: Vec<Option<String>> = certificate
            .certified_key
            .cert
            .iter()
            .map(|der| offramp_certs::describe::Description::of(der).unwrap().common_name)
            .collect();
        assert_eq!(
            chain.iter().flatten().collect::<Vec<_>>(),
            ["leaf", "lower intermediate", "intermediate", "root"],
            "case {number}"
        );
        certificate.certified_key.keys_match().unwrap();
    }
}

#[test]
fn foreign_line_ends_marks_and_remarks_are_tolerated() {
    let root = Authority::root("root");
    let Pair { cert, key } = root.issue(&Leaf::default());
    let all = cert + &root.cert + &key;
    let dir = Dir::new();
    let variants = [
        all.replace('\n', "\r\n"),
        format!("\u{feff}{all}"),
        format!("\u{feff}{}", all.replace('\n', "\r\n")),
        all.replace("-----BEGIN", "Bag Attributes\n  friendlyName: b\u{fc}cher\n-----BEGIN"),
        all.lines().map(|line| format!("    {line}  \n")).collect(),
        all.replace("BEGIN CERTIFICATE", "BEGIN X509 CERTIFICATE").replace("END CERT", "END X509 CERT"),
        all.trim_end().to_owned(),
        "-----BEGIN DH PARAMETERS-----\nMIIB\n-----END DH PARAMETERS-----\n".to_owned() + &all,
    ];
    for (number, text) in variants.into_iter().enumerate() {
        let loaded = load(&dir.file("all.pem", text), None, present());
        assert_eq!(loaded.unwrap().certificate.certified_key.cert.len(), 2, "variant {number}");
    }
    let mut latin = b"K\xfcnstliche Zertifikate\n".to_vec();
    latin.extend_from_slice(all.as_bytes());
    load(&dir.file("all.pem", latin), None, present()).unwrap();
}

#[test]
fn every_kind_of_key_that_openssl_writes_loads() {
    let dir = Dir::new();
    dir.openssl("ecparam -name prime256v1 -genkey -out p256.key"); // SEC1 after EC PARAMETERS
    dir.openssl("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 -out p384.key");
    dir.openssl("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-521 -out p521.key");
    dir.openssl("genpkey -algorithm ED25519 -out ed25519.key");
    dir.openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.key");
    dir.openssl("rsa -in rsa.key -traditional -out rsa-pkcs1.key");
    dir.openssl("ec -in p384.key -out p384-sec1.key");
    let sec1 = std::fs::read_to_string(dir.path().join("p384-sec1.key")).unwrap();
    assert!(sec1.contains("BEGIN EC PRIVATE KEY"));
    let pkcs1 = std::fs::read_to_string(dir.path().join("rsa-pkcs1.key")).unwrap();
    assert!(pkcs1.contains("BEGIN RSA PRIVATE KEY"));
    for (name, kind, key_algorithm, signature_algorithm, scheme) in [
        ("p256", KeyKind::Ecdsa, "EC256", "ecdsa-with-SHA256", SignatureScheme::ECDSA_NISTP256_SHA256),
        ("p384", KeyKind::Ecdsa, "EC384", "ecdsa-with-SHA384", SignatureScheme::ECDSA_NISTP384_SHA384),
        ("p384-sec1", KeyKind::Ecdsa, "EC384", "ecdsa-with-SHA384", SignatureScheme::ECDSA_NISTP384_SHA384),
        ("p521", KeyKind::Ecdsa, "EC521", "ecdsa-with-SHA512", SignatureScheme::ECDSA_NISTP521_SHA512),
        ("ed25519", KeyKind::Ed25519, "ED25519", "ED25519", SignatureScheme::ED25519),
        ("rsa", KeyKind::Rsa, "RSA2048", "RSA-SHA256", SignatureScheme::RSA_PSS_SHA256),
        ("rsa-pkcs1", KeyKind::Rsa, "RSA2048", "RSA-SHA384", SignatureScheme::RSA_PKCS1_SHA384),
    ] {
        let digest = match signature_algorithm.rsplit_once("SHA") {
            Some((_, bits)) => format!("-sha{bits}"),
            None => String::new(),
        };
        dir.openssl(&format!(
            "req -x509 -new -key {name}.key {digest} -subj /CN=openssl -days 30 -out {name}.pem \
             -addext subjectAltName=DNS:example.org,DNS:*.example.net,IP:127.0.0.1,IP:::1"
        ));
        let path = |end: &str| dir.path().join(format!("{name}.{end}"));
        let loaded = load(&path("pem"), Some(&path("key")), SystemTime::now()).unwrap();
        assert_eq!(concerns(&loaded), [&Concern::SelfSigned], "{name}");
        let certificate = loaded.certificate;
        assert_eq!(certificate.kind, kind, "{name}");
        assert_eq!(certificate.description.key_algorithm, key_algorithm);
        assert_eq!(certificate.description.signature_algorithm, signature_algorithm);
        assert_eq!(certificate.description.common_name.as_deref(), Some("openssl"));
        assert!(certificate.suits(&[SignatureScheme::ED448, scheme]), "{name}");
        assert!(!certificate.suits(&[SignatureScheme::ED448]), "{name}");
        assert_eq!(certificate.names.len(), 2);
        assert_eq!(certificate.addresses.len(), 2);
    }
}

#[test]
fn encrypted_keys_are_refused_with_the_command_that_decrypts_them() {
    let dir = Dir::new();
    dir.openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out plain.key");
    dir.openssl("req -x509 -new -key plain.key -subj /CN=a -days 30 -out cert.pem");
    dir.openssl("pkey -in plain.key -aes256 -passout pass:secret -out pkcs8.key");
    dir.openssl("rsa -in plain.key -traditional -aes256 -passout pass:secret -out pkcs1.key");
    let cert = dir.path().join("cert.pem");
    for name in ["pkcs8.key", "pkcs1.key"] {
        let key = dir.path().join(name);
        let (line, fault, message) = content_fault(&cert, Some(&key));
        assert_eq!((line, fault), (Some(1), ContentFault::EncryptedKey), "{name}");
        assert!(message.contains(&format!("openssl pkey -in {}", key.display())), "{message}");
    }
    // Where the plain key is there as well, the encrypted one does not matter.
    let both = std::fs::read_to_string(dir.path().join("pkcs8.key")).unwrap()
        + &std::fs::read_to_string(dir.path().join("plain.key")).unwrap();
    load(&cert, Some(&dir.file("both.key", both)), present()).unwrap();
}

#[test]
fn other_formats_are_named_with_the_command_that_converts_them() {
    let dir = Dir::new();
    dir.openssl("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out a.key");
    dir.openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.key");
    dir.openssl("req -x509 -new -key a.key -subj /CN=a -days 30 -out a.pem");
    dir.openssl("req -new -key a.key -subj /CN=a -out a.csr");
    dir.openssl("x509 -in a.pem -outform der -out cert.der");
    dir.openssl("pkey -in a.key -outform der -out pkcs8.der");
    dir.openssl("ec -in a.key -outform der -out sec1.der");
    dir.openssl("rsa -in rsa.key -traditional -outform der -out pkcs1.der");
    dir.openssl("pkcs8 -topk8 -in a.key -passout pass:x -outform der -out encrypted.der");
    dir.openssl("pkcs12 -export -in a.pem -inkey a.key -passout pass:x -out a.p12");
    dir.openssl("req -in a.csr -outform der -out csr.der");
    dir.openssl("crl2pkcs7 -nocrl -certfile a.pem -out a.p7b");
    dir.openssl("crl2pkcs7 -nocrl -certfile a.pem -outform der -out der.p7b");
    for (name, fault, advice) in [
        ("cert.der", ContentFault::DerCertificate, "openssl x509 -inform der"),
        ("pkcs8.der", ContentFault::DerKey, "openssl pkey -inform der"),
        ("sec1.der", ContentFault::DerKey, "openssl pkey -inform der"),
        ("pkcs1.der", ContentFault::DerKey, "openssl pkey -inform der"),
        ("encrypted.der", ContentFault::DerKey, "openssl pkey -inform der"),
        ("a.p12", ContentFault::Pkcs12, "openssl pkcs12"),
        ("der.p7b", ContentFault::Pkcs7 { der: true }, "openssl pkcs7 -print_certs -inform der"),
        ("csr.der", ContentFault::NotPem, "-----BEGIN"),
    ] {
        let (line, found, message) = content_fault(&dir.path().join(name), None);
        assert_eq!((line, found), (None, fault), "{name}");
        assert!(message.contains(advice), "{message}");
    }
    for text in ["\u{feff}-----BEGIN", "-----BEGIN"] {
        for of in [u16::to_le_bytes, u16::to_be_bytes] {
            let utf16: Vec<u8> = text.encode_utf16().flat_map(of).collect();
            assert_eq!(content_fault(&dir.file("utf16", utf16), None).1, ContentFault::Utf16);
        }
    }
    // PEM of other kinds, in the place of a certificate and of a key.
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let openssh =
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n-----END OPENSSH PRIVATE KEY-----\n";
    for (cert, key, fault, advice) in [
        (read("a.p7b"), read("a.key"), ContentFault::Pkcs7 { der: false }, "openssl pkcs7 -print_certs -in"),
        (read("a.csr"), read("a.key"), ContentFault::Request, "CSR"),
        (read("a.pem"), openssh.to_owned(), ContentFault::OpenSshKey, "ssh-keygen -p"),
    ] {
        for (cert, key) in [(&cert, &key), (&key, &cert)] {
            let (cert, key) = (dir.file("cert.pem", cert), dir.file("key.pem", key));
            let (line, found, message) = content_fault(&cert, Some(&key));
            assert_eq!((line, found), (Some(1), fault.clone()));
            assert!(message.contains(advice), "{message}");
        }
    }
    // What is there as well does no harm.
    let all = [read("a.pem"), read("a.key"), openssh.to_owned(), read("a.p7b"), read("a.csr")].concat();
    load(&dir.file("all.pem", all), None, present()).unwrap();
    assert_eq!(content_fault(&dir.file("text", "hello\n"), None).1, ContentFault::NotPem);
    assert_eq!(content_fault(&dir.file("empty", ""), None).1, ContentFault::Empty);
    assert_eq!(content_fault(&dir.file("blank", "\u{feff}\r\n \n"), None).1, ContentFault::Empty);
}

#[test]
fn every_pem_form_of_a_certificate_and_its_key_is_read() {
    let dir = Dir::new();
    dir.openssl("ecparam -name prime256v1 -genkey -out a.key");
    dir.openssl(
        "req -x509 -new -key a.key -subj /CN=a -addext subjectAltName=DNS:a.example -days 30 -out a.pem",
    );
    dir.openssl("x509 -in a.pem -trustout -addtrust serverAuth -setalias nas -out trusted.pem");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let (key, cert, trusted) = (read("a.key"), read("a.pem"), read("trusted.pem"));
    assert!(key.contains("EC PARAMETERS") && trusted.contains("TRUSTED CERTIFICATE"));
    let plain = load(&dir.path().join("a.pem"), Some(&dir.path().join("a.key")), present()).unwrap();
    let bytes = &plain.certificate.certified_key.cert;
    for (name, cert) in [
        ("plain", cert.clone()),
        ("trusted", trusted.clone()),
        ("X509", cert.replace("CERTIFICATE", "X509 CERTIFICATE")),
        ("CRLF", cert.replace('\n', "\r\n")),
        ("byte order mark", format!("\u{feff}{trusted}")),
        ("indented", cert.lines().map(|line| format!("    {line}\n")).collect()),
    ] {
        for (first, second) in [(&cert, &key), (&key, &cert)] {
            let files = [dir.file("first.pem", first), dir.file("second.pem", second)];
            let loaded =
                load(&files[0], Some(&files[1]), present()).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_eq!(&loaded.certificate.certified_key.cert, bytes, "{name}");
        }
        let loaded = load_roots(&dir.file("ca.pem", &cert), present()).unwrap();
        assert_eq!(loaded.anchors.exact.certificates(), &bytes[..], "{name}");
    }
    // Cut off within the certificate.
    let body: String = trusted.lines().take(4).map(|line| format!("{line}\n")).collect();
    let torn = format!("{body}-----END TRUSTED CERTIFICATE-----\n");
    let (line, fault, _) = content_fault(&dir.file("torn.pem", torn), None);
    assert!(line == Some(1) && matches!(fault, ContentFault::BadCertificate(_)), "{fault:?}");
}

#[test]
fn damaged_pem_is_refused_with_its_line() {
    let dir = Dir::new();
    let Pair { cert, key } = self_signed(&Leaf::default());
    let without_end = cert.replace("-----END CERTIFICATE-----\n", "");
    let not_base64 = cert.replacen("MII", "M!I", 1);
    let short: String =
        cert.lines().filter(|line| line.len() != 64).map(|line| line.to_owned() + "\n").collect();
    let key_lines = key.lines().count();
    for (text, line, word) in [
        (key.clone() + &without_end, key_lines + 1, "cut off"),
        (without_end.clone() + &key, 1, "no END line"),
        (key.clone() + &not_base64, key_lines + 1, "base64"),
        (cert.replace("BEGIN CERTIFICATE-----", "BEGIN CERTIFICATE--"), 1, "damaged"),
        (cert.replace("END CERTIFICATE", "END PRIVATE KEY"), cert.lines().count(), "does not fit"),
        ("\n-----END CERTIFICATE-----\n".to_owned(), 2, "no BEGIN"),
        ("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n".to_owned(), 1, "base64"),
    ] {
        let (found, fault, message) = content_fault(&dir.file("a.pem", text), None);
        assert!(matches!(fault, ContentFault::BadPem(_)), "{message}");
        assert!(found == Some(line) && message.contains(word), "{message}");
    }
    let (line, fault, _) = content_fault(&dir.file("a.pem", short + &key), None);
    assert!(line == Some(1) && matches!(fault, ContentFault::BadCertificate(_)), "{fault:?}");
}

/// OpenSSL finds the same certificates in every file that it reads at all.
#[test]
fn text_between_blocks_is_read_as_openssl_reads_it() {
    let root = Authority::root("root");
    let Pair { cert, key } = root.issue(&Leaf::default());
    let dir = Dir::new();
    for (number, (text, certificates)) in [
        ("the server's certificate, from -----BEGIN CERTIFICATE----- on\n", 2),
        ("-----END CERTIFICATE-----\n", 2),
        ("Here was another one:\n-----END CERTIFICATE-----\nand it is gone.\n", 2),
        ("-----BEGIN of the chain\n", 2),
        ("-----BEGIN CERTIFICATE---\nMIIB\n-----END CERTIFICATE-----\n", 2),
        ("----- BEGIN CERTIFICATE -----\n", 2),
        ("    -----BEGIN CERTIFICATE-----\n    MIIB...\n    -----END CERTIFICATE-----\n", 2),
        ("  -----BEGIN CERTIFICATE-----\n", 2),
        ("-----\n-----BEGIN\n-----END\n-----BEGIN \n\t-----END \n\u{fffd}\n", 2),
    ]
    .into_iter()
    .enumerate()
    {
        for (place, file) in [
            ("first", format!("{text}{cert}{}{key}", root.cert)),
            ("between", format!("{cert}{text}{}{key}", root.cert)),
            ("last", format!("{key}{cert}{}{text}", root.cert)),
        ] {
            let path = dir.file("all.pem", &file);
            dir.openssl("crl2pkcs7 -nocrl -certfile all.pem -out all.p7b");
            let read =
                dir.openssl("pkcs7 -in all.p7b -print_certs").matches("-----BEGIN CERTIFICATE").count();
            assert_eq!(read, certificates, "OpenSSL, {number} {place}");
            let loaded = load(&path, None, present());
            let loaded = loaded.unwrap_or_else(|error| panic!("{number} {place}: {error}\n{file}"));
            assert_eq!(loaded.certificate.certified_key.cert.len(), certificates, "{number} {place}");
        }
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let dir = Dir::new();
    let error = load(&dir.path().join("absent.pem"), None, present()).unwrap_err();
    assert!(
        error.to_string().ends_with("absent.pem: No such file or directory (os error 2); check the path")
    );
    assert_eq!(error.path(), Some(dir.path().join("absent.pem").as_path()));
    assert_eq!(content_fault(dir.path(), None).1, ContentFault::NotAFile);
    assert_eq!(content_fault(Path::new("/dev/zero"), None).1, ContentFault::NotAFile);
    let large = dir.file("large", vec![b'\n'; (1 << 20) + 1]);
    assert_eq!(content_fault(&large, None).1, ContentFault::TooLarge { most: offramp_certs::MAX_FILE_SIZE });

    let locked = dir.file("locked.pem", "");
    chmod(&locked, 0);
    match load(&locked, None, present()).unwrap_err() {
        error @ Error::Io { .. } => assert!(error.to_string().contains("give the user"), "{error}"),
        // Root may read everything, and finds nothing in it.
        other => assert!(matches!(other, Error::Content { fault: ContentFault::Empty, .. }), "{other}"),
    }
}

#[test]
fn what_is_no_pair_is_refused_with_the_reason() {
    let dir = Dir::new();
    let (one, two) = (self_signed(&Leaf::default()), self_signed(&Leaf::default()));
    let cert = dir.file("one.pem", &one.cert);
    let (fault, message) = pair_fault(&cert, Some(&dir.file("two.key", &two.key)));
    assert_eq!(fault, PairFault::Mismatch(vec!["CN=leaf".to_owned()]));
    assert!(message.contains("one.pem") && message.contains("openssl pkey -pubout"), "{message}");

    assert_eq!(pair_fault(&cert, None).0, PairFault::NoKey);
    assert_eq!(pair_fault(&dir.file("one.key", &one.key), None).0, PairFault::NoCertificate);

    let keys = dir.file("both.key", format!("\n{}{}", one.key, two.key));
    let (fault, message) = pair_fault(&cert, Some(&keys));
    let second = 2 + one.key.lines().count();
    assert_eq!(fault, PairFault::SeveralKeys(vec![(keys.clone(), 2), (keys, second)]));
    assert!(message.contains(&format!("both.key line {second}")), "{message}");
}

#[test]
fn keys_that_cannot_be_used_are_refused() {
    let dir = Dir::new();
    let cert = dir.file("a.pem", self_signed(&Leaf::default()).cert);
    dir.openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1024 -out small.key");
    dir.openssl("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:secp256k1 -out k1.key");
    dir.openssl("genpkey -algorithm X25519 -out x25519.key");
    for name in ["small.key", "k1.key", "x25519.key"] {
        let (line, fault, message) = content_fault(&cert, Some(&dir.path().join(name)));
        assert_eq!((line, fault), (Some(1), ContentFault::UnsupportedKey), "{name}");
        assert!(message.contains("2048"), "{message}");
    }
}

#[test]
fn a_life_that_is_over_or_not_begun_loads_with_a_warning() {
    let root = Authority::root("root");
    let dir = Dir::new();
    let pair =
        root.issue(&Leaf { not_before: present(), not_after: present() + 60 * DAY, ..Leaf::default() });
    let path = dir.file("a.pem", pair.cert + &pair.key + &root.cert);
    let (not_before, not_after) = (present(), present() + 60 * DAY);
    for (now, expected) in [
        (present() - DAY, Some(Concern::NotYetValid { not_before })),
        (present(), None),
        (present() + 45 * DAY, None),
        (present() + 46 * DAY, Some(Concern::ExpiresSoon { not_after })),
        (present() + 60 * DAY, Some(Concern::Expired { not_after })),
        (present() + 600 * DAY, Some(Concern::Expired { not_after })),
    ] {
        let loaded = load(&path, None, now).unwrap();
        assert_eq!(concerns(&loaded), expected.iter().collect::<Vec<_>>());
        assert_eq!(loaded.certificate.renew_at(), present() + 40 * DAY);
    }
    let message = load(&path, None, present() + 60 * DAY).unwrap().warnings[0].to_string();
    assert!(message.contains("a.pem: the certificate EXPIRED on 2027-01-20"), "{message}");
}

#[test]
fn a_key_open_to_others_is_warned_about() {
    let dir = Dir::new();
    let pair = self_signed(&Leaf::default());
    let (cert, key) = (dir.file("a.pem", pair.cert), dir.file("a.key", pair.key));
    chmod(&cert, 0o644);
    for (bits, open) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
        chmod(&key, bits);
        let loaded = load(&cert, Some(&key), present()).unwrap();
        let found = loaded.warnings.iter().find(|w| matches!(w.concern, Concern::KeyReadable { .. }));
        assert_eq!(found.is_some(), open, "{bits:o}");
        if let Some(warning) = found {
            assert!(warning.to_string().contains(&format!("chmod 600 {}", key.display())), "{warning}");
        }
    }
}

#[test]
fn chains_with_gaps_and_strays_are_warned_about() {
    let root = Authority::root("root");
    let intermediate = root.intermediate("intermediate");
    let other = Authority::root("other");
    let dir = Dir::new();
    let Pair { cert, key } = intermediate.issue(&Leaf::default());
    let load = |text: String| load(&dir.file("a.pem", text), None, present()).unwrap();
    let loaded = load(cert.clone() + &key);
    assert_eq!(concerns(&loaded), [&Concern::NoIssuer { issuer: "CN=intermediate".to_owned() }]);
    let loaded = load(cert.clone() + &key + &root.cert);
    let stray = Concern::Unused { subjects: vec!["CN=root".to_owned()] };
    assert_eq!(concerns(&loaded), [&Concern::NoIssuer { issuer: "CN=intermediate".to_owned() }, &stray]);
    let loaded = load(other.cert.clone() + &cert + &key + &intermediate.cert);
    assert_eq!(concerns(&loaded), [&Concern::Unused { subjects: vec!["CN=other".to_owned()] }]);
    assert_eq!(loaded.certificate.certified_key.cert.len(), 2);
    // Two authorities of one name: the key identifiers tell which is the issuer.
    let namesake = Authority::root("intermediate");
    let loaded = load(namesake.cert.clone() + &cert + &key + &intermediate.cert);
    let own = CertificateDer::from_pem_slice(intermediate.cert.as_bytes()).unwrap();
    assert_eq!(loaded.certificate.certified_key.cert[1..], [own]);
    assert_eq!(concerns(&loaded), [&Concern::Unused { subjects: vec!["CN=intermediate".to_owned()] }]);
}

#[test]
fn of_an_old_and_a_renewed_certificate_of_one_key_the_renewed_serves() {
    let root = Authority::root("root");
    let key = rcgen::KeyPair::generate().unwrap();
    let old = Leaf { not_before: present() - 90 * DAY, not_after: present() - DAY, ..Leaf::default() };
    let (old, new) = (root.issue_for(&old, &key), root.issue_for(&Leaf::default(), &key));
    let dir = Dir::new();
    for text in [old.cert.clone() + &new.cert + &key.serialize_pem(), new.cert + &old.cert + &old.key] {
        let loaded = load(&dir.file("a.pem", text), None, present()).unwrap();
        assert_eq!(loaded.certificate.not_after, present() + 60 * DAY);
    }
}

#[test]
fn names_come_from_the_cn_only_without_subject_alt_names() {
    let dir = Dir::new();
    let load = |common_name, names| {
        let pair = self_signed(&Leaf { common_name, names, ..Leaf::default() });
        let mut loaded = load(&dir.file("a.pem", pair.cert + &pair.key), None, present()).unwrap();
        loaded.warnings.retain(|warning| warning.concern != Concern::SelfSigned);
        loaded
    };
    let names =
        |loaded: &Loaded| loaded.certificate.names.iter().map(ToString::to_string).collect::<Vec<_>>();

    let loaded = load("old.example.org", &["example.org"]);
    assert_eq!(names(&loaded), ["example.org"]);
    assert_eq!(concerns(&loaded), Vec::<&Concern>::new());

    let loaded = load("old.example.org", &[]);
    assert_eq!(names(&loaded), ["old.example.org"]);
    assert_eq!(concerns(&loaded), [&Concern::CommonNameOnly { name: "old.example.org".to_owned() }]);

    for name in ["Example Corp", ""] {
        let loaded = load(name, &[]);
        assert_eq!((names(&loaded).len(), concerns(&loaded)), (0, vec![&Concern::NoNames]));
    }

    let loaded = load("a", &["192.0.2.1"]);
    assert_eq!((names(&loaded).len(), concerns(&loaded).len()), (0, 0));

    let loaded = load("a", &["f*.example.org", "example.org"]);
    assert_eq!(names(&loaded), ["example.org"]);
    assert_eq!(concerns(&loaded), [&Concern::UnusableName { name: "f*.example.org".to_owned() }]);
}
