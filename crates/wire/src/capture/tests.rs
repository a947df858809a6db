use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::PacketBuilder;
use proptest::prelude::*;

use super::*;
use crate::client_hello::peek;
use crate::{ParseStep, known};

const CURL: &[u8] = include_bytes!("../../tests/data/curl.bin");
const CHROMIUM: &[u8] = include_bytes!("../../tests/data/chromium.bin");

#[derive(Debug, Clone, Copy)]
enum Layer {
    Ethernet,
    Vlan,
    Sll,
    Sll2,
    Raw,
    Null,
}

const LAYERS: [Layer; 6] = [Layer::Ethernet, Layer::Vlan, Layer::Sll, Layer::Sll2, Layer::Raw, Layer::Null];

impl Layer {
    fn link(self) -> u16 {
        match self {
            Self::Ethernet | Self::Vlan => 1,
            Self::Sll => 113,
            Self::Sll2 => 276,
            Self::Raw => 101,
            Self::Null => 0,
        }
    }

    /// A packet of a client on port 40000 to port 443.
    fn packet(self, ipv6: bool, sequence: u32, syn: bool, data: &[u8]) -> Vec<u8> {
        let mut ip = Vec::new();
        let builder = if ipv6 {
            PacketBuilder::ipv6(Ipv6Addr::LOCALHOST.octets(), Ipv6Addr::LOCALHOST.octets(), 64)
        } else {
            PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
        };
        let tcp = builder.tcp(40000, 443, sequence, 1000);
        let tcp = if syn { tcp.syn() } else { tcp.ack(1) };
        tcp.write(&mut ip, data).unwrap();
        let kind: [u8; 2] = if ipv6 { [0x86, 0xdd] } else { [8, 0] };
        let front = match self {
            Self::Ethernet => [&[1; 12][..], &kind].concat(),
            Self::Vlan => [&[1; 12][..], &[0x81, 0, 0, 7], &kind].concat(),
            Self::Sll => [&[0; 14][..], &kind].concat(),
            Self::Sll2 => [&kind[..], &[0; 18]].concat(),
            Self::Raw => Vec::new(),
            Self::Null => vec![2, 0, 0, 0],
        };
        [front, ip].concat()
    }
}

/// A pcap file, in the order of bytes of little or big machines.
fn pcap(big: bool, link: u16, packets: &[Vec<u8>]) -> Vec<u8> {
    let number = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut file = number(0xa1b2_c3d4).to_vec();
    file.extend([0; 16]);
    file.extend(number(u32::from(link)));
    for packet in packets {
        file.extend([0; 8]);
        file.extend(number(packet.len() as u32));
        file.extend(number(packet.len() as u32));
        file.extend(packet);
    }
    file
}

fn pcapng(big: bool, link: u16, packets: &[Vec<u8>]) -> Vec<u8> {
    let number = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let block = |kind: u32, body: &[u8]| {
        let padded = body.len().next_multiple_of(4);
        let length = number(padded as u32 + 12);
        [&number(kind)[..], &length, body, &vec![0; padded - body.len()], &length].concat()
    };
    let link = if big { link.to_be_bytes() } else { link.to_le_bytes() };
    let mut file = block(0x0a0d_0d0a, &[&number(0x1a2b_3c4d)[..], &[0; 4], &[0xff; 8]].concat());
    file.extend(block(1, &[&link[..], &[0; 6]].concat()));
    // A comment, which is no packet.
    file.extend(block(5, &[0; 12]));
    for (at, packet) in packets.iter().enumerate() {
        let length = number(packet.len() as u32);
        if at.is_multiple_of(2) {
            file.extend(block(6, &[&[0; 12][..], &length, &length, packet].concat()));
        } else {
            file.extend(block(3, &[&length[..], packet].concat()));
        }
    }
    file
}

fn read(file: &[u8], piece: usize) -> Result<Capture, CaptureFault> {
    let mut reader = CaptureReader::default();
    for piece in file.chunks(piece) {
        reader.push(piece)?;
    }
    Ok(reader.finish())
}

/// The packets of a connection that sends `data` in segments of `size` bytes.
fn connection(layer: Layer, ipv6: bool, data: &[u8], size: usize) -> Vec<Vec<u8>> {
    // The numbers of the bytes wrap around.
    let start = u32::MAX - 100;
    let mut packets = vec![layer.packet(ipv6, start, true, &[])];
    for (at, part) in data.chunks(size).enumerate() {
        let sequence = start.wrapping_add(1).wrapping_add((at * size) as u32);
        packets.push(layer.packet(ipv6, sequence, false, part));
    }
    packets
}

#[test]
fn every_layer_and_format_is_read() {
    for layer in LAYERS {
        for ipv6 in [false, true] {
            let packets = connection(layer, ipv6, CHROMIUM, 700);
            for big in [false, true] {
                for file in [pcap(big, layer.link(), &packets), pcapng(big, layer.link(), &packets)] {
                    assert!(is_capture(&file));
                    for piece in [1, 7, 64, usize::MAX] {
                        let capture = read(&file, piece.min(file.len())).unwrap();
                        assert_eq!(capture.packets as usize, packets.len(), "{layer:?} {ipv6} {big}");
                        let [found] = &capture.hellos[..] else {
                            panic!("{layer:?} {ipv6} {big}: {capture:?}")
                        };
                        assert_eq!(found.records[3..], CHROMIUM[3..]);
                        assert_eq!((found.client.port(), found.server.port()), (40000, 443));
                        let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
                        assert_eq!(found.client.ip() == v4, !ipv6);
                    }
                }
            }
        }
    }
}

#[test]
fn what_comes_before_a_hello_is_left_out() {
    let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 443\r\n";
    for front in [&[][..], header, &crate::postgres::SSL_REQUEST] {
        let data = [front, CURL].concat();
        let capture = read(&pcap(false, 101, &connection(Layer::Raw, false, &data, 9)), 1000).unwrap();
        assert_eq!(capture.hellos.len(), 1, "{front:?}");
        assert_eq!(capture.hellos[0].records[3..], CURL[3..]);
    }
    // A connection that began before the capture, another protocol, and a hello with a gap.
    let mut packets = connection(Layer::Raw, false, CURL, 300);
    packets.remove(0);
    assert_eq!(read(&pcap(false, 101, &packets), 99).unwrap().hellos.len(), 1);
    packets.remove(1);
    let capture = read(&pcap(false, 101, &packets), 99).unwrap();
    assert_eq!((capture.hellos.len(), capture.incomplete), (0, 1));
    let ssh = connection(Layer::Raw, false, b"SSH-2.0-OpenSSH_9.2\r\n", 300);
    let capture = read(&pcap(false, 101, &ssh), 99).unwrap();
    assert_eq!((capture.hellos.len(), capture.incomplete), (0, 0));
}

#[test]
fn damaged_files_are_named() {
    let good = pcap(false, 1, &connection(Layer::Ethernet, false, CURL, 300));
    for (file, fault) in [
        (b"GIF89a, not a capture at all".to_vec(), CaptureFault::NotACapture),
        (pcap(false, 147, &connection(Layer::Raw, false, CURL, 300)), CaptureFault::LinkType(147)),
        ([&good[..24], &[0xff; 16]].concat(), CaptureFault::BadLength(24)),
        (
            [&pcapng(false, 1, &[])[..28], &[1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]].concat(),
            CaptureFault::BadLength(28),
        ),
    ] {
        assert_eq!(read(&file, 5), Err(fault));
        assert!(!fault.to_string().is_empty());
    }
    // A file that was cut off gives what it has.
    assert_eq!(read(&good[..good.len() - 1], 50).unwrap().hellos.len(), 0);
    // A block that is too long is left out.
    let huge = [&pcapng(false, 101, &[])[..], &[10, 0, 0, 0, 0, 0, 8, 0], &vec![0; (8 << 16) - 8]].concat();
    let packets = connection(Layer::Raw, false, CURL, 300);
    let file = [huge, pcapng(true, 101, &packets)].concat();
    assert_eq!(read(&file, 4000).unwrap().hellos.len(), 1);
}

#[test]
fn the_number_of_connections_has_a_bound() {
    let mut reader = CaptureReader::default();
    let mut file = pcap(false, 101, &[]);
    for port in 0..60_000u16 {
        let mut ip = Vec::new();
        let builder = PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64).tcp(port, 443, 1, 1000);
        builder.write(&mut ip, &CURL[..200]).unwrap();
        file.extend([0; 8]);
        file.extend((ip.len() as u32).to_le_bytes());
        file.extend((ip.len() as u32).to_le_bytes());
        file.extend(ip);
    }
    assert!(reader.push(&file).unwrap());
    assert_eq!(reader.finish().incomplete, 60_000);
}

#[test]
fn hellos_are_read_in_each_notation() {
    let digits: String = CURL.iter().map(|byte| format!("{byte:02x}")).collect();
    let spaced: String = CURL.iter().map(|byte| format!("{byte:02X} ")).collect();
    let colons = spaced.trim_end().replace(' ', ":");
    let dump = |offset: fn(usize) -> String, group: usize| -> String {
        let line = |(at, row): (usize, &[u8])| {
            let words: Vec<String> = row
                .chunks(group)
                .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
                .collect();
            let letters =
                row.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' });
            format!("{}{}  {}\n", offset(at * 16), words.join(" "), letters.collect::<String>())
        };
        CURL.chunks(16).enumerate().map(line).collect()
    };
    let messages = format!(
        ">>> TLS 1.0, RecordHeader [length 0005]\n    {}\n>>> TLS 1.3, Handshake [length 0200], ClientHello\n    {}\n",
        &spaced[..15],
        &spaced[15..]
    );
    let base64 = base64::engine::general_purpose::STANDARD;
    let encoded = base64::Engine::encode(&base64, CURL);
    for text in [
        digits.clone(),
        digits.to_uppercase(),
        format!("0x{digits}\n"),
        spaced,
        colons,
        dump(|at| format!("{at:08x}: "), 2),
        dump(|at| format!("{at:04x}  "), 1),
        messages,
        encoded.clone(),
        encoded.replace('+', "-").replace('/', "_").trim_end_matches('=').to_owned(),
        digits[10..].to_owned(),
    ] {
        let found = hello(text.as_bytes()).unwrap_or_else(|fault| panic!("{fault}: {text}"));
        assert_eq!(found[3..], CURL[3..], "{text}");
    }
    for records in [CURL, &CURL[5..], &[CURL, b"more"].concat()] {
        assert_eq!(hello(records).unwrap()[3..], CURL[3..]);
    }
    for (bytes, fault) in [
        (&b""[..], CaptureFault::NotAHello),
        (b"hello", CaptureFault::NotAHello),
        (&CURL[..100], CaptureFault::NotAHello),
        (b"\x16\x03", CaptureFault::NotAHello),
        (b"\xff\xfe", CaptureFault::NotAHello),
        (&[b'0'; 8 * 100_000][..], CaptureFault::TooLong),
    ] {
        assert_eq!(hello(bytes), Err(fault), "{}", bytes.escape_ascii());
    }
}

/// A hello with `padding` bytes more (RFC 7685), in records of `size` bytes.
fn padded(padding: usize, size: usize) -> Vec<u8> {
    let mut message = CURL[5..].to_vec();
    let before = message.len();
    message.extend([0, 21, (padding >> 8) as u8, padding as u8]);
    message.resize(before + 4 + padding, 0);
    // The length of the message, and that of its extensions, which its fixed part, session, suites and compressions precede.
    let length = message.len() - 4;
    message[1..4].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
    let session = 4 + 34 + 1 + usize::from(message[38]);
    let suites = session + 2 + usize::from(u16::from_be_bytes([message[session], message[session + 1]]));
    let at = suites + 1 + usize::from(message[suites]);
    let extensions = (message.len() - at - 2) as u16;
    message[at..at + 2].copy_from_slice(&extensions.to_be_bytes());
    let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    message.chunks(size).flat_map(record).collect()
}

#[test]
fn long_hellos_are_read_up_to_the_bound_of_a_hello() {
    for (padding, size) in [(9_000, 200), (30_000, 1 << 14), (60_000, 100)] {
        let records = padded(padding, size);
        let digits: String = records.iter().map(|byte| format!("{byte:02x} ")).collect();
        for found in [hello(&records).unwrap(), hello(digits.as_bytes()).unwrap()] {
            assert!(found.len() > padding);
            let ParseStep::Done { value, .. } = peek(&found) else { panic!("{padding} {size}") };
            assert_eq!(value.extensions().last(), Some(21));
        }
    }
    // More records than a connection may have; and more bytes, whose message says so first.
    let mut longer = padded(60_000, 1 << 14);
    longer[6..9].copy_from_slice(&[1, 0, 0]);
    for bytes in [padded(9_000, 2), longer] {
        assert_eq!(hello(&bytes), Err(CaptureFault::TooLong));
    }
    let said = CaptureFault::TooLong.to_string();
    assert!(said.ends_with("65535 bytes, in 4096 records at most"), "{said}");
}

proptest! {
    /// Segments come in any order, overlap, and come again.
    #[test]
    fn segments_in_any_order_make_the_hello(
        which in 0usize..60,
        cuts in prop::collection::vec((0usize..2000, 1usize..900), 0..30),
        size in 1usize..600,
        keys in prop::collection::vec(any::<u32>(), 64),
        piece in 1usize..4000,
    ) {
        let clients: Vec<_> = known::all().collect();
        let data = clients[which % clients.len()].hello();
        let start = u32::MAX - 300;
        let segment = |at: usize, length: usize| {
            let at = at.min(data.len());
            let part = &data[at..(at + length).min(data.len())];
            Layer::Raw.packet(false, start.wrapping_add(1 + at as u32), false, part)
        };
        let mut packets: Vec<Vec<u8>> = (0..data.len()).step_by(size.max(data.len() / 60)).map(|at| {
            segment(at, size.max(data.len() / 60))
        }).chain(cuts.iter().map(|&(at, length)| segment(at, length))).collect();
        let mut order = keys.iter().cycle();
        packets.sort_by_cached_key(|_| *order.next().unwrap_or(&0));
        packets.insert(0, Layer::Raw.packet(false, start, true, &[]));
        let capture = read(&pcap(false, 101, &packets), piece).unwrap();
        // What comes again after the hello is no second one, unless it looks like the begin of a connection.
        prop_assert!(!capture.hellos.is_empty());
        prop_assert_eq!(&capture.hellos[0].records[5..], &data[5..]);
        let is_hello = matches!(peek(&capture.hellos[0].records), ParseStep::Done { .. });
        prop_assert!(is_hello);
    }

    #[test]
    fn no_input_panics(front in 0usize..4, bytes in prop::collection::vec(any::<u8>(), 0..600), piece in 1usize..50) {
        let fronts = [Vec::new(), pcap(false, 1, &[]), pcapng(false, 113, &[]), pcapng(true, 276, &[])];
        let file = [&fronts[front][..], &bytes].concat();
        let whole = read(&file, file.len().max(1));
        prop_assert_eq!(read(&file, piece), whole);
        let _ = hello(&bytes);
    }
}
