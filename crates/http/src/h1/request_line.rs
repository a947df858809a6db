//! The first line of a request (RFC 9112 §3), by the letter: one space, one space, nothing else.

use std::ops::Range;

use super::{Form, Http1Fault, Limits, MAX_METHOD, Version, scan};
use crate::host::Authority;
use crate::target::{self, QueryForm, split};

/// A request line; places count from its first byte.
#[derive(Debug)]
pub(super) struct RequestLine {
    pub(super) method: Range<usize>,
    pub(super) target: Range<usize>,
    pub(super) form: Form,
    pub(super) version: Version,
    pub(super) query: QueryForm,
}

/// What can be refused before the end of the line has come: a method or a target that is too long.
///
/// Asked first for whole lines too, so that it does not matter how the bytes arrive.
#[inline]
pub(super) fn too_long(start: &[u8], limits: &Limits) -> Option<Http1Fault> {
    if start.len() <= limits.target as usize {
        return None;
    }
    let Some(space) = start.iter().take(MAX_METHOD + 1).position(|&byte| byte == b' ') else {
        return (start.len() > MAX_METHOD).then_some(Http1Fault::MethodTooLong);
    };
    let target = &start[space + 1..];
    let end = scan::target(target, 0);
    // What cannot be part of a target and is no space is refused as such when the line is complete.
    let length = target[end..].iter().position(|&byte| byte == b' ').map_or(target.len(), |more| end + more);
    (length > limits.target as usize).then_some(Http1Fault::TargetTooLong)
}

/// Reads a whole line, which has no control bytes but TABs.
#[inline]
pub(super) fn read(line: &[u8], limits: &Limits) -> Result<RequestLine, Http1Fault> {
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
        // Without a version: HTTP/0.9, or cut short.
        None => return Err(Http1Fault::RequestLine),
    }
    let version = version(&line[end + 1..])?;
    let form = form(&line[..method], &line[start..end])?;
    if form == Form::Authority && !limits.connect {
        return Err(Http1Fault::Connect);
    }
    Ok(RequestLine { method: 0..method, target: start..end, form, version, query })
}

/// Whether the line is the start of the HTTP/2 preface (RFC 9113 §3.4).
pub(super) fn is_http2(line: &[u8]) -> bool {
    line == b"PRI * HTTP/2.0"
}

/// The place of the space behind the method.
fn method_end(line: &[u8]) -> Result<usize, Http1Fault> {
    // Most methods are three or four letters long; a vector is not worth its set-up.
    let end = line.iter().position(|&byte| !scan::is_token(byte)).unwrap_or(line.len());
    match line.get(end) {
        _ if end > MAX_METHOD => Err(Http1Fault::MethodTooLong),
        Some(b' ') if end > 0 => Ok(end),
        Some(b' ' | b'\t') => Err(Http1Fault::RequestLineSpace),
        Some(_) => Err(Http1Fault::Method),
        None => Err(Http1Fault::RequestLine),
    }
}

/// Which form the target has (RFC 9112 §3.2), which depends on the method.
#[inline]
fn form(method: &[u8], target: &[u8]) -> Result<Form, Http1Fault> {
    if method == b"CONNECT" {
        // Port and all (RFC 9110 §9.3.6).
        return match Authority::parse(target) {
            Ok(authority) if authority.port().is_some() => Ok(Form::Authority),
            _ => Err(Http1Fault::TargetForm),
        };
    }
    match target {
        [b'/', ..] => target::check_path(target).map(|()| Form::Origin),
        b"*" if method == b"OPTIONS" => Ok(Form::Asterisk),
        _ => {
            let (_, _, path) = split(target).ok_or(Http1Fault::TargetForm)?;
            absolute(target).ok_or(Http1Fault::TargetForm)?;
            target::check_path(path).map(|()| Form::Absolute)
        }
    }
}

/// The authority of an absolute target and the port that its scheme implies. Schemes other than `http` and
/// `https`, user information and empty hosts are refused.
pub(super) fn absolute(target: &[u8]) -> Option<(Authority<'_>, u16)> {
    let (scheme, authority, _) = split(target)?;
    Authority::parse(authority).ok().map(|authority| (authority, scheme.port()))
}

#[inline]
fn version(text: &[u8]) -> Result<Version, Http1Fault> {
    match text {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(Http1Fault::Version)
        }
        _ if text.iter().any(|byte| matches!(byte, b' ' | b'\t')) => Err(Http1Fault::RequestLineSpace),
        _ => Err(Http1Fault::VersionMalformed),
    }
}
