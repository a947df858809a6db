//! Python's h11 as the oracle of the writer: after any edits of a head, h11 reads the same fields from the
//! written head as a model has after these edits.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use offramp_http::h1::{Guard, GuardOutcome, HeadLimits};
use offramp_http::head::{Known, KnownSet, Request};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const VERSION: &str = "0.16.0";
/// Number of heads, the same ones in each run.
const HEADS: usize = 1_000;

/// Reads heads in hexadecimal digits, one per line, requests and responses in turn, and prints the result of
/// h11: the first line, and each field, separated by a byte that no field contains.
const PROGRAM: &str = r"
import h11, sys
for at, line in enumerate(sys.stdin):
    if at % 2 == 0:
        reader = h11.Connection(h11.SERVER)
    else:
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method='GET', target='/', headers=[('host', 'a')]))
        reader.send(h11.EndOfMessage())
    reader.receive_data(bytes.fromhex(line))
    head = reader.next_event()
    if at % 2 == 0:
        first = head.method + b' ' + head.target
    else:
        first = str(head.status_code).encode()
    fields = [name + b': ' + value for name, value in head.headers]
    print(b'\n'.join([first] + fields).hex())
";

type Lines = Vec<(String, String)>;

/// An edit as made on the way through the proxy.
#[derive(Debug, Clone)]
enum Edit {
    Append(String, String),
    Set(String, String),
    Remove(String),
    Extend(String),
    AppendAll(Lines),
    SetHost(String),
    SetTarget(String),
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,3}",
        "x-[a-z_-]{1,20}",
        prop::sample::select(
            &["accept", "cookie", "via", "user-agent", "x-forwarded-for", "x-request-id", "forwarded"][..]
        )
        .prop_map(str::to_owned),
    ]
}

fn value() -> impl Strategy<Value = String> {
    "([!-~]([ -~]{0,30}[!-~])?)?"
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (name(), value()).prop_map(|(name, value)| Edit::Append(name, value)),
        (name(), value()).prop_map(|(name, value)| Edit::Set(name, value)),
        name().prop_map(Edit::Remove),
        "[!-~]{1,10}".prop_map(Edit::Extend),
        prop::collection::vec((name(), value()), 0..4).prop_map(Edit::AppendAll),
        "[a-z]{1,9}(\\.test)?".prop_map(Edit::SetHost),
        "/[a-z0-9/]{0,20}(\\?[a-z=&]{0,9})?".prop_map(Edit::SetTarget),
    ]
}

/// Applies an edit, also to the model, whose first field is `Host`.
fn apply(edit: &Edit, request: &mut Request, target: &mut String, model: &mut Lines) {
    let fields = &mut request.fields;
    match edit {
        Edit::Append(name, value) => {
            fields.append(name.as_bytes(), value.as_bytes());
            model.push((name.clone(), value.clone()));
        }
        Edit::Set(name, value) => {
            fields.set(name.as_bytes(), value.as_bytes());
            set(model, name, value);
        }
        Edit::Remove(name) => {
            match Known::of(name.as_bytes()) {
                Known::Other => fields.remove_named(name.as_bytes()),
                known => fields.remove(known),
            }
            model.retain(|(one, _)| one != name);
        }
        Edit::Extend(value) => {
            fields.extend_list(Known::Via, value.as_bytes());
            let said = model.iter().filter(|(name, value)| name == "via" && !value.is_empty());
            let parts: Vec<&str> = said.map(|(_, value)| &**value).chain([&**value]).collect();
            let all = parts.join(", ");
            set(model, "via", &all);
        }
        Edit::AppendAll(lines) => {
            fields.append_all(&lines.iter().map(|(name, value)| (name, value)).collect());
            model.extend(lines.iter().cloned());
        }
        Edit::SetHost(value) => {
            fields.set_host(value.as_bytes());
            model[0].1.clone_from(value);
        }
        Edit::SetTarget(new) => {
            request.set_target(new.as_bytes());
            target.clone_from(new);
        }
    }
}

fn set(model: &mut Lines, name: &str, value: &str) {
    let line = (name.to_owned(), value.to_owned());
    let place = model.iter().position(|(one, _)| one == name);
    model.retain(|(one, _)| one != name);
    model.insert(place.unwrap_or(model.len()), line);
}

/// A received head after edits, written as a request, and its fields as those of a response; and the expected
/// output of h11 for both.
fn written(came: &Lines, edits: &[Edit]) -> ([Vec<u8>; 2], [String; 2]) {
    let mut text = "GET /x HTTP/1.1\r\nHost: a\r\n".to_owned();
    for (at, (name, value)) in came.iter().enumerate() {
        // Some lines are written as received, and some are rewritten.
        let name = if at % 3 == 0 { name.to_uppercase() } else { name.clone() };
        let space = ["", " ", "\t "][at % 3];
        text += &format!("{name}:{space}{value}\r\n");
    }
    text += "\r\n";
    let mut guard = Guard::new(HeadLimits::default());
    let GuardOutcome::Head(head) = guard.inspect(text.as_bytes()).outcome else { panic!("{text:?}") };
    let mut request = Request::new();
    request.load(&head, &guard, text.as_bytes()).unwrap();
    let mut model = vec![("host".to_owned(), "a".to_owned())];
    model.extend(came.iter().cloned());
    let mut target = "/x".to_owned();
    for edit in edits {
        apply(edit, &mut request, &mut target, &mut model);
    }
    let (mut ask, mut answer) = (Vec::new(), b"HTTP/1.1 200 OK\r\n".to_vec());
    request.write(KnownSet::default(), &mut ask);
    request.fields.write(KnownSet::default(), &mut answer);
    ask.extend_from_slice(b"\r\n");
    answer.extend_from_slice(b"\r\n");
    let lines: String = model.iter().map(|(name, value)| format!("\n{name}: {value}")).collect();
    ([ask, answer], [format!("GET {target}{lines}"), format!("200{lines}")])
}

#[test]
fn h11_agrees_after_any_edits() {
    let heads = (prop::collection::vec((name(), value()), 0..12), prop::collection::vec(edit(), 0..8));
    let mut runner = TestRunner::deterministic();
    let (mut input, mut expected) = (String::new(), Vec::new());
    for _ in 0..HEADS {
        let (came, edits) = heads.new_tree(&mut runner).unwrap().current();
        let (wrote, read) = written(&came, &edits);
        for text in wrote {
            input += &hex(&text);
            input.push('\n');
        }
        expected.extend(read);
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("heads");
    fs::write(&place, &input).unwrap();
    let mut h11 = Command::new(python());
    h11.args(["-c", PROGRAM]).stdin(Stdio::from(fs::File::open(&place).unwrap()));
    let said = succeed(&mut h11, "h11 refuses a head");
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said.len(), 2 * HEADS);
    for ((said, expected), text) in said.iter().zip(&expected).zip(input.lines()) {
        assert_eq!(*said, hex(expected.as_bytes()), "{expected:?} was read otherwise from {text}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut all, byte| {
        // Writing to a string cannot fail.
        let _ = write!(all, "{byte:02x}");
        all
    })
}

/// The Python of a virtual environment with h11, created once.
fn python() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("h11-{VERSION}"));
    let python = place.join("bin/python");
    if !place.join("complete").exists() {
        // Removes the remains of an interrupted run.
        let _ = fs::remove_dir_all(&place);
        let mut venv = Command::new("python3");
        succeed(venv.args(["-m", "venv"]).arg(&place), "on Debian: apt-get install python3-venv");
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.arg(format!("h11=={VERSION}"));
        succeed(&mut pip, "it comes from PyPI, which must be reachable once");
        fs::write(place.join("complete"), VERSION).unwrap();
    }
    python
}

fn succeed(command: &mut Command, advice: &str) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}\n{advice}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {complaint}\n{advice}");
    String::from_utf8(output.stdout).unwrap()
}
