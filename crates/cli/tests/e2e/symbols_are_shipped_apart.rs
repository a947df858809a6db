//! What `make install` puts in place: a program without symbols, and these where debuggers look for them.

use std::fs;
use std::path::Path;
use std::process::Command;

use offramp_testkit::process::{require, temp_dir};

#[test]
fn the_program_is_stripped_and_its_symbols_are_found() {
    let home = temp_dir();
    let _ = require("objcopy", "binutils");
    let built = Path::new(env!("CARGO_BIN_EXE_offramp"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = home.path().join("bin");
    let shipped = Command::new(root.join("scripts/ship")).arg(built).arg(&folder).output().unwrap();
    assert!(shipped.status.success(), "{}", String::from_utf8_lossy(&shipped.stderr));
    let program = folder.join("offramp");
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(size(&program) * 2 < size(built), "{} of {}", size(&program), size(built));
    let version = Command::new(&program).arg("version").output().unwrap();
    assert!(version.stdout.starts_with(b"offramp "));

    let sections = |path: &Path| {
        let output = Command::new(require("readelf", "binutils")).arg("-SW").arg(path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let of_program = sections(&program);
    assert!(!of_program.contains(".symtab") && !of_program.contains(".debug_line"), "{of_program}");
    assert!(of_program.contains(".gnu_debuglink"), "{of_program}");
    let of_symbols = sections(&folder.join(".debug/offramp.debug"));
    assert!(of_symbols.contains(".symtab") && of_symbols.contains(".debug_line"), "{of_symbols}");
    // The link has the name of the file and its checksum.
    let link = Command::new("readelf").args(["-p", ".gnu_debuglink"]).arg(&program).output().unwrap();
    assert!(String::from_utf8_lossy(&link.stdout).contains("offramp.debug"));
}
