//! Which responses are compressed, and what becomes of their fields.

use std::io::Read as _;

use super::*;

const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

fn policy() -> Compress {
    let types = ["text/*", "application/*+json"].map(Into::into).to_vec();
    Compress { algorithms: ALL.to_vec(), min_size: 100, types, level: None, secrets: false }
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
    use CompressionVerdict::{Gains, Passes, Revalidates, Varies};
    let long = ("content-length", "100");
    let html = ("content-type", "text/html; charset=utf-8");
    for (status, fields, expected) in [
        (200, &[html, long][..], Gains),
        (404, &[html, long], Gains),
        (200, &[html], Gains),
        (200, &[html, ("content-length", "99")], Passes),
        (200, &[long], Passes),
        (200, &[("content-type", "image/png"), long], Passes),
        (200, &[("content-type", "Application/Problem+JSON"), long], Gains),
        (200, &[("content-type", "application/+jso"), long], Passes),
        (200, &[html, long, ("content-encoding", "gzip")], Passes),
        (200, &[html, long, ("content-encoding", "identity")], Gains),
        (200, &[html, long, ("cache-control", "public, No-Transform")], Passes),
        (200, &[html, long, ("repr-digest", "sha-256=:x:")], Passes),
        (200, &[html, long, ("content-range", "bytes 0-99/200")], Varies),
        (206, &[html, long, ("content-range", "bytes 0-99/200")], Varies),
        (206, &[("content-type", "image/png"), long], Passes),
        (204, &[html, long], Passes),
        (205, &[html, long], Passes),
        (304, &[html, long], Revalidates),
        (101, &[html, long], Passes),
    ] {
        assert_eq!(judge(&policy(), true, &head(status, fields)), expected, "{status} {fields:?}");
    }
    // A response to GET without a body, and one to HEAD that says the same.
    assert_eq!(judge(&policy(), false, &head(200, &[html])), Passes);
    let all = Compress { min_size: 0, ..policy() };
    assert_eq!(judge(&all, true, &head(200, &[html, ("content-length", "0")])), Passes);
}

#[test]
fn routes_with_secrets_compress_what_is_for_everybody() {
    for (field, personal) in [
        (("set-cookie", "a=b"), true),
        (("cache-control", "max-age=0, Private"), true),
        (("cache-control", "no-store"), true),
        (("cache-control", "public"), false),
    ] {
        assert_eq!(is_personal(&head(200, &[field]).fields), personal, "{field:?}");
    }
    let policy = Arc::new(policy());
    for (name, identified, personal) in [
        ("cookie", false, true),
        ("authorization", false, true),
        ("accept", false, false),
        ("accept", true, true),
    ] {
        let mut request = head::Request::new();
        request.fields.append(name.as_bytes(), b"x");
        assert_eq!(wanted(&policy, &request, identified).personal, personal, "{name}");
    }
}

#[test]
fn what_has_not_changed_is_known_by_the_tag_that_the_client_has() {
    for (asked, etag, expected, varies) in [
        ("W/\"a\"", "\"a\"", "W/\"a\"", true),
        ("\"b\", W/\"a\"", "\"a\"", "W/\"a\"", true),
        ("\"a\"", "\"a\"", "\"a\"", false),
        ("W/\"ab\"", "\"a\"", "\"a\"", false),
        ("W/\"a\"", "W/\"a\"", "W/\"a\"", false),
        ("*", "\"a\"", "\"a\"", false),
    ] {
        let request: Fields = [("if-none-match", asked)].into_iter().collect();
        let mut response = head(304, &[("etag", etag)]);
        revalidated(&request, &mut response.fields);
        assert_eq!(first(&response.fields, b"etag"), Some(expected.as_bytes()), "{asked}");
        assert_eq!(first(&response.fields, b"vary").is_some(), varies, "{asked}");
    }
}

#[test]
fn fields_are_those_of_the_compressed_content() {
    let fields = [("etag", "\"a\""), ("accept-ranges", "bytes"), ("content-length", "7"), ("vary", "Origin")];
    let mut response = head(200, &fields);
    vary(&mut response.fields);
    encoded(&mut response.fields, Coding::Brotli);
    let all: Vec<_> = response.fields.iter().map(|(n, v)| [n, b"=", v].concat()).collect();
    let all: Vec<_> = all.iter().map(|line| std::str::from_utf8(line).unwrap()).collect();
    assert_eq!(all, ["etag=W/\"a\"", "vary=Origin, Accept-Encoding", "content-encoding=br"]);
    let mut several = head(200, &[("vary", "Origin"), ("vary", ""), ("vary", "Cookie")]);
    vary(&mut several.fields);
    let all: Vec<_> = several.fields.named(b"vary").collect();
    assert_eq!(all, [b"Origin, Cookie, Accept-Encoding"]);
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
    let need = encoder::memory(Coding::Gzip);
    let first = compressors.take(Coding::Gzip, 2 * need).unwrap();
    let second = compressors.take(Coding::Gzip, 2 * need).unwrap();
    assert!(compressors.take(Coding::Gzip, 2 * need).is_none());
    assert!(compressors.take(Coding::Brotli, 2 * need).is_none());
    drop(first);
    assert!(compressors.take(Coding::Gzip, 2 * need).is_some());
    drop(second);
    assert_eq!(compressors.shared.used.get(), 0);
}

#[test]
fn what_has_finished_is_used_again() {
    let compressors = Compressors::default();
    let text = b"the same words again and again and again and again".repeat(50);
    for coding in ALL {
        for (round, level) in [3, 3, 1, 6].into_iter().enumerate() {
            let place = compressors.take(coding, usize::MAX).unwrap();
            let spare = place.spare();
            assert_eq!(spare.is_some(), round > 0 && coding != Coding::Brotli, "{coding:?}");
            // The second has what the first knew forgotten, whatever its length was.
            let length = (round % 2 == 0).then_some(text.len() as u64);
            let mut encoder = encoder::Encoder::new(coding, level, length, spare).unwrap();
            encoder.write(&text).unwrap();
            let (out, machine) = encoder.finish().unwrap();
            place.finished(machine);
            assert!(decoded(coding, &out) == text, "{coding:?} {round}");
        }
    }
    assert_eq!(compressors.shared.used.get(), 0);
}

#[test]
fn an_encoder_that_was_left_in_mid_content_spoils_nothing() {
    let compressors = Compressors::default();
    for coding in ALL {
        let mut left = encoder::Encoder::new(coding, 3, Some(9000), None).unwrap();
        left.write(&[b'x'; 5000]).unwrap();
        drop((left, compressors.take(coding, usize::MAX)));
        let place = compressors.take(coding, usize::MAX).unwrap();
        assert!(place.spare().is_none(), "only what has finished is kept");
    }
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
            let mut encoder = encoder::Encoder::new(coding, level, None, None).unwrap();
            let mut out = Vec::new();
            for piece in text.chunks(7000) {
                encoder.write(piece).unwrap();
                encoder.flush().unwrap();
                assert!(encoder.ready() > 0, "a flush brings it out");
                out.extend(encoder.take());
            }
            out.extend(encoder.finish().unwrap().0);
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
