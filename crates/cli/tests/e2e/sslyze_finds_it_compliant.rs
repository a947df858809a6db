//! SSLyze holds Offramp to Mozilla's "intermediate" configuration, with certificates of the local CA.
//!
//! SSLyze comes from PyPI into a virtual environment beside the build, once; later runs use it again.
//! That a public authority vouches for the certificate is the one thing that no test can have, and
//! Mozilla's configuration does not ask for it. Nor is it asked about resumption: it takes a ticket that is
//! renewed, as it should be, for one that was refused.

use std::fs;
use std::process::Command;

use offramp_testkit::server::{Listen, Server, apps};
use serde_json::Value;

use crate::support::instance::{Home, LISTENER};
use crate::support::venv::{self, succeed};

/// What the expectations below were written for.
const VERSION: &str = "6.3.1";

/// Scans an Offramp with these settings against one of Mozilla's configurations, and gives what is
/// printed and what is found.
fn scan(settings: &str, route: &str, mozilla: &str) -> (String, Value) {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = Home::new().run(&format!(
        "{settings}{LISTENER}[[certificate]]\nlocal = true\nnames = [\"localhost\"]\n[[route]]\nserver = \"{}\"\n{route}",
        app.address()
    ));
    let mut sslyze = Command::new(venv::python("sslyze", VERSION));
    sslyze.args(["-m", "sslyze", &format!("--mozilla_config={mozilla}"), "--certinfo", "--early_data"]);
    sslyze.arg("--certinfo_ca_file").arg(instance.home.file("state/ca/ca.pem"));
    sslyze.args([
        "--json_out",
        "found.json",
        &format!("localhost:{}{{127.0.0.1}}", instance.address().port()),
    ]);
    sslyze.current_dir(instance.home.path());
    let said = succeed(sslyze, "SSLyze says what is not compliant");
    let found = fs::read_to_string(instance.home.file("found.json")).unwrap();
    instance.stop();
    (said, serde_json::from_str(&found).unwrap())
}

/// What one scan has found.
fn result<'a>(found: &'a Value, scan: &str) -> &'a Value {
    let result = &found["server_scan_results"][0]["scan_result"][scan];
    assert_eq!(result["status"], "COMPLETED", "{scan}: {result}");
    &result["result"]
}

/// The suites that are accepted in one version, sorted.
fn accepted<'a>(found: &'a Value, version: &str) -> Vec<&'a str> {
    let suites =
        result(found, &format!("{version}_cipher_suites"))["accepted_cipher_suites"].as_array().unwrap();
    let mut names: Vec<_> =
        suites.iter().filter_map(|suite| suite["cipher_suite"]["name"].as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn sslyze_finds_it_compliant() {
    let (said, found) = scan("", "", "intermediate");
    assert!(said.contains("OK - Compliant"), "{said}");
    for version in ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"] {
        assert_eq!(accepted(&found, version), Vec::<&str>::new(), "{version}");
    }
    assert_eq!(
        accepted(&found, "tls_1_2"),
        [
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        ]
    );
    let tls13 = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
    assert_eq!(accepted(&found, "tls_1_3"), tls13);
    // More than Mozilla asks for.
    assert_eq!(result(&found, "tls_1_3_early_data")["supports_early_data"], false);
    assert_eq!(result(&found, "session_renegotiation")["is_vulnerable_to_client_renegotiation_dos"], false);
    let chain = &result(&found, "certificate_info")["certificate_deployments"][0];
    let paths = chain["path_validation_results"].as_array().unwrap();
    let ours =
        |path: &&Value| path["trust_store"]["name"].as_str().is_some_and(|name| name.contains("upplied"));
    let ours = paths.iter().find(ours).unwrap_or_else(|| panic!("{paths:?}"));
    assert_eq!(ours["was_validation_successful"], true, "{ours}");
}

/// Where clients may show a certificate, too.
#[test]
fn sslyze_finds_it_compliant_where_clients_show_certificates() {
    let home = Home::new();
    let ca = home.ca.certificate().display().to_string();
    let route = format!("client_auth = {{ mode = \"optional\", ca = \"{ca}\" }}\n");
    let (said, found) = scan("", &route, "intermediate");
    assert!(said.contains("OK - Compliant"), "{said}");
    assert_eq!(found["server_scan_results"][0]["connectivity_result"]["client_auth_requirement"], "OPTIONAL");
}

#[test]
fn sslyze_finds_the_modern_policy_compliant() {
    let (said, found) = scan("[tls]\npolicy = \"modern\"\n", "", "modern");
    assert!(said.contains("OK - Compliant"), "{said}");
    assert_eq!(accepted(&found, "tls_1_2"), Vec::<&str>::new());
}
