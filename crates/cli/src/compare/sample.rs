//! An even sample of requests in bounded memory, whatever the length of a log.
//!
//! Each pair of method, host and path has a number, its hash. The pairs with the smallest numbers are kept, so that each has the
//! same chance, however often it was requested. Where there is room, other requests of the same paths are kept, too.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};

use super::request::ReplayRequest;

/// The sample.
#[derive(Debug)]
pub(super) struct RequestSample {
    most: usize,
    /// The first request of each page, by the number of the page.
    pages: BTreeMap<u64, SampledRequest>,
    /// Different requests of the same pages, by their own numbers.
    others: BTreeMap<u64, SampledRequest>,
    /// Set once there were more pages than room.
    has_overflowed: bool,
    usable: u64,
}

#[derive(Debug)]
struct SampledRequest {
    order: u64,
    own: u64,
    request: ReplayRequest,
}

/// The requests that are sent, and what they stand for.
#[derive(Debug)]
pub(super) struct ChosenRequests {
    /// In the order in which they were recorded.
    pub(super) requests: Vec<ReplayRequest>,
    /// Requests that could have been sent.
    pub(super) usable: u64,
    /// Set where different requests were left out.
    pub(super) is_partial: bool,
}

impl RequestSample {
    pub(super) fn new(most: usize) -> Self {
        let (pages, others) = (BTreeMap::new(), BTreeMap::new());
        Self { most: most.max(1), pages, others, has_overflowed: false, usable: 0 }
    }

    /// Adds a request, or leaves it out.
    pub(super) fn add(&mut self, request: ReplayRequest) {
        self.usable += 1;
        let page = number(&(request.method.as_str(), &request.host, request.path()));
        let fields: Vec<_> =
            request.fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let own = number(&(page, &request.target, fields, &request.body));
        let one = SampledRequest { order: self.usable, own, request };
        if let Some(first) = self.pages.get(&page) {
            if first.own != own && !self.has_overflowed && !self.others.contains_key(&own) {
                keep(&mut self.others, self.most, own, one);
            }
            return;
        }
        if keep(&mut self.pages, self.most, page, one) {
            self.has_overflowed = true;
            self.others.clear();
        }
    }

    /// Chooses: each page once, then other requests while there is room.
    pub(super) fn choose(self) -> ChosenRequests {
        let room = self.most - self.pages.len();
        let is_partial = self.has_overflowed || self.others.len() > room;
        let mut chosen: Vec<SampledRequest> =
            self.pages.into_values().chain(self.others.into_values().take(room)).collect();
        chosen.sort_by_key(|one| one.order);
        let requests = chosen.into_iter().map(|one| one.request).collect();
        ChosenRequests { requests, usable: self.usable, is_partial }
    }
}

/// Keeps one of the smallest numbers; returns `true` if one was left out for it, or it was itself.
fn keep(kept: &mut BTreeMap<u64, SampledRequest>, most: usize, key: u64, one: SampledRequest) -> bool {
    if kept.len() < most {
        kept.insert(key, one);
        return false;
    }
    if kept.last_key_value().is_some_and(|(last, _)| key < *last) {
        kept.pop_last();
        kept.insert(key, one);
    }
    true
}

/// A number that is the same in each run, so that a comparison can be repeated.
fn number(of: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use hyper::Method;
    use proptest::prelude::*;

    use super::super::request::{RecordedLine, admit};
    use super::*;

    fn request(path: &str) -> ReplayRequest {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let query = query.map(str::as_bytes);
        let line = RecordedLine { method: Some(b"GET"), path: path.as_bytes(), query, host: None };
        admit(&line, &[Method::GET]).unwrap()
    }

    fn chosen(most: usize, paths: impl IntoIterator<Item = String>) -> (Vec<String>, u64, bool) {
        let mut sample = RequestSample::new(most);
        paths.into_iter().for_each(|path| sample.add(request(&path)));
        let chosen = sample.choose();
        (
            chosen.requests.into_iter().map(|request| request.target).collect(),
            chosen.usable,
            chosen.is_partial,
        )
    }

    #[test]
    fn each_page_comes_before_a_second_request_of_one() {
        let paths = ["/a", "/a?1", "/a", "/b?x", "/a?2", "/a?3"].map(str::to_owned);
        let (all, usable, is_partial) = chosen(10, paths.clone());
        assert_eq!(
            (all, usable, is_partial),
            (["/a", "/a?1", "/b?x", "/a?2", "/a?3"].map(str::to_owned).to_vec(), 6, false)
        );
        let (some, _, is_partial) = chosen(3, paths.clone());
        assert!(some.contains(&"/a".to_owned()) && some.contains(&"/b?x".to_owned()), "{some:?}");
        assert_eq!((some.len(), is_partial), (3, true));
        let (one, _, is_partial) = chosen(1, paths);
        assert_eq!((one.len(), is_partial), (1, true));
    }

    #[test]
    fn a_page_that_is_asked_for_often_displaces_none() {
        let paths = (0..20_000).map(|at| if at % 100 == 0 { format!("/{at}") } else { "/".to_owned() });
        let (chosen, usable, is_partial) = chosen(50, paths);
        assert_eq!((chosen.len(), usable, is_partial), (50, 20_000, true));
        // Of 201 pages, those of the later half are about half of the sample.
        let later =
            chosen.iter().filter(|path| path[1..].parse::<u32>().is_ok_and(|at| at >= 10_000)).count();
        assert!((10..=40).contains(&later), "{chosen:?}");
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_nothing_is_made_up(most in 1_usize..20, paths in prop::collection::vec("/[a-f](\\?[a-c])?", 0..100)) {
            let mut sample = RequestSample::new(most);
            for path in &paths {
                sample.add(request(path));
                prop_assert!(sample.pages.len() <= most && sample.others.len() <= most);
            }
            let chosen = sample.choose();
            let targets: std::collections::BTreeSet<&str> = chosen.requests.iter().map(|one| one.target.as_str()).collect();
            let recorded: std::collections::BTreeSet<&str> = paths.iter().map(String::as_str).collect();
            prop_assert_eq!(targets.len(), chosen.requests.len());
            prop_assert!(targets.is_subset(&recorded));
            prop_assert_eq!(chosen.is_partial, targets.len() < recorded.len());
            prop_assert_eq!(targets.len(), recorded.len().min(most));
        }
    }
}
