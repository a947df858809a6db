//! The framing of capture files: pcap, with times in micro- or nanoseconds, and pcapng, in either byte order.

use super::CaptureFault;

/// Longest packet or block that is kept in memory, in bytes; tcpdump has the same bound on packets.
const MAX_BLOCK: usize = 262_144 + 1024;
/// Number of interfaces of a section of pcapng whose link types are kept.
const MAX_INTERFACES: usize = 256;

/// Length of the header of a pcap file, and of each of its packets.
const PCAP_HEAD: usize = 24;
const PACKET_HEAD: usize = 16;
/// Type and length of a block of pcapng, and the length again at its end.
const BLOCK_HEAD: usize = 8;
const BLOCK_TAIL: usize = 4;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// The state between two pieces of a file.
#[derive(Debug, Default)]
pub(super) struct CaptureBlocks {
    /// Bytes of a block that is not whole.
    pending: Vec<u8>,
    /// Bytes of the file before `pending`.
    offset: u64,
    /// Bytes of a block that is too long to be kept, still to be left out.
    skip: u64,
    format: CaptureFormat,
}

#[derive(Debug, Default)]
enum CaptureFormat {
    /// The first bytes have not come.
    #[default]
    Unknown,
    Pcap {
        order: ByteOrder,
        link: u16,
    },
    PcapNg(PcapNgSection),
}

/// A section of pcapng: a byte order, and its interfaces.
#[derive(Debug)]
struct PcapNgSection {
    order: ByteOrder,
    /// The link type of each interface.
    links: Vec<u16>,
}

#[derive(Debug, Clone, Copy)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        })
    }

    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes: [u8; 2] = bytes.get(at..at + 2)?.try_into().ok()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        })
    }

    /// The order in which `bytes` say `number`.
    fn of(bytes: &[u8], number: u32) -> Option<Self> {
        [Self::Little, Self::Big].into_iter().find(|order| order.u32(bytes, 0) == Some(number))
    }
}

pub(super) fn is_capture(front: &[u8]) -> bool {
    ByteOrder::Little.u32(front, 0) == Some(SECTION) || pcap_order(front).is_some()
}

fn pcap_order(front: &[u8]) -> Option<ByteOrder> {
    // Microseconds, nanoseconds.
    ByteOrder::of(front, 0xa1b2_c3d4).or_else(|| ByteOrder::of(front, 0xa1b2_3c4d))
}

/// The outcome of a look at the front of the pending bytes.
enum BlockStep {
    /// More bytes are needed.
    Need,
    /// So many bytes are done with.
    Used(usize),
    /// A block of so many bytes is too long to be kept.
    TooLong(u64),
}

impl CaptureBlocks {
    /// Takes bytes, and gives each packet that is whole to `packet`, with its link type.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        mut packet: impl FnMut(u16, &[u8]) -> Result<(), CaptureFault>,
    ) -> Result<(), CaptureFault> {
        let skipped = self.skip.min(bytes.len() as u64) as usize;
        self.skip -= skipped as u64;
        self.offset += skipped as u64;
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(&bytes[skipped..]);
        let mut done = 0;
        loop {
            let rest = &pending[done..];
            match self.look(rest, &mut packet)? {
                BlockStep::Need => break,
                BlockStep::Used(used) => {
                    done += used;
                    self.offset += used as u64;
                }
                BlockStep::TooLong(length) => {
                    let here = length.min(rest.len() as u64);
                    self.skip = length - here;
                    self.offset += here;
                    done += here as usize;
                }
            }
        }
        pending.drain(..done);
        self.pending = pending;
        Ok(())
    }

    fn look(
        &mut self,
        rest: &[u8],
        packet: &mut impl FnMut(u16, &[u8]) -> Result<(), CaptureFault>,
    ) -> Result<BlockStep, CaptureFault> {
        match &mut self.format {
            CaptureFormat::Unknown => self.begin(rest),
            CaptureFormat::Pcap { order, link } => {
                if rest.len() < PACKET_HEAD {
                    return Ok(BlockStep::Need);
                }
                let length = order.u32(rest, 8).unwrap_or_default() as usize;
                if length > MAX_BLOCK {
                    return Err(CaptureFault::BadLength(self.offset));
                }
                let Some(data) = rest.get(PACKET_HEAD..PACKET_HEAD + length) else {
                    return Ok(BlockStep::Need);
                };
                packet(*link, data)?;
                Ok(BlockStep::Used(PACKET_HEAD + length))
            }
            CaptureFormat::PcapNg(section) => section.block(rest, self.offset, packet),
        }
    }

    fn begin(&mut self, rest: &[u8]) -> Result<BlockStep, CaptureFault> {
        if rest.len() < 4 {
            return Ok(BlockStep::Need);
        }
        if ByteOrder::Little.u32(rest, 0) == Some(SECTION) {
            self.format =
                CaptureFormat::PcapNg(PcapNgSection { order: ByteOrder::Little, links: Vec::new() });
            return Ok(BlockStep::Used(0));
        }
        let order = pcap_order(rest).ok_or(CaptureFault::NotACapture)?;
        if rest.len() < PCAP_HEAD {
            return Ok(BlockStep::Need);
        }
        // The upper bits of the field describe frame check sequences.
        let link = order.u32(rest, 20).unwrap_or_default() as u16;
        self.format = CaptureFormat::Pcap { order, link };
        Ok(BlockStep::Used(PCAP_HEAD))
    }
}

impl PcapNgSection {
    fn block(
        &mut self,
        rest: &[u8],
        offset: u64,
        packet: &mut impl FnMut(u16, &[u8]) -> Result<(), CaptureFault>,
    ) -> Result<BlockStep, CaptureFault> {
        // The byte order of a section follows its length.
        if rest.len() < BLOCK_HEAD + 4 {
            return Ok(BlockStep::Need);
        }
        if ByteOrder::Little.u32(rest, 0) == Some(SECTION) {
            self.order =
                ByteOrder::of(&rest[BLOCK_HEAD..], 0x1a2b_3c4d).ok_or(CaptureFault::BadLength(offset))?;
        }
        let length = self.order.u32(rest, 4).unwrap_or_default() as usize;
        if length < BLOCK_HEAD + BLOCK_TAIL || !length.is_multiple_of(4) {
            return Err(CaptureFault::BadLength(offset));
        }
        if length > MAX_BLOCK {
            return Ok(BlockStep::TooLong(length as u64));
        }
        let Some(block) = rest.get(..length) else { return Ok(BlockStep::Need) };
        self.contents(block, packet)?;
        Ok(BlockStep::Used(length))
    }

    fn contents(
        &mut self,
        block: &[u8],
        packet: &mut impl FnMut(u16, &[u8]) -> Result<(), CaptureFault>,
    ) -> Result<(), CaptureFault> {
        let (order, links) = (self.order, &mut self.links);
        let body = &block[BLOCK_HEAD..block.len() - BLOCK_TAIL];
        match order.u32(block, 0) {
            Some(SECTION) => links.clear(),
            Some(INTERFACE) if links.len() < MAX_INTERFACES => links.extend(order.u16(body, 0)),
            Some(ENHANCED_PACKET) => {
                let link = order.u32(body, 0).and_then(|interface| links.get(interface as usize));
                let length = order.u32(body, 12).unwrap_or_default() as usize;
                if let (Some(link), Some(data)) = (link, body.get(20..).and_then(|rest| rest.get(..length))) {
                    packet(*link, data)?;
                }
            }
            Some(SIMPLE_PACKET) => {
                let length = order.u32(body, 0).unwrap_or_default() as usize;
                if let (Some(link), Some(data)) = (links.first(), body.get(4..)) {
                    packet(*link, &data[..length.min(data.len())])?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
