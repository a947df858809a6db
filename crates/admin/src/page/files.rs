//! The files of the page, within the binary: `ui/` at the top of the repository builds them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    IF_NONE_MATCH, LOCATION, VARY,
};
use hyper::{Method, Response, StatusCode};

use crate::api::ProblemDetails;

/// A file as it was built.
struct BuiltFile {
    /// The path below `/ui/`.
    name: &'static str,
    kind: &'static str,
    content: &'static [u8],
}

/// All files; a test compares them with the folder.
const FILES: [BuiltFile; 4] = [
    BuiltFile {
        name: "",
        kind: "text/html; charset=utf-8",
        content: include_bytes!("../../page/index.html"),
    },
    BuiltFile {
        name: "offramp.js",
        kind: "text/javascript; charset=utf-8",
        content: include_bytes!("../../page/offramp.js"),
    },
    BuiltFile {
        name: "offramp.css",
        kind: "text/css; charset=utf-8",
        content: include_bytes!("../../page/offramp.css"),
    },
    BuiltFile { name: "icon.svg", kind: "image/svg+xml", content: include_bytes!("../../page/icon.svg") },
];

/// Brotli's quality: a level more takes twice the time for 1 % of the size.
const BROTLI_QUALITY: u32 = 9;
const BROTLI_WINDOW: u32 = 22;

/// A coding of content (RFC 9110 §8.4.1), the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageCoding {
    Brotli,
    Gzip,
}

impl PageCoding {
    const ALL: [Self; 2] = [Self::Brotli, Self::Gzip];

    fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// The best coding that a client takes.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let fields = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|field| field.to_str().ok());
        let members: Vec<&str> = fields.flat_map(|field| field.split(',')).collect();
        let is_taken = |name: &str| {
            members.iter().any(|member| {
                let mut parts = member.split(';').map(str::trim);
                let is_named = parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case(name));
                let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
                is_named && weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0))
            })
        };
        Self::ALL.into_iter().find(|coding| is_taken(coding.name()))
    }

    fn encode(self, content: &[u8]) -> Vec<u8> {
        let mut encoded = Vec::new();
        // Writing to memory cannot fail.
        match self {
            Self::Brotli => {
                let mut encoder =
                    brotli::CompressorWriter::new(&mut encoded, 4096, BROTLI_QUALITY, BROTLI_WINDOW);
                let _ = encoder.write_all(content);
            }
            Self::Gzip => {
                let mut encoder = GzEncoder::new(&mut encoded, Compression::best());
                let _ = encoder.write_all(content);
                let _ = encoder.finish();
            }
        }
        encoded
    }
}

/// The files of the page, compressed when they are first asked for.
#[derive(Debug, Default)]
pub struct PageFiles {
    encoded: [[OnceLock<Bytes>; PageCoding::ALL.len()]; FILES.len()],
}

impl PageFiles {
    /// Answers a request for a file of the page; `None` for other paths.
    pub fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<Full<Bytes>>> {
        if path == "/ui" {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
            response.headers_mut().insert(LOCATION, HeaderValue::from_static("/ui/"));
            return Some(response);
        }
        let name = path.strip_prefix("/ui/")?;
        let name = if name == "index.html" { "" } else { name };
        let at = FILES.iter().position(|file| file.name == name)?;
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Some(ProblemDetails::method("GET, HEAD").response());
        }
        Some(self.file(at, headers))
    }

    fn file(&self, at: usize, headers: &HeaderMap) -> Response<Full<Bytes>> {
        let file = &FILES[at];
        let coding = PageCoding::of(headers);
        let tag = tag(file.content, coding);
        let tried = headers.get_all(IF_NONE_MATCH).iter().filter_map(|field| field.to_str().ok());
        let is_known = tried.flat_map(|field| field.split(',')).any(|one| {
            let one = one.trim();
            one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag
        });
        let (status, content) = if is_known {
            (StatusCode::NOT_MODIFIED, Bytes::new())
        } else {
            (StatusCode::OK, self.content(at, coding))
        };
        let mut response = Response::new(Full::new(content));
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(file.kind));
        // The names stay from version to version, so browsers ask each time.
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if let Ok(tag) = HeaderValue::try_from(tag) {
            fields.insert(ETAG, tag);
        }
        if let Some(coding) = coding.filter(|_| status == StatusCode::OK) {
            fields.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        }
        response
    }

    fn content(&self, at: usize, coding: Option<PageCoding>) -> Bytes {
        let plain = FILES[at].content;
        let Some(coding) = coding else { return Bytes::from_static(plain) };
        let encoded = self.encoded[at][coding as usize].get_or_init(|| coding.encode(plain).into());
        encoded.clone()
    }
}

/// The entity tag of a file in a coding.
fn tag(content: &[u8], coding: Option<PageCoding>) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    let suffix = coding.map(|coding| format!("-{}", coding.name())).unwrap_or_default();
    format!("\"{:016x}{suffix}\"", hasher.finish())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;

    use super::*;

    async fn ask(files: &PageFiles, path: &str, fields: &[(&str, &str)]) -> (StatusCode, HeaderMap, Bytes) {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(hyper::header::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let (head, body) = files.answer(&Method::GET, path, &headers).unwrap().into_parts();
        (head.status, head.headers, body.collect().await.unwrap().to_bytes())
    }

    #[tokio::test]
    async fn every_file_of_the_folder_is_served_with_its_type() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let files = PageFiles::default();
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let (status, headers, body) = ask(&files, &format!("/ui/{name}"), &[]).await;
            assert_eq!((status, &body[..]), (StatusCode::OK, &std::fs::read(&path).unwrap()[..]), "{name}");
            assert!(!headers.contains_key(CONTENT_ENCODING));
            count += 1;
        }
        assert_eq!(count, FILES.len());
        assert_eq!(ask(&files, "/ui/", &[]).await.1[CONTENT_TYPE], "text/html; charset=utf-8");
        for path in ["/ui/none", "/ui/../Cargo.toml", "/ui//", "/uix", "/ui/offramp.js/", "/ui/%6fofframp.js"]
        {
            assert!(files.answer(&Method::GET, path, &HeaderMap::new()).is_none(), "{path}");
        }
        let posted = files.answer(&Method::POST, "/ui/", &HeaderMap::new()).unwrap();
        assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(files.answer(&Method::GET, "/ui", &HeaderMap::new()).unwrap().headers()[LOCATION], "/ui/");
    }

    #[tokio::test]
    async fn files_are_compressed_as_the_client_wants_and_small() {
        let files = PageFiles::default();
        let mut all = 0;
        for file in &FILES {
            let path = format!("/ui/{}", file.name);
            let (_, headers, body) =
                ask(&files, &path, &[("accept-encoding", "gzip, deflate, br, zstd")]).await;
            assert!(headers[CONTENT_ENCODING] == "br" && headers[VARY] == "accept-encoding", "{headers:?}");
            let mut plain = Vec::new();
            brotli::Decompressor::new(&body[..], 4096).read_to_end(&mut plain).unwrap();
            assert_eq!(plain, file.content);
            all += body.len();
            let (_, headers, body) = ask(&files, &path, &[("accept-encoding", "br;q=0, GZIP;q=0.5")]).await;
            assert_eq!(headers[CONTENT_ENCODING], "gzip");
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
            assert_eq!(plain, file.content);
        }
        assert!(all <= 150 << 10, "{all} bytes");
        for field in ["", "identity", "zstd", "br;q=0", "gzip;q=0.0", "brotli", "br;q=x"] {
            let (_, headers, _) = ask(&files, "/ui/", &[("accept-encoding", field)]).await;
            assert!(!headers.contains_key(CONTENT_ENCODING), "{field}");
        }
    }

    #[tokio::test]
    async fn what_the_browser_has_is_not_sent_again() {
        let files = PageFiles::default();
        let (_, plain, _) = ask(&files, "/ui/", &[]).await;
        let (_, coded, _) = ask(&files, "/ui/", &[("accept-encoding", "br")]).await;
        let (plain, coded) = (plain[ETAG].to_str().unwrap(), coded[ETAG].to_str().unwrap());
        assert_ne!(plain, coded, "another coding is another representation");
        for tags in [plain.to_owned(), format!("\"x\", W/{plain}"), "*".to_owned()] {
            let (status, headers, body) = ask(&files, "/ui/", &[("if-none-match", &tags)]).await;
            assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0), "{tags}");
            assert!(headers[ETAG] == plain && headers[CACHE_CONTROL] == "no-cache", "{headers:?}");
        }
        assert_eq!(ask(&files, "/ui/", &[("if-none-match", coded)]).await.0, StatusCode::OK);
    }
}
