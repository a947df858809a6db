//! A single hello: its bytes, or their digits.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use super::CaptureFault;
use crate::client_hello::{self, MAX_HELLO, MAX_LOOK};
use crate::{HelloFault, ParseStep};

/// Longest text with a hello: a dump in hexadecimal takes five characters per byte.
const MAX_TEXT: usize = 8 * MAX_LOOK;

/// The TLS records of the ClientHello in `bytes`: in records, as a handshake message alone, or either of these in
/// hexadecimal (also as `xxd`, `openssl s_client -msg` and Wireshark print it) or in base64.
///
/// # Errors
/// There is no hello, or only a part of one.
pub fn hello(bytes: &[u8]) -> Result<Vec<u8>, CaptureFault> {
    if bytes.len() > MAX_TEXT {
        return Err(CaptureFault::TooLong);
    }
    let text = match of_bytes(bytes) {
        Err(CaptureFault::NotAHello) => str::from_utf8(bytes).map_err(|_| CaptureFault::NotAHello)?,
        other => return other,
    };
    match of_bytes(&of_dump(text).unwrap_or_default()) {
        Err(CaptureFault::NotAHello) => of_bytes(&of_base64(text).unwrap_or_default()),
        other => other,
    }
}

/// The hello in records, or as a message alone.
fn of_bytes(bytes: &[u8]) -> Result<Vec<u8>, CaptureFault> {
    match bytes {
        [22, 3, ..] => match client_hello::extract(bytes) {
            ParseStep::Done { value, .. } => Ok(value),
            ParseStep::Reject(HelloFault::TooLarge(_) | HelloFault::TooManyRecords) => {
                Err(CaptureFault::TooLong)
            }
            ParseStep::Need(_) | ParseStep::Reject(_) => Err(CaptureFault::NotAHello),
        },
        [1, high, middle, low, rest @ ..] => {
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            match rest.len() >= length {
                true if length <= MAX_HELLO => Ok(client_hello::in_records(&bytes[..4 + length])),
                true => Err(CaptureFault::TooLong),
                false => Err(CaptureFault::NotAHello),
            }
        }
        _ => Err(CaptureFault::NotAHello),
    }
}

/// The bytes of a dump in hexadecimal, with or without offsets and a column of characters; `None` without any.
fn of_dump(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let before = bytes.len();
        let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty()).peekable();
        let offset = words.peek().is_some_and(|word| is_offset(word, before));
        let most = if offset { 16 } else { usize::MAX };
        for word in words.skip(usize::from(offset)) {
            let Some(digits) = digits(word) else { break };
            bytes.extend(digits);
            // What follows on the line of a dump are the characters.
            if bytes.len() - before >= most {
                break;
            }
        }
    }
    (!bytes.is_empty()).then_some(bytes)
}

/// Returns true for the offset of a line of a dump after `before` bytes.
fn is_offset(word: &str, before: usize) -> bool {
    let digits = word.trim_end_matches(':');
    let is_marked = digits.len() < word.len();
    let number = usize::from_str_radix(digits, 16).ok();
    (is_marked && digits.len() >= 2 || digits.len() >= 4) && digits.len() <= 8 && number == Some(before)
}

fn digits(word: &str) -> Option<Vec<u8>> {
    let word = word.strip_prefix("0x").or_else(|| word.strip_prefix("\\x")).unwrap_or(word);
    let plain: Vec<u8> = word.bytes().filter(|byte| *byte != b':').collect();
    let pairs = plain.as_chunks::<2>();
    if plain.is_empty() || !pairs.1.is_empty() {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16);
    pairs.0.iter().map(|&[high, low]| Some((value(high)? << 4 | value(low)?) as u8)).collect()
}

/// The bytes of base64 in the usual or the URL-safe alphabet.
fn of_base64(text: &str) -> Option<Vec<u8>> {
    let plain = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let usual: Vec<u8> = plain
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            byte => byte,
        })
        .collect();
    let lax = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&base64::alphabet::STANDARD, lax).decode(usual).ok()
}
