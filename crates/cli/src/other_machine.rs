//! Confirmation of requests to other machines: `bench` and `compare` send none there unless `--remote` names them.

use std::net::IpAddr;

use offramp_net::listen;

use crate::failure::Failure;

/// Accepts this machine, and others that `named` has. `harm` and `purpose` are for the text of the refusal.
///
/// # Errors
/// The address is that of another machine that was not named.
pub(crate) fn confirm(
    host: &str,
    address: IpAddr,
    named: &[String],
    harm: &str,
    purpose: &str,
) -> Result<(), Failure> {
    if is_here(address) || named.iter().any(|name| name == host) {
        return Ok(());
    }
    Err(Failure::usage(format_args!(
        "error: {host} is another machine ({address}), and {harm}\nIf it is yours to {purpose}, say its name once more: \
         --remote {host}"
    )))
}

/// Returns true for loopback addresses and those of this machine's interfaces.
pub(crate) fn is_here(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || listen::is_own(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_here() {
        for here in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert!(is_here(here.parse().unwrap()), "{here}");
        }
        for there in ["192.0.2.1", "2001:db8::1"] {
            assert!(!is_here(there.parse().unwrap()), "{there}");
        }
    }

    #[test]
    fn another_machine_needs_its_name() {
        let there = "192.0.2.1".parse().unwrap();
        let refusal = confirm("a.test", there, &["b.test".to_owned()], "it hurts", "try").unwrap_err();
        assert!(
            refusal.to_string().ends_with("If it is yours to try, say its name once more: --remote a.test")
        );
        assert!(confirm("a.test", there, &["a.test".to_owned()], "", "").is_ok());
        assert!(confirm("localhost", "127.0.0.1".parse().unwrap(), &[], "", "").is_ok());
    }
}
