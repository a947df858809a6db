//! Number, lifetime and scope of session tickets.

use std::sync::Arc;
use std::time::Duration;

use offramp_tls::{ClientVerification, TicketKeys};
use rustls::{AlertDescription, CipherSuite, ClientConfig, HandshakeKind};

use crate::fixtures::{NAME, OTHER, Setup, TLS12_ECDSA, TLS13, client, client_with, pki};
use crate::rig::{Met, alert, connect, meet};

fn both_versions() -> [Vec<CipherSuite>; 2] {
    [TLS13.to_vec(), TLS12_ECDSA.to_vec()]
}

fn assert_full(met: &Met) {
    assert!(!met.server.resumed, "{met:?}");
    assert_ne!(met.kind, HandshakeKind::Resumed, "{met:?}");
}

fn assert_resumed(met: &Met) {
    assert!(met.server.resumed, "{met:?}");
    assert_eq!(met.kind, HandshakeKind::Resumed, "{met:?}");
}

#[test]
fn a_full_handshake_gives_as_many_tickets_as_the_policy_says() {
    for tickets in [0, 1, 2, 5] {
        let (setup, config) = (Setup::with_tickets(tickets), Arc::new(client(&TLS13)));
        let first = meet(&setup, &config);
        assert_full(&first);
        assert_eq!(first.tickets as usize, tickets);
        let second = meet(&setup, &config);
        if tickets == 0 { assert_full(&second) } else { assert_resumed(&second) }
    }
}

#[test]
fn tls12_resumes_by_ticket_or_not_at_all() {
    for tickets in [0, 1, 2] {
        let (setup, config) = (Setup::with_tickets(tickets), Arc::new(client(&TLS12_ECDSA)));
        let first = meet(&setup, &config);
        assert_full(&first);
        assert!(first.server.group.is_some());
        let second = meet(&setup, &config);
        if tickets == 0 {
            assert_full(&second);
        } else {
            assert_resumed(&second);
            assert_eq!(second.server.group, None, "no key exchange took place");
        }
    }
}

#[test]
fn a_ticket_outlives_one_rotation_but_not_two() {
    for suites in both_versions() {
        let (setup, config) = (Setup::default(), Arc::new(client(&suites)));
        assert_full(&meet(&setup, &config));
        setup.tickets.rotate().unwrap();
        assert_resumed(&meet(&setup, &config));

        let (setup, config) = (Setup::default(), Arc::new(client(&suites)));
        assert_full(&meet(&setup, &config));
        setup.tickets.rotate().unwrap();
        setup.tickets.rotate().unwrap();
        assert_full(&meet(&setup, &config));
        assert_resumed(&meet(&setup, &config));
    }
}

#[test]
fn another_process_cannot_use_a_ticket() {
    for suites in both_versions() {
        let (setup, config) = (Setup::default(), Arc::new(client(&suites)));
        assert_full(&meet(&setup, &config));
        let tickets = Arc::new(TicketKeys::new(Duration::from_secs(60)).unwrap());
        assert_full(&meet(&Setup { tickets, ..setup }, &config));
    }
}

#[test]
fn a_new_configuration_with_the_same_rules_honours_old_tickets() {
    for suites in both_versions() {
        let config = Arc::new(client(&suites));
        let before = Setup::default();
        let after =
            Setup { certificates: vec![Arc::clone(&pki().rsa), Arc::clone(&pki().ecdsa)], ..before.clone() };
        assert_full(&meet(&before, &config));
        assert_resumed(&meet(&after, &config));
    }
}

#[test]
fn a_ticket_is_bound_to_its_server_name() {
    let setup = Setup { certificates: vec![Arc::clone(&pki().other)], default: false, ..Setup::default() };
    let config = Arc::new(client(&[]));
    assert_full(&connect(&setup, &config, OTHER).unwrap());
    assert_resumed(&connect(&setup, &config, OTHER).unwrap());
    connect(&setup, &config, NAME).unwrap_err();
}

/// Clients with and without a certificate present tickets of a server that requests none to a server that
/// does.
#[test]
fn a_ticket_is_no_way_around_a_client_certificate() {
    for suites in both_versions() {
        let open = Setup::default();
        let required =
            Setup { auth: ClientVerification::Required(Arc::clone(&pki().roots).into()), ..open.clone() };
        let optional =
            Setup { auth: ClientVerification::Optional(Arc::clone(&pki().roots).into()), ..open.clone() };

        for from in [&open, &optional] {
            let without = Arc::new(client(&suites));
            assert_full(&meet(from, &without));
            assert_resumed(&meet(from, &without));
            let refused = connect(&required, &without, NAME).unwrap_err();
            assert_eq!(alert(&refused.client), Some(AlertDescription::CertificateRequired));
        }

        let with = Arc::new(client_with(&suites, &pki().client));
        assert_full(&meet(&open, &with));
        let met = meet(&required, &with);
        assert_full(&met);
        assert!(met.server.client_certificate.is_some());
    }
}

#[test]
fn a_resumed_session_still_knows_the_client_certificate() {
    for suites in both_versions() {
        let setup = Setup::with_auth(ClientVerification::Required(Arc::clone(&pki().roots).into()));
        let config = Arc::new(client_with(&suites, &pki().client));
        assert_full(&meet(&setup, &config));
        let met = meet(&setup, &config);
        assert_resumed(&met);
        assert_eq!(met.server.client_certificate.as_deref(), Some(&*pki().client.chain[0]));
    }
}

#[test]
fn a_ticket_is_bound_to_the_trusted_roots() {
    for suites in both_versions() {
        let before = Setup::with_auth(ClientVerification::Required(Arc::clone(&pki().strange_roots).into()));
        let after =
            Setup { auth: ClientVerification::Required(Arc::clone(&pki().roots).into()), ..before.clone() };
        let config: Arc<ClientConfig> = Arc::new(client_with(&suites, &pki().stranger));
        assert_full(&meet(&before, &config));
        assert_resumed(&meet(&before, &config));
        let refused = connect(&after, &config, NAME).unwrap_err();
        assert_eq!(alert(&refused.client), Some(AlertDescription::UnknownCA));
    }
}
