//! Has the linker place the functions of `link-order.txt` next to each other, in optimised builds.
//!
//! The kernel maps code in pieces of 64 KiB. What runs at the start and for requests is a seventh of the code; where the
//! linker puts it here and there, half of all pieces are mapped. `bench/link_order.py` writes the list.
//!
//! GNU ld and lld can do this, by a linker script with `INSERT`. With any other linker, and wherever the trial below
//! fails, the program is linked as usual.
//!
//! Functions with the same instructions are in the program once, where the linker can do that (lld, gold): generic code gives
//! many. No code of Offramp compares addresses of functions, and Rust does not promise that they differ.

#[path = "build/commit.rs"]
mod commit;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

const LIST: &str = "link-order.txt";
/// Identical code folding.
const FOLD: &str = "-Wl,--icf=all";

fn main() {
    for name in ["build.rs", LIST] {
        println!("cargo::rerun-if-changed={name}");
    }
    // 3 in the profile `release`, s in `dist`.
    let is_release = matches!(env::var("OPT_LEVEL").as_deref(), Ok("3" | "s"));
    let kind = if is_release { "release" } else { "development build" };
    let target = env::var("TARGET").expect("cargo sets TARGET");
    println!("cargo::rustc-env=OFFRAMP_BUILD={kind} for {target}");
    commit::tell(is_release);
    // Development builds have other functions: what is inlined here is not inlined there.
    if !is_release || env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let script = folder.join("link-order.ld");
    let list = fs::read_to_string(LIST).expect("link-order.txt is beside build.rs");
    fs::write(&script, linker_script(&list)).expect("OUT_DIR can be written to");
    let argument = format!("-Wl,-T,{}", script.display());
    match links(&folder, &argument) {
        Ok(()) => println!("cargo::rustc-link-arg-bins={argument}"),
        Err(why) => println!("cargo::warning=functions stay where the linker puts them: {why}"),
    }
    // GNU ld cannot, and the program is only larger then: no warning.
    if links(&folder, FOLD).is_ok() {
        println!("cargo::rustc-link-arg-bins={FOLD}");
    }
}

/// The parts of the list go into `.text` first. lld adds the rest of the code to it; GNU ld makes a second `.text`.
fn linker_script(list: &str) -> String {
    let mut parts = vec![String::new()];
    for line in list.lines() {
        if line.starts_with('#') {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            assert!(
                line.chars().all(|c| c.is_ascii_alphanumeric() || "_.$*".contains(c)),
                "`{line}` is no symbol"
            );
            part.push_str(&format!("      .text.{line} .text.unlikely.{line}\n"));
        }
    }
    let groups: String =
        parts.iter().filter(|part| !part.is_empty()).map(|part| format!("    *(\n{part}    )\n")).collect();
    format!("SECTIONS\n{{\n  .text :\n  {{\n{groups}  }}\n}}\nINSERT BEFORE .fini;\n")
}

/// Whether a small program can be linked in this way, and runs.
fn links(folder: &Path, argument: &str) -> Result<(), String> {
    let (source, program) = (folder.join("trial.rs"), folder.join("trial"));
    fs::write(&source, "fn main() {}\n").map_err(|error| error.to_string())?;
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let mut rustc = Command::new(variable("RUSTC").unwrap_or_else(|| "rustc".to_owned()));
    rustc
        .args(["--edition=2024", "--crate-name=trial", "--crate-type=bin"])
        .arg(format!("-Clink-arg={argument}"));
    if let Some(linker) = variable("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let (host, target) = (variable("HOST"), variable("TARGET"));
    if let Some(target) = target.as_ref().filter(|target| host.as_ref() != Some(*target)) {
        rustc.arg("--target").arg(target);
    }
    if let Some(flags) = variable("CARGO_ENCODED_RUSTFLAGS") {
        rustc.args(flags.split('\u{1f}'));
    }
    rustc.arg("-o").arg(&program).arg(&source);
    succeeds(&mut rustc).map_err(|error| format!("the linker cannot ({error})"))?;
    if host == target {
        succeeds(&mut Command::new(&program))
            .map_err(|error| format!("what it links does not run ({error})"))?;
    }
    Ok(())
}

fn succeeds(command: &mut Command) -> io::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}
