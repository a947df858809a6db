//! Number, commit and build of this program.

/// The number of the release.
pub(crate) const NUMBER: &str = env!("CARGO_PKG_VERSION");

/// The commit of a release, with `+` where files differed from it; empty if it is not known.
pub(crate) const COMMIT: &str = env!("OFFRAMP_COMMIT");

#[cfg(feature = "otlp")]
macro_rules! features {
    () => {
        ", with otlp"
    };
}
#[cfg(not(feature = "otlp"))]
macro_rules! features {
    () => {
        ""
    };
}
/// Number and build, around a commit that is made of literals.
macro_rules! long {
    ($($commit:expr),+) => {
        concat!(
            env!("CARGO_PKG_VERSION"), "\ncommit: ", $($commit),+,
            "\nbuild:  ", env!("OFFRAMP_BUILD"), features!()
        )
    };
}

/// All of it, for people and for reports of faults.
pub(crate) const LONG: &str = if COMMIT.is_empty() {
    long!("not known")
} else {
    long!(env!("OFFRAMP_COMMIT"), " of ", env!("OFFRAMP_COMMIT_DATE"))
};
