//! `certificate.on_demand`: names that are ordered when the first client asks for them.

use super::Reader;
use super::acme::issuable_on_demand;
use crate::error::Problem;
use crate::model::{Authority, OnDemand};
use crate::raw::{Section, Spanned};
use crate::settings::Scalar;

/// Reads the section of a `[[certificate]]` with `acme`; `asked` are its authorities.
pub(super) fn on_demand(
    certificate: &Section,
    section: &Section,
    asked: &[Authority],
    reader: &mut Reader<'_, '_>,
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
    reader.not_empty(section, "names", "leave it out if `ask` decides on every name");
    let names = reader.list(section, "names", |text: &Spanned<String>, _| {
        let host = text.value.parse()?;
        issuable_on_demand(&host, asked).map(|()| host)
    });
    let ask = section.text("ask").and_then(|text| reader.parsed(&text));
    if !section.mentions("names") && !section.mentions("ask") {
        let problem = Problem::new("`on_demand` allows no name to get a certificate");
        let help = "add names = [\"*.example.org\"], or ask = \"http://…\" to have an application decide";
        reader.report.whole(certificate.key_span("on_demand"), problem.help(help));
    }
    let rate = match section.scalar("rate").map(|scalar| scalar.value) {
        Some(Scalar::Rate(rate)) => *rate,
        _ => OnDemand::RATE,
    };
    OnDemand { names, ask, rate, wait: section.duration("wait").unwrap_or(OnDemand::WAIT) }
}
