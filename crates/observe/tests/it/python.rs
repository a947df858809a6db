//! The metrics page under Prometheus's own parsers of both formats, those of its client for Python.

use crate::exposition::exposition;
use offramp_observe::ExpositionFormat;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// What the expectations below were written for.
const PACKAGE: &str = "prometheus_client==0.21.1";

/// Reads a page from standard input and prints the families, each with its type and number of samples.
const PROGRAM: &str = "
import sys
if sys.argv[1] == 'openmetrics':
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
else:
    from prometheus_client.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    print(family.name, family.type, len(family.samples), family.unit)
";

/// The Python of an environment that has a package, as `name==version`; made once, whichever test comes first.
pub(crate) fn python(package: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(package.replace("==", "-"));
    let python = place.join("bin/python");
    if !place.join("complete").exists() {
        // What an interrupted run may have left is of no use.
        let _ = fs::remove_dir_all(&place);
        let mut venv = Command::new("python3");
        succeed(venv.args(["-m", "venv"]).arg(&place), "on Debian: apt-get install python3-venv");
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.arg(package);
        succeed(&mut pip, "it comes from PyPI, which must be reachable once");
        fs::write(place.join("complete"), package).unwrap();
    }
    python
}

pub(crate) fn succeed(command: &mut Command, advice: &str) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}\n{advice}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {complaint}\n{advice}");
    String::from_utf8(output.stdout).unwrap()
}

fn parse(place: &Path, format: &str, page: &[u8]) -> Vec<String> {
    let file = place.join(format);
    fs::write(&file, page).unwrap();
    let mut reader = Command::new(python(PACKAGE));
    reader.args(["-c", PROGRAM, format]).stdin(Stdio::from(fs::File::open(file).unwrap()));
    succeed(&mut reader, "the page is not what the parser takes").lines().map(str::to_owned).collect()
}

#[test]
fn the_parsers_of_prometheus_read_the_page() {
    let (exposition, _flusher) = exposition();
    let place = tempfile::tempdir().unwrap();
    let mut text = Vec::new();
    exposition.render(ExpositionFormat::Prometheus, &mut text);
    let text = parse(place.path(), "text", &text);
    assert!(text.contains(&"offramp_client_requests counter 1 ".to_owned()), "{text:#?}");
    let mut open = Vec::new();
    exposition.render(ExpositionFormat::OpenMetrics, &mut open);
    let open = parse(place.path(), "openmetrics", &open);
    assert!(open.contains(&"offramp_client_requests counter 1 ".to_owned()), "{open:#?}");
    assert!(open.contains(&"offramp_build info 1 ".to_owned()), "{open:#?}");
    assert!(open.contains(&"offramp_request_duration_seconds histogram 24 seconds".to_owned()), "{open:#?}");
    let mut created = Vec::new();
    exposition.render_with_created(&mut created);
    let created = parse(place.path(), "openmetrics", &created);
    assert!(created.contains(&"offramp_client_requests counter 2 ".to_owned()), "{created:#?}");
    assert_eq!(created.len(), open.len());
}
