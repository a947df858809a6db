//! Examples of RFC 7541 Appendix C; those of integers are in the module of integers.

use offramp_http::hpack::{HpackDecoder, HpackEncoder, Indexing};

use super::{field, read, table};

/// A block in hexadecimal, its fields, and the table after it with its size.
struct HpackStep {
    block: &'static str,
    fields: &'static [(&'static str, &'static str)],
    table: &'static [(&'static str, &'static str)],
    size: usize,
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits: Vec<char> = hexadecimal.chars().filter(|digit| !digit.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn decodes(most: usize, steps: &[HpackStep]) {
    let mut decoder = HpackDecoder::new(most);
    for step in steps {
        let fields = step.fields.iter().map(|(name, value)| field(name, value)).collect();
        assert_eq!(read(&mut decoder, &bytes(step.block)), Ok(fields), "{}", step.block);
        let held: Vec<_> = step.table.iter().map(|(name, value)| field(name, value)).collect();
        assert_eq!(table(&mut decoder), held, "{}", step.block);
        assert_eq!(decoder.size(), step.size, "{}", step.block);
    }
}

/// The encoder makes the same choices as that of the examples with Huffman coding.
fn encodes(mut encoder: HpackEncoder, steps: &[HpackStep]) {
    for step in steps {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (name, value) in step.fields {
            encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Yes, &mut out);
        }
        assert_eq!(out, bytes(step.block));
    }
}

/// Examples of §C.2.
#[test]
fn single_fields() {
    let steps = [
        HpackStep {
            block: "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            fields: &[("custom-key", "custom-header")],
            table: &[("custom-key", "custom-header")],
            size: 55,
        },
        HpackStep {
            block: "040c 2f73 616d 706c 652f 7061 7468",
            fields: &[(":path", "/sample/path")],
            table: &[],
            size: 0,
        },
        HpackStep {
            block: "1008 7061 7373 776f 7264 0673 6563 7265 74",
            fields: &[("password", "secret")],
            table: &[],
            size: 0,
        },
        HpackStep { block: "82", fields: &[(":method", "GET")], table: &[], size: 0 },
    ];
    for step in steps {
        decodes(4096, &[step]);
    }
}

/// §C.3 and §C.4: three requests, given their blocks.
fn requests(blocks: [&'static str; 3]) -> [HpackStep; 3] {
    let [first, second, third] = blocks;
    [
        HpackStep {
            block: first,
            fields: &[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                (":authority", "www.example.com"),
            ],
            table: &[(":authority", "www.example.com")],
            size: 57,
        },
        HpackStep {
            block: second,
            fields: &[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                (":authority", "www.example.com"),
                ("cache-control", "no-cache"),
            ],
            table: &[("cache-control", "no-cache"), (":authority", "www.example.com")],
            size: 110,
        },
        HpackStep {
            block: third,
            fields: &[
                (":method", "GET"),
                (":scheme", "https"),
                (":path", "/index.html"),
                (":authority", "www.example.com"),
                ("custom-key", "custom-value"),
            ],
            table: &[
                ("custom-key", "custom-value"),
                ("cache-control", "no-cache"),
                (":authority", "www.example.com"),
            ],
            size: 164,
        },
    ]
}

#[test]
fn requests_plain() {
    let blocks = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    decodes(4096, &requests(blocks));
}

#[test]
fn requests_coded() {
    let blocks = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    decodes(4096, &requests(blocks));
    encodes(HpackEncoder::new(), &requests(blocks));
}

const DATE: &str = "Mon, 21 Oct 2013 20:13:21 GMT";
const LATER: &str = "Mon, 21 Oct 2013 20:13:22 GMT";
const COOKIE: &str = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";

/// §C.5 and §C.6: three responses, given their blocks, with a table of 256 bytes.
fn responses(blocks: [&'static str; 3]) -> [HpackStep; 3] {
    let [first, second, third] = blocks;
    [
        HpackStep {
            block: first,
            fields: &[
                (":status", "302"),
                ("cache-control", "private"),
                ("date", DATE),
                ("location", "https://www.example.com"),
            ],
            table: &[
                ("location", "https://www.example.com"),
                ("date", DATE),
                ("cache-control", "private"),
                (":status", "302"),
            ],
            size: 222,
        },
        HpackStep {
            block: second,
            fields: &[
                (":status", "307"),
                ("cache-control", "private"),
                ("date", DATE),
                ("location", "https://www.example.com"),
            ],
            table: &[
                (":status", "307"),
                ("location", "https://www.example.com"),
                ("date", DATE),
                ("cache-control", "private"),
            ],
            size: 222,
        },
        HpackStep {
            block: third,
            fields: &[
                (":status", "200"),
                ("cache-control", "private"),
                ("date", LATER),
                ("location", "https://www.example.com"),
                ("content-encoding", "gzip"),
                ("set-cookie", COOKIE),
            ],
            table: &[("set-cookie", COOKIE), ("content-encoding", "gzip"), ("date", LATER)],
            size: 215,
        },
    ]
}

#[test]
fn responses_plain() {
    let blocks = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
         2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70
         6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d
         54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049
         5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e
         3d31",
    ];
    decodes(256, &responses(blocks));
}

#[test]
fn responses_coded() {
    let blocks = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
         2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
         77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
         9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    decodes(256, &responses(blocks));
    let mut encoder = HpackEncoder::new();
    encoder.limit(256);
    let mut update = Vec::new();
    encoder.begin(&mut update);
    assert_eq!(update, [0x3f, 0xe1, 0x01]);
    // The examples also code `307`, where that is no shorter.
    encodes(encoder, &responses([blocks[0], "4803 3330 37c1 c0bf", blocks[2]]));
}
