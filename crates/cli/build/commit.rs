//! The commit that a release is built from, as `OFFRAMP_COMMIT` and `OFFRAMP_COMMIT_DATE` for the program.
//!
//! Packagers, who build without a repository, set both variables. Development builds have no commit: each commit would
//! build the program and its tests again.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Tells cargo the commit, or nothing where it is not known.
pub(crate) fn tell(is_release: bool) {
    let names = ["OFFRAMP_COMMIT", "OFFRAMP_COMMIT_DATE"];
    for name in names {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let given = names.map(|name| env::var(name).unwrap_or_default());
    let [commit, date] =
        if given[0].is_empty() && is_release { of_repository().unwrap_or_default() } else { given };
    // One line each: a newline would begin another instruction to cargo.
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    assert!(plain(&commit) && plain(&date), "OFFRAMP_COMMIT and OFFRAMP_COMMIT_DATE are a hash and a date");
    println!("cargo::rustc-env=OFFRAMP_COMMIT={commit}");
    println!("cargo::rustc-env=OFFRAMP_COMMIT_DATE={date}");
}

/// Hash and date of the commit that is checked out, with `+` where files differ from it. `None` without git, or where the
/// sources lie in the repository of another project.
fn of_repository() -> Option<[String; 2]> {
    let own = fs::canonicalize("../..").ok()?;
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if fs::canonicalize(top).ok()? != own {
        return None;
    }
    // The file changes with a checkout, the branch with a commit.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD".to_owned(), "packed-refs".to_owned()].into_iter().chain(branch) {
        let file = git(&["rev-parse", "--git-path", &name])?;
        if Path::new(&file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    let shown = git(&["log", "-1", "--format=%h %cs", "--abbrev=12"])?;
    let (hash, date) = shown.split_once(' ')?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some([if changes.is_empty() { hash.to_owned() } else { format!("{hash}+") }, date.to_owned()])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}
