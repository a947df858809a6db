//! Parser of the request line (RFC 9112 §3): exactly two single spaces.

use std::ops::Range;

use super::{HeadLimits, Http1Version, TargetForm};
use crate::fault::Http1Fault;
use crate::host::Authority;
use crate::scan;
use crate::target::MAX_METHOD;
use crate::target::{self, QueryForm, split};

/// A request line; ranges count from its first byte.
#[derive(Debug)]
pub(super) struct RequestLine {
    pub(super) method: Range<usize>,
    pub(super) target: Range<usize>,
    pub(super) form: TargetForm,
    pub(super) version: Http1Version,
    pub(super) query: QueryForm,
}

/// Faults that show before the line is complete: a method or a target that is too long.
///
/// Also checked first for complete lines, so that the result does not depend on how the bytes arrive.
#[inline]
pub(super) fn too_long(start: &[u8], limits: &HeadLimits) -> Option<Http1Fault> {
    if start.len() <= limits.target as usize {
        return None;
    }
    let Some(space) = start.iter().take(MAX_METHOD + 1).position(|&byte| byte == b' ') else {
        return (start.len() > MAX_METHOD).then_some(Http1Fault::MethodTooLong);
    };
    let target = &start[space + 1..];
    let end = scan::target(target, 0);
    // Other bytes that are invalid in a target are rejected when the line is complete.
    let length = target[end..].iter().position(|&byte| byte == b' ').map_or(target.len(), |more| end + more);
    (length > limits.target as usize).then_some(Http1Fault::TargetTooLong)
}

/// Parses a complete line, which has no control bytes except TAB.
#[inline]
pub(super) fn read(line: &[u8], limits: &HeadLimits) -> Result<RequestLine, Http1Fault> {
    if let Some(fault) = too_long(line, limits) {
        return Err(fault);
    }
    let method = method_end(line)?;
    let start = method + 1;
    let mut end = scan::target(line, start);
    let mut query = QueryForm::Encoded;
    if line.get(end).is_some_and(|&byte| target::is_raw(byte)) {
        (end, query) = (target::raw_end(line, start), QueryForm::Raw);
        if std::str::from_utf8(&line[start..end]).is_err() {
            return Err(Http1Fault::TargetByte);
        }
    }
    match line.get(end) {
        Some(b' ') if end > start => {}
        Some(b' ' | b'\t') => return Err(Http1Fault::RequestLineSpace),
        Some(b'#') => return Err(Http1Fault::TargetFragment),
        Some(_) => return Err(Http1Fault::TargetByte),
        // Without a version: HTTP/0.9, or truncated.
        None => return Err(Http1Fault::RequestLine),
    }
    let version = version(&line[end + 1..])?;
    let form = form(&line[..method], &line[start..end])?;
    if form == TargetForm::Authority && !limits.connect {
        return Err(Http1Fault::Connect);
    }
    Ok(RequestLine { method: 0..method, target: start..end, form, version, query })
}

/// Matches the start of the HTTP/2 preface (RFC 9113 §3.4).
pub(super) fn is_http2(line: &[u8]) -> bool {
    line == b"PRI * HTTP/2.0"
}

/// Position of the space behind the method.
fn method_end(line: &[u8]) -> Result<usize, Http1Fault> {
    // Most methods have three or four letters; vector instructions do not pay off.
    let end = line.iter().position(|&byte| !scan::is_token(byte)).unwrap_or(line.len());
    match line.get(end) {
        _ if end > MAX_METHOD => Err(Http1Fault::MethodTooLong),
        Some(b' ') if end > 0 => Ok(end),
        Some(b' ' | b'\t') => Err(Http1Fault::RequestLineSpace),
        Some(_) => Err(Http1Fault::Method),
        None => Err(Http1Fault::RequestLine),
    }
}

/// Form of the target (RFC 9112 §3.2), which depends on the method.
#[inline]
fn form(method: &[u8], target: &[u8]) -> Result<TargetForm, Http1Fault> {
    if method == b"CONNECT" {
        // The port is mandatory (RFC 9110 §9.3.6).
        return match Authority::parse(target) {
            Ok(authority) if authority.port().is_some() => Ok(TargetForm::Authority),
            _ => Err(Http1Fault::TargetForm),
        };
    }
    match target {
        [b'/', ..] => target::check_path(target).map(|()| TargetForm::Origin),
        b"*" if method == b"OPTIONS" => Ok(TargetForm::Asterisk),
        _ => {
            let (_, _, path) = split(target).ok_or(Http1Fault::TargetForm)?;
            absolute(target).ok_or(Http1Fault::TargetForm)?;
            target::check_path(path).map(|()| TargetForm::Absolute)
        }
    }
}

/// Authority of an absolute target and the default port of its scheme. Schemes other than `http` and `https`,
/// user information and empty hosts are rejected.
pub(super) fn absolute(target: &[u8]) -> Option<(Authority<'_>, u16)> {
    let (scheme, authority, _) = split(target)?;
    Authority::parse(authority).ok().map(|authority| (authority, scheme.port()))
}

#[inline]
fn version(text: &[u8]) -> Result<Http1Version, Http1Fault> {
    match text {
        b"HTTP/1.1" => Ok(Http1Version::Http11),
        b"HTTP/1.0" => Ok(Http1Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(Http1Fault::Version)
        }
        _ if text.iter().any(|byte| matches!(byte, b' ' | b'\t')) => Err(Http1Fault::RequestLineSpace),
        _ => Err(Http1Fault::VersionMalformed),
    }
}
