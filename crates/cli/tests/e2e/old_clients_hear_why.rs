//! Clients with nothing in common: an old version is told of the version, and old suites of the suites, whatever else is
//! old about them.

use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::{CERTIFICATE, Home, LISTENER, cause, text};
use crate::support::openssl::refused;

#[test]
fn an_old_client_is_told_what_is_old() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let intermediate = ["", "policy = \"modern\"\n"].map(|policy| {
        let text = format!("[tls]\n{policy}");
        Home::new().run(&format!("{text}{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{}\"\n", app.address()))
    });
    let [intermediate, modern] = &intermediate;
    let old = "ALL:@SECLEVEL=0";
    for (instance, arguments, expected, alert) in [
        (intermediate, &["-tls1_1", "-cipher", old][..], "no_common_version", "protocol_version"),
        (intermediate, &["-tls1", "-cipher", old], "no_common_version", "protocol_version"),
        (modern, &["-tls1_1", "-cipher", old], "no_common_version", "protocol_version"),
        (modern, &["-tls1_2"], "no_common_version", "protocol_version"),
        // Without ECDHE a client names no groups.
        (intermediate, &["-tls1_2", "-cipher", "AES128-SHA"], "no_common_suite", "handshake_failure"),
        (intermediate, &["-tls1_2", "-cipher", "AES128-GCM-SHA256"], "no_common_suite", "handshake_failure"),
        (
            intermediate,
            &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"],
            "no_common_suite",
            "handshake_failure",
        ),
        (
            intermediate,
            &["-tls1_3", "-ciphersuites", "TLS_AES_128_CCM_SHA256"],
            "no_common_suite",
            "handshake_failure",
        ),
        (
            modern,
            &["-tls1_3", "-ciphersuites", "TLS_AES_128_CCM_SHA256", "-groups", "X448"],
            "no_common_suite",
            "handshake_failure",
        ),
        (intermediate, &["-tls1_3", "-groups", "X448"], "no_common_group", "handshake_failure"),
        (intermediate, &["-tls1_2", "-groups", "X448"], "no_common_group", "handshake_failure"),
        (intermediate, &["-tls1_3", "-sigalgs", "RSA-PSS+SHA256"], "no_common_scheme", "handshake_failure"),
    ] {
        let seen = instance.events().len();
        let said = refused(instance, arguments);
        let number = if alert == "protocol_version" { 70 } else { 40 };
        assert!(said.contains(&format!("SSL alert number {number}")), "{arguments:?}: {said}");
        let event = instance.events_of(seen + 1).pop().unwrap();
        assert_eq!((cause(&event), text(&event, "alert_sent")), (expected, alert), "{arguments:?}: {event}");
        for list in ["offered_versions", "offered_suites", "configured_versions", "configured_suites"] {
            assert!(event[list].as_array().is_some_and(|list| !list.is_empty()), "{list}: {event}");
        }
        assert!(!text(&event, "detail").contains("InCommon"), "{event}");
    }
}
