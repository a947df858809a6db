//! The memory of heads, which is used again for later requests of the same worker, whichever connection they come by.

use std::cell::RefCell;

use offramp_http::head::Request;

/// Heads that are kept; more are rarely read at a time.
const MOST: usize = 64;
/// The most memory of a head that is kept, in bytes.
const LARGEST: usize = 8 * 1024;

/// Heads without a request. They go along with requests as they lie here, so that each is in a box.
#[derive(Default)]
#[allow(clippy::vec_box)]
pub(crate) struct Heads(RefCell<Vec<Box<Request>>>);

impl Heads {
    /// One for a request that has come.
    pub(crate) fn take(&self) -> Box<Request> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps the memory of an ended request, unless there is enough or it is large.
    pub(crate) fn put(&self, head: Box<Request>) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < MOST && head.fields.memory() <= LARGEST {
            kept.push(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded() {
        let heads = Heads::default();
        for _ in 0..2 * MOST {
            heads.put(Box::default());
        }
        assert_eq!(heads.0.borrow().len(), MOST);
        while !heads.0.borrow().is_empty() {
            heads.take();
        }
        let mut large = heads.take();
        large.fields.append(b"x", &vec![b'x'; LARGEST]);
        heads.put(large);
        assert!(heads.0.borrow().is_empty());
    }
}
