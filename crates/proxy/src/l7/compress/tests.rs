//! Which responses are compressed, and what becomes of their fields.

use std::io::Read as _;

use super::*;

const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

fn policy() -> Compress {
    let types = ["text/*", "application/*+json"].map(Into::into).to_vec();
    Compress { algorithms: ALL.to_vec(), min_size: 100, types, level: None }
}

/// A response to HEAD, which has no body and is judged by its fields.
fn head(status: u16, fields: &[(&str, &str)]) -> Response<Reply> {
    let mut response = Response::new(StatusCode::from_u16(status).unwrap(), Reply::nothing());
    for (name, value) in fields {
        response.fields.append(name.as_bytes(), value.as_bytes());
    }
    response
}

#[test]
fn only_what_gains_and_may_change_is_compressed() {
    let long = ("content-length", "100");
    let html = ("content-type", "text/html; charset=utf-8");
    for (status, fields, expected) in [
        (200, &[html, long][..], true),
        (404, &[html, long], true),
        (200, &[html], true),
        (200, &[html, ("content-length", "99")], false),
        (200, &[long], false),
        (200, &[("content-type", "image/png"), long], false),
        (200, &[("content-type", "Application/Problem+JSON"), long], true),
        (200, &[("content-type", "application/+jso"), long], false),
        (200, &[html, long, ("content-encoding", "gzip")], false),
        (200, &[html, long, ("content-encoding", "identity")], true),
        (200, &[html, long, ("cache-control", "public, No-Transform")], false),
        (200, &[html, long, ("content-range", "bytes 0-99/200")], false),
        (200, &[html, long, ("repr-digest", "sha-256=:x:")], false),
        (206, &[html, long], false),
        (204, &[html, long], false),
        (304, &[html, long], false),
        (101, &[html, long], false),
    ] {
        assert_eq!(gains(&policy(), true, &head(status, fields)), expected, "{status} {fields:?}");
    }
    // A response to GET without a body.
    assert!(!gains(&policy(), false, &head(200, &[html])));
}

#[test]
fn fields_are_those_of_the_compressed_content() {
    let fields = [("etag", "\"a\""), ("accept-ranges", "bytes"), ("content-length", "7"), ("vary", "Origin")];
    let mut response = head(200, &fields);
    vary(&mut response.fields);
    encoded(&mut response.fields, Coding::Brotli);
    let all: Vec<_> = response.fields.iter().map(|(n, v)| [n, b"=", v].concat()).collect();
    let all: Vec<_> = all.iter().map(|line| std::str::from_utf8(line).unwrap()).collect();
    assert_eq!(all, ["etag=W/\"a\"", "vary=Origin", "vary=Accept-Encoding", "content-encoding=br"]);
    for known in ["*", "Origin, accept-encoding"] {
        let mut response = head(200, &[("vary", known), ("etag", "W/\"b\"")]);
        vary(&mut response.fields);
        encoded(&mut response.fields, Coding::Gzip);
        assert_eq!(response.fields.named(b"vary").count(), 1, "{known}");
        assert_eq!(first(&response.fields, b"etag"), Some(&b"W/\"b\""[..]));
    }
}

#[test]
fn compressors_have_a_bound_and_give_their_memory_back() {
    let compressors = Compressors::default();
    let first = compressors.take(60, 100).unwrap();
    assert!(compressors.take(41, 100).is_none());
    let second = compressors.take(40, 100).unwrap();
    drop((first, second));
    assert_eq!(compressors.used.get(), 0);
}

fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match coding {
        Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap(),
        Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out).unwrap(),
        Coding::Zstd => zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut out).unwrap(),
    };
    out
}

#[test]
fn every_coding_comes_out_as_it_went_in_at_every_level() {
    let text: Vec<u8> = (0..5000_u32).flat_map(|n| format!("{{\"n\":{n}}},").into_bytes()).collect();
    for coding in ALL {
        for level in 1..=9 {
            let level = encoder::level(coding, Some(level));
            let mut encoder = encoder::Encoder::new(coding, level).unwrap();
            let mut out = Vec::new();
            for piece in text.chunks(7000) {
                encoder.write(piece).unwrap();
                encoder.flush().unwrap();
                assert!(encoder.ready() > 0, "a flush brings it out");
                out.extend(encoder.take());
            }
            out.extend(encoder.finish().unwrap());
            assert!(out.len() < text.len() / 2, "{coding:?} {level}");
            assert!(decoded(coding, &out) == text, "{coding:?} {level}");
        }
    }
}

#[test]
fn types_are_matched_whatever_their_case() {
    let policy = policy();
    for (name, covered) in
        [("text/html", true), ("TEXT/X", true), ("text/", true), ("application/json", false), ("", false)]
    {
        assert_eq!(policy.covers(name.as_bytes()), covered, "{name}");
    }
}
