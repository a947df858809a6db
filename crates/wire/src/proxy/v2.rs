//! PROXY protocol version 2: the binary block (specification §2.2).
//!
//! ```text
//!  0           12        13             14       16           16+addresses       16+length
//!  | signature | ver cmd | family proto | length | addresses | TLVs             | the client's bytes
//! ```
//!
//! The block is refused as early as the byte that is wrong; addresses and TLVs are read once all of it is
//! there. It is never searched for: it stands at the front or there is none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::tlv::{TlvWriter, kind};
use super::{
    EndpointPair, Header, MAX_HEADER, MAX_UNIQUE_ID, MAX_UNIX_PATH, OutboundHeader, ProxyAddresses,
    ProxyCommand, ProxyHeaderVersion, SIGNATURE_V2, Tlvs,
};
use crate::{ParseStep, ProxyFault};

/// Length of the fixed part, in bytes.
const HEAD: usize = 16;
/// Offsets of version and command, family and transport, and the length.
const VERSION_COMMAND: usize = 12;
const FAMILY_TRANSPORT: usize = 13;
const LENGTH: usize = 14;

const COMMAND_LOCAL: u8 = 0x20;
const COMMAND_PROXY: u8 = 0x21;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
const UNIX_STREAM: u8 = 0x31;
const UNSPEC: u8 = 0x00;

/// Layout of the address block.
#[derive(Clone, Copy)]
enum AddressLayout {
    /// No addresses in a known layout.
    Unspec,
    /// Addresses of a family without a transport, of this many bytes, which are skipped.
    Skip(usize),
    Inet,
    Inet6,
    Unix,
}

impl AddressLayout {
    /// Length of the address block, in bytes.
    fn length(self) -> usize {
        match self {
            Self::Unspec => 0,
            Self::Skip(length) => length,
            Self::Inet => 2 * 4 + 2 * 2,
            Self::Inet6 => 2 * 16 + 2 * 2,
            Self::Unix => 2 * MAX_UNIX_PATH,
        }
    }
}

/// Reads a v2 block from the front of `buf`.
pub(super) fn parse(buf: &[u8]) -> ParseStep<Header<'_>, ProxyFault> {
    let (command, shape, total) = match read_head(buf) {
        Ok(Some(head)) => head,
        Ok(None) => return ParseStep::Need(HEAD - buf.len()),
        Err(fault) => return ParseStep::Reject(fault),
    };
    let Some(block) = buf.get(..total) else {
        return ParseStep::Need(total - buf.len());
    };
    match read_block(block, command, shape) {
        Ok(value) => ParseStep::Done { value, consumed: total },
        Err(fault) => ParseStep::Reject(fault),
    }
}

/// Validates the received part of the fixed part; `None` while it is incomplete. The last value is the length
/// of the whole block, which covers at least the addresses of the shape.
fn read_head(buf: &[u8]) -> Result<Option<(ProxyCommand, AddressLayout, usize)>, ProxyFault> {
    let seen = buf.len().min(SIGNATURE_V2.len());
    if buf[..seen] != SIGNATURE_V2[..seen] {
        return Err(ProxyFault::NotProxy);
    }
    let Some(&version_command) = buf.get(VERSION_COMMAND) else { return Ok(None) };
    if version_command >> 4 != 2 {
        return Err(ProxyFault::BadVersion(version_command >> 4));
    }
    let command = match version_command {
        COMMAND_LOCAL => ProxyCommand::Local,
        COMMAND_PROXY => ProxyCommand::Proxy,
        other => return Err(ProxyFault::BadCommand(other & 0x0f)),
    };
    let Some(&family_transport) = buf.get(FAMILY_TRANSPORT) else { return Ok(None) };
    let shape = match command {
        // "Discard the protocol block including the family which is ignored."
        ProxyCommand::Local => AddressLayout::Unspec,
        ProxyCommand::Proxy => read_shape(family_transport)?,
    };
    let Some(&[high, low]) = buf.get(LENGTH..HEAD).and_then(<[u8]>::first_chunk) else { return Ok(None) };
    let length = u16::from_be_bytes([high, low]);
    let total = HEAD + usize::from(length);
    if total > MAX_HEADER {
        return Err(ProxyFault::TooLong(length));
    }
    if usize::from(length) < shape.length() {
        return Err(ProxyFault::AddressTruncated(length));
    }
    Ok(Some((command, shape, total)))
}

fn read_shape(family_transport: u8) -> Result<AddressLayout, ProxyFault> {
    let (family, transport) = (family_transport >> 4, family_transport & 0x0f);
    let shape = match family {
        0 => AddressLayout::Unspec,
        1 => AddressLayout::Inet,
        2 => AddressLayout::Inet6,
        3 => AddressLayout::Unix,
        _ => return Err(ProxyFault::BadFamily(family)),
    };
    match (transport, shape) {
        (1, _) | (2, AddressLayout::Unspec) => Ok(shape),
        (0, _) => Ok(if family == 0 { AddressLayout::Unspec } else { AddressLayout::Skip(shape.length()) }),
        (2, _) => Err(ProxyFault::Datagram),
        _ => Err(ProxyFault::BadTransport(transport)),
    }
}

/// Parses a whole block, long enough for the addresses of `shape`.
fn read_block(block: &[u8], command: ProxyCommand, shape: AddressLayout) -> Result<Header<'_>, ProxyFault> {
    let body = &block[HEAD..];
    let (address, rest) = body.split_at(shape.length());
    let addresses = match shape {
        AddressLayout::Unspec | AddressLayout::Skip(_) => ProxyAddresses::Unspec,
        AddressLayout::Inet => tcp::<4>(address),
        AddressLayout::Inet6 => tcp::<16>(address),
        AddressLayout::Unix => {
            let (source, destination) = address.split_at(MAX_UNIX_PATH);
            ProxyAddresses::Unix { source: unix_path(source), destination: unix_path(destination) }
        }
    };
    let tlvs = match (command, shape) {
        (ProxyCommand::Local, _) => Tlvs::default(),
        // Some senders put TLVs behind an unspecified family, others an address block of unknown size, which
        // must be ignored.
        (ProxyCommand::Proxy, AddressLayout::Unspec) => Tlvs::framed(rest).unwrap_or_default(),
        (ProxyCommand::Proxy, _) => Tlvs::framed(rest).ok_or(ProxyFault::TlvTruncated)?,
    };
    tlvs.check_values()?;
    check_sum(block, tlvs)?;
    Ok(Header { version: ProxyHeaderVersion::V2, command, addresses, tlvs })
}

/// Two addresses of `N` bytes and two ports. The caller has cut `block` to their length.
fn tcp<const N: usize>(block: &[u8]) -> ProxyAddresses<'static>
where
    IpAddr: From<[u8; N]>,
{
    let ip = |at: usize| {
        let mut octets = [0; N];
        octets.copy_from_slice(&block[at..at + N]);
        IpAddr::from(octets)
    };
    let port = |at: usize| u16::from_be_bytes([block[at], block[at + 1]]);
    ProxyAddresses::Tcp {
        source: SocketAddr::new(ip(0), port(2 * N)),
        destination: SocketAddr::new(ip(N), port(2 * N + 2)),
    }
}

/// The path in a zero-padded field. An abstract name starts with a zero byte and may hold others.
fn unix_path(field: &[u8]) -> &[u8] {
    let end = match field.first() {
        Some(0) => field.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1),
        _ => field.iter().position(|&byte| byte == 0).unwrap_or(field.len()),
    };
    &field[..end]
}

/// Verifies the checksum, if there is one (§2.2.3): computed over the whole block with the field set to zero.
fn check_sum(block: &[u8], tlvs: Tlvs<'_>) -> Result<(), ProxyFault> {
    let mut found = None;
    let mut rest = tlvs.iter();
    while let Some(tlv) = rest.next() {
        if tlv.kind != kind::CRC32C {
            continue;
        }
        if found.is_some() {
            return Err(ProxyFault::ChecksumRepeated);
        }
        let announced: [u8; 4] =
            tlv.value.try_into().map_err(|_| ProxyFault::ChecksumLength(tlv.value.len()))?;
        // The TLVs end where the block ends.
        found = Some((block.len() - rest.left() - announced.len(), u32::from_be_bytes(announced)));
    }
    match found {
        Some((at, announced)) if checksum_without(block, at) != announced => {
            Err(ProxyFault::ChecksumMismatch)
        }
        _ => Ok(()),
    }
}

/// CRC32c of `block` with four zero bytes at `at`.
fn checksum_without(block: &[u8], at: usize) -> u32 {
    let sum = crc32c::crc32c(&block[..at]);
    let sum = crc32c::crc32c_append(sum, &[0; 4]);
    crc32c::crc32c_append(sum, &block[at + 4..])
}

/// Length of the checksum TLV, in bytes.
const CHECKSUM: usize = 3 + 4;

/// Appends the block. TLVs that do not fit are omitted, except the checksum, for which room is reserved.
pub(super) fn encode(header: &OutboundHeader<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    put_head(out, COMMAND_PROXY);
    out[start + FAMILY_TRANSPORT] = put_addresses(header.pair(), out);
    let reserved = if header.crc32c { CHECKSUM } else { 0 };
    let mut tlvs = TlvWriter { out, end: start + MAX_HEADER - reserved };
    tlvs.put_some(kind::ALPN, header.alpn);
    tlvs.put_some(kind::AUTHORITY, header.authority.map(str::as_bytes));
    tlvs.put_some(kind::UNIQUE_ID, header.unique_id.filter(|id| id.len() <= MAX_UNIQUE_ID));
    if let Some(tls) = &header.tls {
        tls.write(&mut tlvs);
    }
    if header.crc32c {
        tlvs.end += reserved;
        tlvs.put(kind::CRC32C, &[0; 4]);
    }
    // `MAX_HEADER` is below 2^16.
    let length = (out.len() - start - HEAD) as u16;
    out[start + LENGTH..start + HEAD].copy_from_slice(&length.to_be_bytes());
    if header.crc32c {
        let sum = crc32c::crc32c(&out[start..]);
        let at = out.len() - 4;
        out[at..].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Appends the block of a LOCAL connection.
pub(super) fn encode_local(out: &mut Vec<u8>) {
    put_head(out, COMMAND_LOCAL);
}

/// Appends the fixed part with family and length zero.
fn put_head(out: &mut Vec<u8>, version_command: u8) {
    out.extend_from_slice(SIGNATURE_V2);
    out.extend_from_slice(&[version_command, UNSPEC, 0, 0]);
}

/// Appends the address block and returns the byte for family and transport.
fn put_addresses(pair: EndpointPair<'_>, out: &mut Vec<u8>) -> u8 {
    match pair {
        EndpointPair::Inet(SocketAddr::V4(source), SocketAddr::V4(destination)) => {
            out.extend_from_slice(&source.ip().octets());
            out.extend_from_slice(&destination.ip().octets());
            put_ports(out, source.port(), destination.port());
            TCP4
        }
        EndpointPair::Inet(source, destination) => {
            out.extend_from_slice(&as_v6(source.ip()).octets());
            out.extend_from_slice(&as_v6(destination.ip()).octets());
            put_ports(out, source.port(), destination.port());
            TCP6
        }
        EndpointPair::Unix(source, destination) => {
            for path in [source, destination] {
                let mut field = [0; MAX_UNIX_PATH];
                field[..path.len()].copy_from_slice(path);
                out.extend_from_slice(&field);
            }
            UNIX_STREAM
        }
        EndpointPair::Unspec => UNSPEC,
    }
}

fn put_ports(out: &mut Vec<u8>, source: u16, destination: u16) {
    out.extend_from_slice(&source.to_be_bytes());
    out.extend_from_slice(&destination.to_be_bytes());
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(four) => Ipv4Addr::to_ipv6_mapped(&four),
        IpAddr::V6(six) => six,
    }
}

#[cfg(test)]
mod tests;
