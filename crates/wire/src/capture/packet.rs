//! The TCP segment within a packet, through the layers below it.

use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};

use super::CaptureFault;

/// A segment of a TCP connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment<'a> {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// Number of the first byte of `data`.
    pub(super) sequence: u32,
    pub(super) is_first: bool,
    pub(super) data: &'a [u8],
}

/// Link types, by their numbers in the registry of tcpdump.
mod link {
    pub(super) const NULL: u16 = 0;
    pub(super) const ETHERNET: u16 = 1;
    pub(super) const RAW: [u16; 5] = [12, 14, 101, 228, 229];
    pub(super) const LOOP: u16 = 108;
    pub(super) const LINUX_SLL: u16 = 113;
    pub(super) const LINUX_SLL2: u16 = 276;
}

/// Finds the segment; `None` in packets that are damaged or not of TCP.
pub(super) fn segment(kind: u16, data: &[u8]) -> Result<Option<Segment<'_>>, CaptureFault> {
    let packet = match kind {
        link::ETHERNET => LaxSlicedPacket::from_ethernet(data).ok(),
        link::NULL | link::LOOP => data.get(4..).and_then(|rest| LaxSlicedPacket::from_ip(rest).ok()),
        link::LINUX_SLL => typed(data, 14, 16),
        link::LINUX_SLL2 => typed(data, 0, 20),
        kind if link::RAW.contains(&kind) => LaxSlicedPacket::from_ip(data).ok(),
        other => return Err(CaptureFault::LinkType(other)),
    };
    Ok(packet.and_then(|packet| of_tcp(&packet)))
}

/// A packet behind a header of `length` bytes that has the type of its protocol at `at`.
fn typed(data: &[u8], at: usize, length: usize) -> Option<LaxSlicedPacket<'_>> {
    let kind = u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?);
    Some(LaxSlicedPacket::from_ether_type(EtherType(kind), data.get(length..)?))
}

fn of_tcp<'a>(packet: &LaxSlicedPacket<'a>) -> Option<Segment<'a>> {
    let (from, to) = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            (IpAddr::V4(header.source_addr()), IpAddr::V4(header.destination_addr()))
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            (IpAddr::V6(header.source_addr()), IpAddr::V6(header.destination_addr()))
        }
        _ => return None,
    };
    let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { return None };
    // A segment that opens a connection counts as one byte.
    let sequence = tcp.sequence_number().wrapping_add(u32::from(tcp.syn()));
    Some(Segment {
        from: SocketAddr::new(from, tcp.source_port()),
        to: SocketAddr::new(to, tcp.destination_port()),
        sequence,
        is_first: tcp.syn(),
        data: tcp.payload(),
    })
}
