//! The content codings in which a client takes a file, and the files beside it that have them.

use offramp_http::head::Fields;
use offramp_http::semantics::accept_encoding::{self, Coding};
use offramp_net::file::OpenFile;

/// Codings to look for: the smallest first, as far as one can tell without a look.
const OFFERED: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

/// The codings that a client takes rather than the content as it is, the preferred one first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Wishes([Option<Coding>; OFFERED.len()]);

impl Wishes {
    /// Those of a request with these fields.
    pub(super) fn of(fields: &Fields) -> Self {
        let mut wishes = [None; OFFERED.len()];
        let mut offered = OFFERED.to_vec();
        for wish in &mut wishes {
            let Some(coding) = accept_encoding::choose(fields.named(b"accept-encoding"), &offered) else {
                break;
            };
            *wish = Some(coding);
            offered.retain(|other| *other != coding);
        }
        Self(wishes)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Coding> {
        self.0.into_iter().flatten()
    }
}

/// The end of the name of a file with this coding.
pub(super) fn ending(coding: Coding) -> &'static str {
    match coding {
        Coding::Brotli => ".br",
        Coding::Zstd => ".zst",
        Coding::Gzip => ".gz",
    }
}

/// Returns true if a neighbour has the content of `file`: it is not older, and no coding of anything is empty.
/// Seconds are compared, because not every program that keeps the time of a file keeps the parts of its second.
pub(super) fn belongs(neighbour: &OpenFile, file: &OpenFile) -> bool {
    neighbour.stamp.size > 0 && neighbour.stamp.modified.0 >= file.stamp.modified.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(accept: &str) -> Vec<Coding> {
        let fields: Fields = [("accept-encoding", accept)].into_iter().collect();
        Wishes::of(&fields).iter().collect()
    }

    #[test]
    fn wishes_come_by_weight_then_by_size() {
        use Coding::{Brotli, Gzip, Zstd};
        assert_eq!(wishes("gzip, deflate, br, zstd"), [Brotli, Zstd, Gzip]);
        assert_eq!(wishes("gzip"), [Gzip]);
        assert_eq!(wishes("gzip;q=1, br;q=0.5, zstd;q=0.8"), [Gzip, Zstd, Brotli]);
        assert_eq!(wishes("*;q=0.1, gzip"), [Gzip, Brotli, Zstd]);
        assert_eq!(wishes("identity, gzip;q=0.5"), []);
        assert_eq!(wishes("identity;q=0, gzip;q=0"), []);
        assert_eq!(wishes(&"gzip;q=,".repeat(1000)), []);
        assert_eq!(Wishes::of(&Fields::new()), Wishes::default());
    }
}
