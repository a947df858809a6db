//! The examples of docs/how-to/logs.md are run as they stand there.

use std::fs;
use std::path::Path;
use std::process::Command;

use offramp_testkit::process::temp_dir;

use crate::support::offramp::{offramp, stderr, stdout};

/// A command of the page, and what it prints there.
struct Example {
    command: String,
    output: String,
}

fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap_or_default().lines() {
            match (line.strip_prefix("$ "), examples.last_mut()) {
                (Some(command), _) => {
                    examples.push(Example { command: command.to_owned(), output: String::new() });
                }
                (None, Some(last)) => last.output += &format!("{line}\n"),
                (None, None) => panic!("output before a command: {line}"),
            }
        }
    }
    examples
}

#[test]
fn every_example_prints_what_stands_below_it() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/logs.md");
    let examples = examples(&fs::read_to_string(page).unwrap());
    assert!(examples.len() > 8);
    let home = temp_dir();
    let binary = offramp(home.path(), &[]);
    let folder = Path::new(binary.get_program()).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(folder.to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    for Example { command, output } in examples {
        if let Some(file) = command.strip_prefix("cat ") {
            fs::write(home.path().join(file), &output).unwrap();
        }
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("{command} 2>&1")])
            .current_dir(home.path())
            .env("PATH", path.as_ref().unwrap())
            .env("TZ", "Asia/Tokyo");
        let found = shell.output().unwrap();
        assert_eq!(stdout(&found).replace('\r', ""), output, "{command}: {}", stderr(&found));
    }
}
