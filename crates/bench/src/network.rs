//! The network that a run measures in, and why it may be one of its own.
//!
//! A congestion control that paces holds back what is sent with a timer of the kernel, on the loopback too,
//! where there is nothing to pace. That changes the CPU time of bulk data, and not for all alike: who writes much
//! at once pays for the timer, who writes little has several writes sent as one. So a run has the one that it
//! asks for, in a network namespace, and the machine's own setting stays as it is.

pub(crate) mod namespace;

use serde::{Deserialize, Serialize};

use crate::args::RunArgs;
use crate::error::{Error, Result};

/// What Linux ships with.
pub(crate) const USUAL: &str = "cubic";
/// The word for leaving the machine's network as it is.
const SYSTEM: &str = "system";

/// The network of a run, as reports tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    /// The congestion control in force; empty in runs from before it was noted.
    pub(crate) congestion: String,
    /// The machine's own, where the run had a namespace of its own.
    pub(crate) machine: Option<String>,
    /// Why the one in force is not the one that was wanted.
    pub(crate) hindered: Option<String>,
}

/// Where to measure.
#[derive(Debug, PartialEq, Eq)]
enum Place<'a> {
    /// In the machine's own network.
    Machine,
    /// In a namespace with this congestion control.
    Namespace(&'a str),
}

/// Settles the network before anything else is started. Where that takes a namespace, this process goes on
/// in it from its beginning, under the same id, and this returns there.
///
/// # Errors
/// When a congestion control was asked for by name and cannot be had.
pub(crate) fn settle(args: &RunArgs) -> Result<Network> {
    let congestion = namespace::congestion();
    if let Some(machine) = args.machine_congestion.clone() {
        return Ok(Network { congestion, machine: Some(machine), hindered: None });
    }
    match choose(args.congestion.as_deref(), &congestion) {
        Place::Machine => Ok(Network { congestion, ..Network::default() }),
        Place::Namespace(wanted) => {
            let why = match namespace::enter(wanted, &congestion) {
                Ok(gone) => match gone {},
                Err(why) => why,
            };
            without(wanted, args.congestion.is_some(), congestion, &why)
        }
    }
}

fn choose<'a>(asked: Option<&'a str>, machine: &str) -> Place<'a> {
    match asked.unwrap_or(USUAL) {
        SYSTEM => Place::Machine,
        wanted if wanted == machine => Place::Machine,
        wanted => Place::Namespace(wanted),
    }
}

/// What becomes of a run that cannot have what it wants: it goes on and says so, unless it was asked for.
fn without(wanted: &str, asked: bool, congestion: String, why: &Error) -> Result<Network> {
    if asked {
        return Err(Error::Usage(format!(
            "--congestion {wanted} cannot be had: {why}; --congestion {SYSTEM} measures with the machine's own, \
             {congestion}"
        )));
    }
    Ok(Network { congestion, machine: None, hindered: Some(format!("{wanted} could not be had: {why}")) })
}

impl Network {
    /// A clause for the description of the machine.
    pub(crate) fn clause(&self) -> String {
        let congestion = if self.congestion.is_empty() { "unknown" } else { &self.congestion };
        match &self.machine {
            Some(machine) => format!(
                "TCP congestion control {congestion}, in a network namespace of its own (the machine's is {machine})"
            ),
            None => format!("TCP congestion control {congestion}"),
        }
    }

    /// What the reader must know of the congestion control; none where it is the usual one.
    pub(crate) fn caveat(&self) -> Option<String> {
        let congestion = &self.congestion;
        let hindered = self.hindered.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        if paces(congestion) {
            return Some(format!(
                "TCP congestion control is {congestion}{hindered}. It paces what is sent with a timer of the kernel, \
                 on the loopback too, which changes the CPU time of bulk data: a proxy that writes much at once pays \
                 for the timer, and one that writes little saves, for several writes are sent as one. Compare bulk \
                 data only with runs under the same; Linux ships with {USUAL}."
            ));
        }
        (!congestion.is_empty() && congestion != USUAL).then(|| {
            format!(
                "TCP congestion control is {congestion}{hindered}, not {USUAL}, which Linux ships with: figures of \
                 other runs may differ for that reason alone."
            )
        })
    }
}

/// Whether it spreads what it sends over time.
fn paces(congestion: &str) -> bool {
    congestion.starts_with("bbr")
}

/// The name of a congestion control, as the kernel allows it.
///
/// # Errors
/// A sentence for the user when it cannot be one.
pub(crate) fn name(text: &str) -> Result<String, String> {
    // TCP_CA_NAME_MAX is 16 with the final zero.
    let fits = (1..=15).contains(&text.len());
    if fits && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        Ok(text.to_owned())
    } else {
        Err(format!("the name of a congestion control, such as {USUAL} or bbr, or {SYSTEM}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(congestion: &str) -> Network {
        Network { congestion: congestion.into(), ..Network::default() }
    }

    #[test]
    fn a_namespace_is_made_only_where_the_machine_has_another() {
        assert_eq!(choose(None, "cubic"), Place::Machine);
        assert_eq!(choose(None, "bbr"), Place::Namespace("cubic"));
        assert_eq!(choose(Some("bbr"), "cubic"), Place::Namespace("bbr"));
        assert_eq!(choose(Some("bbr"), "bbr"), Place::Machine);
        assert_eq!(choose(Some("system"), "bbr"), Place::Machine);
    }

    #[test]
    fn only_what_was_asked_for_by_name_is_insisted_on() {
        let why = || Error::Missing("no `ip` (package iproute2)".into());
        let error = without("cubic", true, "bbr".into(), &why()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("iproute2"), "{error}");
        let network = without("cubic", false, "bbr".into(), &why()).unwrap();
        let caveat = network.caveat().unwrap();
        assert!(caveat.contains("is bbr; cubic could not be had: no `ip`"), "{caveat}");
        assert!(caveat.contains("paces"), "{caveat}");
    }

    #[test]
    fn the_usual_one_needs_no_caveat_and_every_other_has_one() {
        assert_eq!(network("cubic").caveat(), None);
        assert_eq!(network("").caveat(), None);
        assert!(network("reno").caveat().unwrap().contains("not cubic"));
        assert!(network("bbr2").caveat().unwrap().contains("paces"));
        let own = Network { machine: Some("bbr".into()), ..network("cubic") };
        assert!(own.clause().contains("cubic, in a network namespace"), "{}", own.clause());
    }

    #[test]
    fn names_that_the_kernel_cannot_have_are_refused() {
        assert!(name("dctcp").is_ok() && name("system").is_ok());
        for wrong in ["", "../cubic", "a b", "sixteen_letters_"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
