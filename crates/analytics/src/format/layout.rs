//! The formats of nginx and Apache that have a name, and the lines that fit one of them only by accident.
//!
//! A line of one format can have the syntax of another: a host at the front is taken for a client whose name was looked
//! up, `X-Forwarded-For` at the end for a host. So the values are looked at too, and a line is refused with the name of
//! the format that would read it right. Of one line that ends with an address nobody can say whether that is a host or a
//! forwarded client; then the lines around it decide ([`Twins`]).

use std::fmt::Write;

use super::draft::Draft;
use super::host::HostText;
use super::{FormatError, address, compile, program};
use crate::parse_error::ParseError;

/// A named format of lines that have the same parts in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedLayout {
    Combined,
    Common,
    /// `combined` with the host at the end.
    Vhost,
    /// `combined` with `X-Forwarded-For` at the end: nginx.org's packages, Red Hat's.
    Main,
    /// `combined` behind host and port: Debian's Apache.
    VhostCombined,
    /// `common` behind the host: Apache's documentation.
    VhostCommon,
}

impl NamedLayout {
    /// The format of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "combined" => Self::Combined,
            "common" => Self::Common,
            "vhost" => Self::Vhost,
            "main" => Self::Main,
            "vhost_combined" => Self::VhostCombined,
            "vhost_common" => Self::VhostCommon,
            _ => return None,
        })
    }

    /// The program that takes its lines apart.
    pub(super) fn program(self) -> Result<program::Program, FormatError> {
        let mut text = String::new();
        text += if matches!(self, Self::VhostCombined | Self::VhostCommon) { "$vhost " } else { "" };
        // The second field is Apache's `%l`, which nginx writes as a dash.
        text += if self == Self::Main { "$remote_addr - " } else { "$remote_addr $remote_ident " };
        text += r#"$remote_user [$time_local] "$request" $status $body_bytes_sent"#;
        if !matches!(self, Self::Common | Self::VhostCommon) {
            text += r#" "$http_referer" "$http_user_agent""#;
        }
        let last = match self {
            Self::Vhost => "host",
            Self::Main => "http_x_forwarded_for",
            _ => "",
        };
        if !last.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(text, " \"${last}\"");
        }
        Ok(program::Program { layout: Some(self), ..compile::compile(&text)? })
    }

    /// Refuses a line whose values belong to another format.
    pub(super) fn check(self, line: &[u8], draft: &Draft<'_>, twins: &mut Twins) -> Result<(), ParseError> {
        match self {
            Self::Combined | Self::Vhost if has_host_first(draft) => {
                return Err(ParseError::new(
                    0,
                    "the client first: lines with a host before it are `vhost_combined`",
                ));
            }
            Self::Common if has_host_first(draft) => {
                return Err(ParseError::new(
                    0,
                    "the client first: lines with a host before it are `vhost_common`",
                ));
            }
            Self::VhostCombined | Self::VhostCommon => return host_then_client(draft),
            Self::Combined | Self::Common | Self::Vhost | Self::Main => {}
        }
        let last = match self {
            Self::Vhost => draft.entry.host,
            _ => draft.original.forwarded,
        };
        match (self, last) {
            (Self::Vhost, Some(host)) => twins.host(host).map_err(|error| error.moved(offset(line, host))),
            (Self::Main, Some(list)) => {
                twins.forwarded(list).map_err(|error| error.moved(offset(line, list)))
            }
            _ => Ok(()),
        }
    }

    /// Looks at a line only for what the lines around it may be.
    pub(super) fn look(self, draft: &Draft<'_>, twins: &mut Twins) {
        let _ = match self {
            Self::Vhost => twins.count(draft.entry.host),
            Self::Main => twins.count(draft.original.forwarded),
            _ => HostText::Other,
        };
    }

    /// Set for the formats whose lines end with what may be a host or a forwarded client.
    pub(super) const fn has_twin(self) -> bool {
        matches!(self, Self::Vhost | Self::Main)
    }
}

/// What stands at the end of `vhost` and `main`, as far as lines have been seen: both have the same syntax, and in both
/// the last field may be an address.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Twins {
    names: u64,
    addresses: u64,
    /// Values that no host has.
    lists: u64,
    /// Set where lines of the same log were read before.
    settled: bool,
}

impl Twins {
    /// Takes every line by its syntax.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }

    fn count(&mut self, text: Option<&[u8]>) -> HostText {
        let kind = text.map_or(HostText::Other, HostText::of);
        match kind {
            HostText::Name => self.names += 1,
            HostText::Address => self.addresses += 1,
            HostText::Forwarded => self.lists += 1,
            HostText::Other => {}
        }
        kind
    }

    /// Refuses what is no host, and an address where no line has had a name.
    fn host(&mut self, text: &[u8]) -> Result<(), ParseError> {
        match self.count(Some(text)) {
            HostText::Name => Ok(()),
            HostText::Address if self.settled || self.names > self.lists => Ok(()),
            HostText::Address => Err(ParseError::new(
                0,
                "the name of a host, here or in a line before: lines with X-Forwarded-For at the end are `main`, and for \
                 hosts that are addresses give --log-format",
            )),
            HostText::Forwarded => {
                Err(ParseError::new(0, "a host: lines with X-Forwarded-For at the end are `main`"))
            }
            HostText::Other => Err(ParseError::new(0, "a host")),
        }
    }

    /// Refuses lines where more than a few last fields are names. A few are what clients wrote into their headers, as is
    /// whatever is no host.
    fn forwarded(&mut self, text: &[u8]) -> Result<(), ParseError> {
        let is_clear = matches!(self.count(Some(text)), HostText::Forwarded | HostText::Other);
        if is_clear || self.settled || self.names * FEW <= self.addresses + self.lists {
            return Ok(());
        }
        Err(ParseError::new(0, "addresses of X-Forwarded-For: lines with a host at the end are `vhost`"))
    }
}

/// One name among so many addresses says nothing.
const FEW: u64 = 4;

/// Set for lines that begin with a host: the client has moved to where the identity stands (RFC 1413), and the identity
/// to the user. A client without an address was a name that was looked up; such a log has no identities.
fn has_host_first(draft: &Draft<'_>) -> bool {
    let moved = |ident| draft.entry.client.is_none() || is_address(ident);
    draft.original.ident.is_some_and(moved) || draft.entry.user.is_some_and(|user| user.starts_with(b"- "))
}

/// Refuses `combined` and `common`, whose identity is taken for the client where there is one.
fn host_then_client(draft: &Draft<'_>) -> Result<(), ParseError> {
    let host = draft.entry.host.map_or(HostText::Other, HostText::of);
    if !matches!(host, HostText::Name | HostText::Address) {
        return Err(ParseError::new(0, "a host, and behind it the client"));
    }
    let is_odd =
        draft.entry.client.is_none() && (host == HostText::Address || draft.original.ident.is_some());
    if draft.original.client.is_none() || is_odd || draft.original.ident.is_some_and(is_address) {
        return Err(ParseError::new(
            0,
            "a host before the client: lines without one are `combined` or `common`",
        ));
    }
    Ok(())
}

fn is_address(text: &[u8]) -> bool {
    matches!(address::parse(text), Ok(Some(_)))
}

/// The offset at which a part of a line begins.
fn offset(line: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).saturating_sub(line.as_ptr() as usize)
}
