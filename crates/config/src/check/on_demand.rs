//! `certificate.on_demand`: names that are ordered when a client first asks for them.

use super::ValueReader;
use super::acme::issuable_on_demand;
use crate::error::Problem;
use crate::model::{AcmeAuthority, OnDemand};
use crate::raw::Section;

/// Reads the section of a `[[certificate]]` with `acme`; `asked` are its authorities.
pub(super) fn on_demand(
    certificate: &Section,
    section: &Section,
    asked: &[AcmeAuthority],
    reader: &mut ValueReader<'_, '_>,
) -> OnDemand {
    if certificate.mentions("names") {
        let problem =
            Problem::new("`names` are ordered at once, those of `on_demand` when a client asks for them");
        let help = "write them as on_demand = { names = [\"…\"] }, or in a [[certificate]] of their own";
        reader.report.whole(certificate.key_span("names"), problem.help(help));
    }
    if certificate.bool("default") == Some(true) {
        let problem =
            Problem::new("a certificate on demand is for its own name only and cannot be the default");
        reader.report.whole(certificate.key_span("default"), problem.help("leave `default` out"));
    }
    let on_demand: OnDemand = reader.filled("certificate.on_demand", section);
    for text in section.list("names").unwrap_or_default() {
        // One that is no host is reported where the list is read.
        if let Ok(host) = text.value.parse() {
            reader.ok_or_report(&text.span, issuable_on_demand(&host, asked));
        }
    }
    if !section.mentions("names") && !section.mentions("ask") {
        let problem = Problem::new("`on_demand` allows no name to get a certificate");
        let help = "add names = [\"*.example.org\"], or ask = \"http://…\" to have an application decide";
        reader.report.whole(certificate.key_span("on_demand"), problem.help(help));
    }
    on_demand
}
