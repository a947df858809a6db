//! The tables against a bitwise decoder, with every symbol at every position.

use proptest::prelude::*;

use super::*;

fn fast(coded: &[u8]) -> Result<Vec<u8>, HpackFault> {
    let mut out = vec![0; room(coded.len())];
    let length = decode(coded, &mut out)?;
    out.truncate(length);
    Ok(out)
}

fn coded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(text, &mut out);
    assert_eq!(out.len(), length(text));
    out
}

/// A literal implementation of RFC 7541 §5.2: collects bits until they are a code.
fn slow(coded: &[u8]) -> Result<Vec<u8>, HpackFault> {
    let (mut out, mut code, mut bits) = (Vec::new(), 0, 0_u8);
    for at in 0..coded.len() * 8 {
        code = code << 1 | u32::from(coded[at / 8] >> (7 - at % 8) & 1);
        bits += 1;
        let symbol = (0..SYMBOLS).find(|&symbol| LENGTHS[symbol] == bits && CODE.codes[symbol] == code);
        if let Some(symbol) = symbol {
            out.push(u8::try_from(symbol).map_err(|_| HpackFault::HuffmanEnd)?);
            (code, bits) = (0, 0);
        }
    }
    match bits {
        8.. => Err(HpackFault::HuffmanPaddingTooLong),
        _ if code != (1 << bits) - 1 => Err(HpackFault::HuffmanPadding),
        _ => Ok(out),
    }
}

#[test]
fn codes_are_those_of_the_appendix() {
    // One code per length, the first where the appendix has several.
    let codes = [
        (b'0', 0x0, 5),
        (b' ', 0x14, 6),
        (b':', 0x5c, 7),
        (b'&', 0xf8, 8),
        (b'!', 0x3f8, 10),
        (b'\'', 0x7fa, 11),
        (b'#', 0xffa, 12),
        (0, 0x1ff8, 13),
        (b'^', 0x3ffc, 14),
        (b'<', 0x7ffc, 15),
        (b'\\', 0x7fff0, 19),
        (128, 0xfffe6, 20),
        (153, 0x1f_ffdc, 21),
        (129, 0x3f_ffd2, 22),
        (1, 0x7f_ffd8, 23),
        (9, 0xff_ffea, 24),
        (199, 0x1ff_ffec, 25),
        (192, 0x3ff_ffe0, 26),
        (203, 0x7ff_ffde, 27),
        (2, 0xfff_ffe2, 28),
        (249, 0xfff_fffe, 28),
        (10, 0x3fff_fffc, 30),
        (22, 0x3fff_fffe, 30),
    ];
    for (symbol, code, length) in codes {
        assert_eq!(
            (CODE.codes[usize::from(symbol)], LENGTHS[usize::from(symbol)]),
            (code, length),
            "{symbol}"
        );
    }
    assert_eq!(CODE.codes[usize::from(END)], 0x3fff_ffff);
}

#[test]
fn every_pair_of_symbols_is_read_back_behind_every_number_of_bits() {
    for one in 0..=255 {
        for two in 0..=255 {
            let text = [one, two];
            assert_eq!(fast(&coded(&text)).as_deref(), Ok(&text[..]));
        }
        for before in 0..12 {
            // Codes of 5 bits in front, and enough behind for the loop over whole words.
            let text = [&b"0".repeat(before)[..], &[one, one], b"0123456789abc"].concat();
            assert_eq!(fast(&coded(&text)).as_deref(), Ok(&text[..]), "{one} {before}");
        }
    }
}

/// Coded bytes, and the expected result.
type End = (&'static [u8], Result<&'static [u8], HpackFault>);

#[test]
fn invalid_padding() {
    use HpackFault::{HuffmanEnd, HuffmanPadding, HuffmanPaddingTooLong};
    let cases: [End; 12] = [
        (&[], Ok(b"")),
        (&[0x07], Ok(b"0")),
        (&[0x00], Err(HuffmanPadding)),
        (&[0x06], Err(HuffmanPadding)),
        (&[0xff], Err(HuffmanPaddingTooLong)),
        (&[0x1f, 0xff], Err(HuffmanPaddingTooLong)),
        (&[0xf8], Ok(b"&")),
        (&[0xf8, 0xff], Err(HuffmanPaddingTooLong)),
        (&[0xff, 0xff, 0xff, 0xff], Err(HuffmanEnd)),
        (&[0xff, 0xff, 0xff, 0xfc], Err(HuffmanEnd)),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Err(HuffmanEnd)),
        (&[0x07, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Err(HuffmanEnd)),
    ];
    for (bytes, expected) in cases {
        assert_eq!(slow(bytes).as_deref(), expected.as_ref().copied(), "{bytes:x?}");
        assert_eq!(fast(bytes).as_deref(), expected.as_ref().copied(), "{bytes:x?}");
    }
}

/// Coded text with changed bytes, most of which decodes before the fault.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let text = prop::collection::vec(prop_oneof![4 => 0x20_u8..0x7f, 1 => any::<u8>()], 0..60);
    (
        text,
        any::<prop::sample::Index>(),
        any::<u8>(),
        prop::collection::vec(prop_oneof![Just(0xff), any::<u8>()], 0..6),
    )
        .prop_map(|(text, at, byte, behind)| {
            let mut bytes = coded(&text);
            if !bytes.is_empty() && byte < 0xc0 {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.extend(behind);
            bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn strings_round_trip(text in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(fast(&coded(&text)), Ok(text));
    }

    #[test]
    fn decoders_agree(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            prop::collection::vec(prop_oneof![Just(0xff_u8), any::<u8>()], 0..60),
            nearly(),
        ],
    ) {
        prop_assert_eq!(fast(&bytes), slow(&bytes));
    }
}
