//! The files that routes answer with: pages of errors, bodies of fixed responses, and maps of redirects. Each is read once for a snapshot, whole, and kept in memory.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use offramp_config::model::{self, FilePath};
use offramp_config::{At, Config, Place};
use offramp_process::Findings;
use offramp_proxy::route::redirects::{self, MapFault};
use offramp_proxy::{ErrorPage, ErrorPages, RedirectMap};

/// The largest page. It is kept in memory, and sent whole.
const PAGE_MAX: u64 = 1 << 20;

/// The largest body of a fixed response. What is larger is for `root`.
const BODY_MAX: u64 = 16 << 20;

/// Everything that was read. A file that could not be read has nothing: it was reported.
#[derive(Clone, Default)]
pub struct Contents {
    /// Set if they were read for a snapshot before: the files may be gone.
    is_known: bool,
    pages: HashMap<PathBuf, Option<Arc<ErrorPage>>>,
    bodies: HashMap<PathBuf, Option<Bytes>>,
    /// By the path of the route too, in which all paths of a map have to be.
    maps: HashMap<(PathBuf, String), Option<Arc<RedirectMap>>>,
}

/// The files that a configuration names for this.
pub fn files(config: &Config) -> impl Iterator<Item = &FilePath> {
    config.routes.iter().flat_map(of_route)
}

fn of_route(route: &model::RouteConfig) -> Vec<&FilePath> {
    let body = match &route.target {
        model::RouteTarget::Respond(respond) => respond.file.as_ref(),
        _ => None,
    };
    let pages = route.http.error_pages.files.iter().map(|(_, file)| file);
    pages.chain(body).chain(&route.http.redirects).collect()
}

impl Contents {
    /// The same for another snapshot, for which no file needs to be there.
    pub fn again(&self) -> Self {
        Self { is_known: true, ..self.clone() }
    }

    /// True if the files need not be there any more.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// The pages of a route.
    pub fn pages(&mut self, pages: &model::ErrorPageFiles, report: &mut Findings) -> Option<Arc<ErrorPages>> {
        if pages.files.is_empty() {
            return None;
        }
        let mut found = Vec::with_capacity(pages.files.len());
        for (status, file) in &pages.files {
            if let Some(page) = self.page(file, report) {
                found.push((status.first()..=status.last(), page));
            }
        }
        Some(Arc::new(ErrorPages::new(found, pages.intercept)))
    }

    fn page(&mut self, file: &FilePath, report: &mut Findings) -> Option<Arc<ErrorPage>> {
        if let Some(known) = self.pages.get(&file.path) {
            return known.clone();
        }
        let content = load("error_pages", file, PAGE_MAX, report);
        let page = content.map(|content| Arc::new(ErrorPage::new(&file.path.to_string_lossy(), content)));
        self.pages.insert(file.path.clone(), page.clone());
        page
    }
}

impl Contents {
    /// The body of a fixed response.
    pub fn body(&mut self, file: &FilePath, report: &mut Findings) -> Option<Bytes> {
        if let Some(known) = self.bodies.get(&file.path) {
            return known.clone();
        }
        let body = load("respond", file, BODY_MAX, report).map(Bytes::from);
        self.bodies.insert(file.path.clone(), body.clone());
        body
    }
}

impl Contents {
    /// The redirects of a route with this path.
    pub fn redirects(
        &mut self,
        file: &FilePath,
        below: &str,
        report: &mut Findings,
    ) -> Option<Arc<RedirectMap>> {
        let key = (file.path.clone(), below.to_owned());
        if let Some(known) = self.maps.get(&key) {
            return known.clone();
        }
        let content = load("redirects", file, redirects::TEXT_MAX as u64, report);
        let map = content.and_then(|content| redirect_map(file, content, below, report));
        self.maps.insert(key, map.clone());
        map
    }
}

/// The map that a file holds. Its mistakes are reported in their own lines.
fn redirect_map(
    file: &FilePath,
    content: Vec<u8>,
    below: &str,
    report: &mut Findings,
) -> Option<Arc<RedirectMap>> {
    let path = file.path.display();
    let text = String::from_utf8(content);
    let text = text.map_err(|error| report.error(&file.at, format!("redirects: {path}: {error}"))).ok()?;
    let faults = match RedirectMap::read(text, below) {
        Ok(map) => return Some(Arc::new(map)),
        Err(faults) => faults,
    };
    let name: Arc<str> = path.to_string().into();
    for MapFault { line, column, text } in faults.listed {
        let at = At::from(Place { file: Arc::clone(&name), line, column });
        report.error(&at, format!("redirects: {text}"));
    }
    if faults.more > 0 {
        report.error(&file.at, format!("redirects: {path} has {} more mistakes", faults.more));
    }
    None
}

/// The content of a file that `key` names. What is wrong with it is reported in the line of the key.
fn load(key: &str, file: &FilePath, most: u64, report: &mut Findings) -> Option<Vec<u8>> {
    let path = file.path.display();
    match bounded(&file.path, most) {
        Ok(content) if content.len() as u64 <= most => return Some(content),
        Ok(_) => {
            let most = most >> 10;
            report.error(&file.at, format!("{key}: {path} is larger than {most} KiB"));
        }
        Err(error) => report.error(&file.at, format!("{key}: cannot read {path}: {error}")),
    }
    None
}

/// The content of a regular file, and no more of it than shows that it is too large.
fn bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Opening a named pipe would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut content)?;
    Ok(content)
}
