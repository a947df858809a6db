//! The named formats of nginx and Apache, with checks for lines that fit one of them only by accident.
//!
//! A line of one format can have the syntax of another: a leading host passes for a client with a name that was
//! looked up, a trailing `X-Forwarded-For` for a host. So values are checked too, and a line is rejected with
//! the name of the format that reads it correctly. A trailing address alone may be a host or a forwarded
//! client; then the lines around it decide ([`Twins`]).

use std::fmt::Write;

use super::draft::EntryDraft;
use super::host::HostText;
use super::{FormatError, address, compile, program};
use crate::parse_error::ParseError;

/// A named format. All have the same parts in different orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedLayout {
    Combined,
    Common,
    /// `combined` followed by the host.
    Vhost,
    /// `combined` followed by `X-Forwarded-For`: nginx.org's packages, Red Hat's.
    Main,
    /// Host and port followed by `combined`: Debian's Apache.
    VhostCombined,
    /// The host followed by `common`: Apache's documentation.
    VhostCommon,
}

impl NamedLayout {
    /// Looks a format up by its name.
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

    /// Compiles the program for the format's lines.
    pub(super) fn program(self) -> Result<program::LineProgram, FormatError> {
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
        Ok(program::LineProgram { layout: Some(self), ..compile::compile(&text)? })
    }

    /// Rejects a line with values of another format.
    pub(super) fn check(
        self,
        line: &[u8],
        draft: &EntryDraft<'_>,
        twins: &mut Twins,
    ) -> Result<(), ParseError> {
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

    /// Records a line only as evidence for its neighbours.
    pub(super) fn look(self, draft: &EntryDraft<'_>, twins: &mut Twins) {
        let _ = match self {
            Self::Vhost => twins.count(draft.entry.host),
            Self::Main => twins.count(draft.original.forwarded),
            _ => HostText::Other,
        };
    }

    /// Set for formats whose last field may be a host or a forwarded client.
    pub(super) const fn has_twin(self) -> bool {
        matches!(self, Self::Vhost | Self::Main)
    }
}

/// Statistics of the last field of `vhost` and `main` over the lines so far: both formats have the same
/// syntax, and in both the field may be an address.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Twins {
    names: u64,
    addresses: u64,
    /// Values that cannot be a host.
    lists: u64,
    /// Set if lines of the same log were read before.
    settled: bool,
}

impl Twins {
    /// Accepts every line by its syntax from now on.
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

    /// Rejects values that are not hosts, and addresses while no line had a name.
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

    /// Rejects names, unless they are few: clients can put anything into the header.
    fn forwarded(&mut self, text: &[u8]) -> Result<(), ParseError> {
        let is_clear = matches!(self.count(Some(text)), HostText::Forwarded | HostText::Other);
        if is_clear || self.settled || self.names * FEW <= self.addresses + self.lists {
            return Ok(());
        }
        Err(ParseError::new(0, "addresses of X-Forwarded-For: lines with a host at the end are `vhost`"))
    }
}

/// One name among this many addresses proves nothing.
const FEW: u64 = 4;

/// Returns `true` for lines that start with a host: the client is in the place of the identity (RFC 1413),
/// and the identity in that of the user. A client without an address is a host name; such logs have no
/// identities.
fn has_host_first(draft: &EntryDraft<'_>) -> bool {
    let moved = |ident| draft.entry.client.is_none() || is_address(ident);
    draft.original.ident.is_some_and(moved) || draft.entry.user.is_some_and(|user| user.starts_with(b"- "))
}

/// Rejects `combined` and `common` lines where the identity passes for the client.
fn host_then_client(draft: &EntryDraft<'_>) -> Result<(), ParseError> {
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

/// The offset of a part in its line.
fn offset(line: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).saturating_sub(line.as_ptr() as usize)
}
