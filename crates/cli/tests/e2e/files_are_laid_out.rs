//! `offramp fmt`: what is printed, compared and written, and what bad files get.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Output, Stdio};

use offramp_testkit::process::temp_dir;

use crate::support::offramp::{offramp, output, stderr, stdout};

const WRITTEN: &str = "# all\na='x'\n[[route]]\nserver=[ \"b\" ] # c\n";
const LAID_OUT: &str = "# all\na = \"x\"\n\n[[route]]\nserver = [\"b\"] # c\n";

/// Exit code, standard output and standard error.
fn ran(home: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    told(&output(home, arguments))
}

fn told(output: &Output) -> (Option<i32>, String, String) {
    (output.status.code(), stdout(output), stderr(output))
}

fn ran_with_input(home: &Path, arguments: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
    let mut command = offramp(home, arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    told(&child.wait_with_output().unwrap())
}

fn read(home: &Path, name: &str) -> String {
    fs::read_to_string(home.join(name)).unwrap()
}

#[test]
fn the_text_is_printed_and_the_file_stays() {
    let home = temp_dir();
    let home = home.path();
    fs::write(home.join("offramp.toml"), WRITTEN).unwrap();
    let laid_out = (Some(0), LAID_OUT.to_owned(), String::new());
    assert_eq!(ran(home, &["fmt"]), laid_out);
    assert_eq!(ran(home, &["fmt", "offramp.toml"]), laid_out);
    assert_eq!(ran_with_input(home, &["fmt", "-"], WRITTEN.as_bytes()), laid_out);
    assert_eq!(ran_with_input(home, &["fmt", "-"], LAID_OUT.as_bytes()), laid_out);
    assert_eq!(read(home, "offramp.toml"), WRITTEN);
    // Without a file there is nothing to lay out.
    fs::remove_file(home.join("offramp.toml")).unwrap();
    if !Path::new("/etc/offramp/offramp.toml").exists() {
        let (code, _, said) = ran(home, &["fmt"]);
        assert!(code == Some(2) && said.contains("there is no configuration"), "{said}");
    }
}

#[test]
fn a_check_names_the_first_line_and_a_difference_shows_all() {
    let home = temp_dir();
    let home = home.path();
    fs::write(home.join("a.toml"), WRITTEN).unwrap();
    fs::write(home.join("b.toml"), LAID_OUT).unwrap();
    let (code, printed, said) = ran(home, &["fmt", "--check", "a.toml"]);
    assert_eq!((code, printed.as_str()), (Some(1), ""), "{said}");
    assert!(said.starts_with("a.toml:2: the line would be: a = \"x\"\n"), "{said}");
    assert!(said.contains("offramp fmt --overwrite a.toml"), "{said}");
    assert_eq!(ran(home, &["fmt", "--check", "b.toml"]), (Some(0), String::new(), String::new()));
    let of_input = ran_with_input(home, &["fmt", "--check", "-"], WRITTEN.as_bytes());
    assert_eq!(of_input.2, "standard input:2: the line would be: a = \"x\"\n");
    assert_eq!(of_input.0, Some(1));
    // All files are looked at.
    let (code, _, said) = ran(home, &["fmt", "--check", "b.toml", "a.toml", "a.toml"]);
    assert_eq!((code, said.matches("a.toml:2:").count()), (Some(1), 2), "{said}");
    let diff = "\
--- a.toml.orig
+++ a.toml
@@ -1,4 +1,5 @@
 # all
-a='x'
+a = \"x\"
+
 [[route]]
-server=[ \"b\" ] # c
+server = [\"b\"] # c
";
    assert_eq!(ran(home, &["fmt", "--diff", "a.toml"]), (Some(0), diff.to_owned(), String::new()));
    let (code, printed, said) = ran(home, &["fmt", "--diff", "--check", "a.toml"]);
    assert_eq!((code, printed.as_str()), (Some(1), diff), "{said}");
    assert_eq!(ran(home, &["fmt", "--diff", "b.toml"]), (Some(0), String::new(), String::new()));
    for flags in [["--overwrite", "--check"], ["--overwrite", "--diff"]] {
        assert_eq!(ran(home, &["fmt", flags[0], flags[1], "a.toml"]).0, Some(2));
    }
}

#[test]
fn a_file_is_replaced_and_keeps_its_mode_and_its_links() {
    let home = temp_dir();
    let home = home.path();
    fs::create_dir(home.join("etc")).unwrap();
    fs::write(home.join("etc/a.toml"), WRITTEN).unwrap();
    fs::set_permissions(home.join("etc/a.toml"), Permissions::from_mode(0o640)).unwrap();
    symlink("etc/a.toml", home.join("link.toml")).unwrap();
    let before = fs::metadata(home.join("etc/a.toml")).unwrap();
    assert_eq!(ran(home, &["fmt", "--overwrite", "link.toml"]), (Some(0), String::new(), String::new()));
    let after = fs::metadata(home.join("etc/a.toml")).unwrap();
    assert_eq!(read(home, "etc/a.toml"), LAID_OUT);
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert!(fs::symlink_metadata(home.join("link.toml")).unwrap().is_symlink());
    assert_eq!(fs::read_dir(home.join("etc")).unwrap().count(), 1, "nothing is left beside it");
    // Another name of the file keeps what it had.
    fs::write(home.join("one.toml"), WRITTEN).unwrap();
    fs::hard_link(home.join("one.toml"), home.join("other.toml")).unwrap();
    let (code, _, said) = ran(home, &["fmt", "-w", "one.toml"]);
    assert!(code == Some(0) && said.contains("its 1 other names (hard links) keep the old text"), "{said}");
    assert_eq!((read(home, "one.toml").as_str(), read(home, "other.toml").as_str()), (LAID_OUT, WRITTEN));
    // A file that has its layout is not touched.
    assert_ne!(before.ino(), after.ino());
    assert_eq!(ran(home, &["fmt", "-w", "etc/a.toml"]), (Some(0), String::new(), String::new()));
    assert_eq!(fs::metadata(home.join("etc/a.toml")).unwrap().ino(), after.ino());
}

#[test]
fn what_is_no_toml_is_told_as_by_check_and_stays() {
    let home = temp_dir();
    let home = home.path();
    let text = "a=1\n[limits]\nidle_timeout = 5m\n\n[[route]\nserver = \"127.0.0.1:80\"\n";
    fs::write(home.join("a.toml"), text).unwrap();
    let (_, _, of_check) = ran(home, &["check", "-c", "a.toml"]);
    for flags in [
        &["fmt", "a.toml"][..],
        &["fmt", "-w", "a.toml"],
        &["fmt", "--check", "a.toml"],
        &["fmt", "--diff", "a.toml"],
    ] {
        let (code, printed, said) = ran(home, flags);
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{said}");
        let errors: Vec<&str> = said.split("\n\n").filter(|error| error.starts_with("error:")).collect();
        assert_eq!(errors.len(), 2, "{said}");
        for error in errors {
            assert!(of_check.contains(error), "{error}\n---\n{of_check}");
            assert!(error.contains("--> a.toml:") && error.contains('^'), "{error}");
        }
    }
    assert_eq!(read(home, "a.toml"), text);
    // One such file keeps no other from its layout, and the gravest failure decides on the exit code.
    fs::write(home.join("b.toml"), WRITTEN).unwrap();
    assert_eq!(ran(home, &["fmt", "-w", "a.toml", "b.toml"]).0, Some(2));
    assert_eq!(read(home, "b.toml"), LAID_OUT);
    fs::write(home.join("b.toml"), WRITTEN).unwrap();
    let (code, _, said) = ran(home, &["fmt", "--check", "b.toml", "a.toml"]);
    assert!(code == Some(2) && said.contains("b.toml:2:") && said.contains("a.toml:3:"), "{said}");
}

#[test]
fn bad_files_get_clear_errors() {
    let home = temp_dir();
    let home = home.path();
    fs::create_dir(home.join("folder")).unwrap();
    fs::write(home.join("latin.toml"), b"a = 1\nb = \"\xe9\"\n").unwrap();
    fs::write(home.join("readonly.toml"), WRITTEN).unwrap();
    fs::set_permissions(home.join("readonly.toml"), Permissions::from_mode(0o444)).unwrap();
    let large = fs::File::create(home.join("large.toml")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    for (arguments, code, what) in [
        (&["fmt", "none.toml"][..], 2, "cannot read none.toml: No such file"),
        (&["fmt", "-w", "none.toml"], 2, "cannot read none.toml: No such file"),
        (&["fmt", "folder"], 2, "cannot read folder: Is a directory"),
        (&["fmt", "-w", "folder"], 2, "cannot read folder: Is a directory"),
        (&["fmt", "latin.toml"], 2, "latin.toml, line 2: not UTF-8"),
        (&["fmt", "large.toml"], 2, "large.toml is larger than 16 MiB"),
        (&["fmt", "-w", "readonly.toml"], 1, "cannot write readonly.toml: it is write-protected"),
        (&["fmt", "-w", "-"], 2, "standard input cannot be overwritten"),
        (&["fmt", "-w", "/dev/null"], 0, ""),
    ] {
        let (found, printed, said) = ran(home, arguments);
        assert_eq!((found, printed.as_str()), (Some(code), ""), "{arguments:?}: {said}");
        assert!(said.contains(what), "{arguments:?}: {said}");
    }
    assert_eq!(read(home, "readonly.toml"), WRITTEN);
    // What can be read alone can be printed.
    assert_eq!(ran(home, &["fmt", "readonly.toml"]).1, LAID_OUT);
    let (code, _, said) = ran_with_input(home, &["fmt", "-"], b"a = \xff");
    assert!(code == Some(2) && said.contains("standard input, line 1: not UTF-8"), "{said}");
    let (code, _, said) = ran_with_input(home, &["fmt", "-"], b"a = ");
    assert!(code == Some(2) && said.contains("--> standard input:1:"), "{said}");
}

#[test]
fn marks_of_byte_order_and_carriage_returns_go() {
    let home = temp_dir();
    let home = home.path();
    let text = format!("\u{feff}{}", LAID_OUT.replace('\n', "\r\n"));
    fs::write(home.join("a.toml"), &text).unwrap();
    let (code, _, said) = ran(home, &["fmt", "--check", "a.toml"]);
    assert!(code == Some(1) && said.starts_with("a.toml:1: it begins with a byte order mark"), "{said}");
    fs::write(home.join("a.toml"), text.trim_start_matches('\u{feff}')).unwrap();
    let (code, _, said) = ran(home, &["fmt", "--check", "a.toml"]);
    assert!(code == Some(1) && said.starts_with("a.toml:1: the line ends with a carriage return"), "{said}");
    fs::write(home.join("a.toml"), text).unwrap();
    assert_eq!(ran(home, &["fmt", "-w", "a.toml"]).0, Some(0));
    assert_eq!(read(home, "a.toml"), LAID_OUT);
}

#[test]
fn the_page_shows_what_is_printed() {
    let home = temp_dir();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/how-to/editor.md")).unwrap();
    let section = page.split("\n## Layout\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let block = |language: &str| {
        let rest = section.split(&format!("```{language}\n")).nth(1).unwrap();
        rest.split("```").next().unwrap().to_owned()
    };
    let printed = ran_with_input(home.path(), &["fmt", "-"], block("text").as_bytes());
    assert_eq!(printed, (Some(0), block("toml"), String::new()));
}

#[test]
fn the_examples_are_laid_out() {
    let home = temp_dir();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("examples")).unwrap() {
        let file = entry.unwrap().path().join("offramp.toml");
        files.extend(file.exists().then(|| file.display().to_string()));
    }
    assert!(files.len() >= 5, "{files:?}");
    let arguments: Vec<&str> =
        ["fmt", "--check"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let (code, _, said) = ran(home.path(), &arguments);
    assert_eq!(code, Some(0), "{said}");
}
