//! Who may enter: what is checked of a request between its route and what the route does.

use std::net::IpAddr;

use crate::snapshot::http::Access;

/// Whether clients with this address may enter.
pub(crate) fn admits_address(access: &Access, client: Option<IpAddr>) -> bool {
    access.addresses.as_ref().is_none_or(|rules| rules.admits(client))
}
