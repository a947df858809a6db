use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::{any, proptest};
use proptest::{collection, prop_assert_eq};

use super::{
    EntrySink, FileRecord, Input, LineBuffer, LogImport, MAX_LINE, Mark, NextLine, Reimport, Rejects,
    StopSignal,
};
use crate::Error;
use crate::entry::LogEntry;
use crate::format::InputFormat;

/// A store in memory: what is not committed is lost when it is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) committed: Vec<(i64, Vec<u8>, u64)>,
    pub(crate) pending: Vec<(i64, Vec<u8>, u64)>,
    pub(crate) files: BTreeMap<(String, i64), FileRecord>,
    pub(crate) commits: usize,
    /// Fails at this commit, as a process that is killed before it.
    pub(crate) fails_at: Option<usize>,
}

impl EntrySink for Memory {
    fn add(&mut self, entry: &LogEntry<'_>) -> Result<(), Error> {
        self.pending.push((entry.time_us, entry.request.path.to_vec(), entry.response.bytes));
        Ok(())
    }

    fn commit(&mut self, mark: Option<Mark<'_>>) -> Result<(), Error> {
        self.commits += 1;
        if self.fails_at == Some(self.commits) {
            self.pending.clear();
            return Err(Error::Store("killed".to_owned()));
        }
        self.committed.append(&mut self.pending);
        if let Some(mark) = mark {
            self.files.insert((mark.source.to_owned(), mark.file.number), mark.file.clone());
        }
        Ok(())
    }

    fn files(&mut self, source: &str) -> Result<Vec<FileRecord>, Error> {
        let of_source = self.files.iter().filter(|((name, _), _)| name == source);
        Ok(of_source.map(|(_, file)| file.clone()).collect())
    }

    fn files_with_head(&mut self, head: u64) -> Result<Vec<(String, FileRecord)>, Error> {
        let found = self.files.iter().filter(|(_, file)| file.head == head);
        Ok(found.map(|((source, _), file)| (source.clone(), file.clone())).collect())
    }
}

pub(crate) fn ingest(sink: Memory) -> LogImport<Memory> {
    let parser = InputFormat::named("combined").unwrap().parser(0);
    LogImport::new(parser, sink, Rejects::new(), StopSignal::new().unwrap())
}

/// A line of the combined format whose path is its number.
pub(crate) fn line(number: u64) -> String {
    let (minute, second) = (number / 60 % 60, number % 60);
    format!(
        "192.0.2.{} - - [22/Nov/2026:01:{minute:02}:{second:02} +0000] \"GET /{number} HTTP/1.1\" 200 {number} \"-\" \"agent\"\n",
        number % 256
    )
}

fn read(content: &[u8]) -> LogImport<Memory> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, content).unwrap();
    let mut ingest = ingest(Memory::default());
    ingest.read(&mut Input::open(&path).unwrap()).unwrap();
    ingest
}

#[test]
fn counts_lines_of_every_kind() {
    let mut content = Vec::new();
    content.extend_from_slice(line(1).as_bytes());
    content.extend_from_slice(line(2).replace('\n', "\r\n").as_bytes());
    content.extend_from_slice(b"\n\r\n");
    content.extend_from_slice(b"\x00\xff\xfe binary\n");
    content.extend_from_slice(&b"x".repeat(MAX_LINE + 1));
    content.push(b'\n');
    content.extend_from_slice(&b"y".repeat(3 * MAX_LINE));
    content.push(b'\n');
    content.extend_from_slice(b"\0\0\0\0");
    content.extend_from_slice(line(3).as_bytes());
    content.extend_from_slice(line(4).trim_end().as_bytes());
    let ingest = read(&content);
    let report = ingest.report();
    assert_eq!((report.lines, report.accepted, report.rejected, report.skipped), (9, 4, 3, 2));
    assert_eq!(report.bytes, content.len() as u64);
    let shown: Vec<_> = ingest.rejects().shown().iter().map(|rejection| rejection.line).collect();
    assert_eq!(shown, [5, 6, 7]);
    let paths: Vec<_> = ingest.sink.committed.iter().map(|(_, path, _)| path.clone()).collect();
    assert_eq!(paths, [b"/1", b"/2", b"/3", b"/4"]);
}

#[test]
fn a_line_of_just_the_greatest_length_is_parsed() {
    let mut long = line(1).trim_end().to_owned();
    let agent = "a".repeat(MAX_LINE - long.len());
    long = long.replace("agent", &format!("agent{agent}"));
    assert_eq!(long.len(), MAX_LINE);
    assert_eq!(read(format!("{long}\n").as_bytes()).report().accepted, 1);
    assert_eq!(read(long.as_bytes()).report().accepted, 1);
    assert_eq!(read(format!("x{long}\n").as_bytes()).report().rejected, 1);
}

#[test]
fn reads_gzip_of_several_members() {
    let member = |numbers: std::ops::Range<u64>| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        numbers.for_each(|number| encoder.write_all(line(number).as_bytes()).unwrap());
        encoder.finish().unwrap()
    };
    let both = [member(0..20_000), member(20_000..25_000)].concat();
    let ingest = read(&both);
    assert_eq!(ingest.report().accepted, 25_000);
    assert_eq!(ingest.sink.commits, 3);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.gz");
    std::fs::write(&path, &both[..both.len() - 30]).unwrap();
    let mut cut = super::tests::ingest(Memory::default());
    let error = cut.read(&mut Input::open(&path).unwrap()).unwrap_err();
    let told = error.to_string();
    for part in ["cut.gz", "breaks off at the end", &format!("at byte {}", both.len() - 30), "read it again"]
    {
        assert!(told.contains(part), "{told}");
    }
    let mut damaged = both.clone();
    damaged[both.len() / 2..both.len() / 2 + 64].fill(0);
    std::fs::write(&path, &damaged).unwrap();
    let error = super::tests::ingest(Memory::default()).read(&mut Input::open(&path).unwrap()).unwrap_err();
    assert!(error.to_string().contains("cut.gz") && error.to_string().contains("gunzip -t"), "{error}");
    assert!(cut.sink.committed.len() >= 20_000, "what was read before is kept");
}

/// The numbers of the lines that are stored, and what was read of the file before.
fn read_file(store: Memory, path: &Path, again: Reimport) -> (Memory, u64, Option<u64>) {
    let mut ingest = ingest(store);
    let outcome = ingest.read_file(path, again).unwrap();
    (ingest.finish().0, outcome.report.accepted, outcome.before.map(|before| before.bytes))
}

#[test]
fn a_file_is_read_once_under_whatever_name() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let text: String = (0..25_000).map(line).collect();
    std::fs::write(&log, &text).unwrap();
    let (store, accepted, before) = read_file(Memory::default(), &log, Reimport::No);
    assert_eq!((accepted, before), (25_000, None));
    // The same again, renamed, copied, compressed, and cut.
    let all = Some(text.len() as u64);
    let other = folder.path().join("other");
    std::fs::rename(&log, &other).unwrap();
    std::fs::copy(&other, &log).unwrap();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    std::fs::write(folder.path().join("other.gz"), encoder.finish().unwrap()).unwrap();
    std::fs::write(folder.path().join("cut"), &text[..text.len() / 2]).unwrap();
    let mut store = store;
    for name in ["access.log", "other", "other.gz", "cut"] {
        let (now, accepted, before) = read_file(store, &folder.path().join(name), Reimport::No);
        assert_eq!((accepted, before), (0, all), "{name}");
        store = now;
    }
    // What was added is read, here in the copy.
    let more: String = (25_000..25_100).map(line).collect();
    std::fs::write(&log, text.clone() + &more).unwrap();
    let (store, accepted, before) = read_file(store, &log, Reimport::No);
    assert_eq!((accepted, before), (100, all));
    // Another file that begins alike is another one.
    let different: String = (0..20).chain(100..90_000).map(line).collect();
    std::fs::write(&other, different).unwrap();
    assert_eq!(read_file(store.clone(), &other, Reimport::No).1, 89_920);
    let (_, accepted, before) = read_file(store, &log, Reimport::Yes);
    assert_eq!((accepted, before), (25_100, None));
}

#[test]
fn a_kill_in_a_file_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    std::fs::write(&log, (0..35_000).map(line).collect::<String>()).unwrap();
    for kill in 1..5 {
        let mut killed = ingest(Memory { fails_at: Some(kill), ..Memory::default() });
        assert_eq!(killed.read_file(&log, Reimport::No).is_err(), kill < 5);
        let store = Memory { fails_at: None, pending: Vec::new(), ..killed.finish().0 };
        let (store, ..) = read_file(store, &log, Reimport::No);
        let numbers: Vec<_> = store.committed.iter().map(|(_, _, number)| *number).collect();
        assert_eq!(numbers, (0..35_000).collect::<Vec<_>>(), "killed at commit {kill}");
    }
}

#[test]
fn a_file_of_another_format_is_not_remembered_and_half_a_line_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    std::fs::write(&log, "{\"something\": \"that is no line of the combined format at all\"}\n".repeat(30))
        .unwrap();
    let mut first = ingest(Memory::default());
    assert!(first.read_file(&log, Reimport::No).unwrap().is_all_rejected());
    assert_eq!(first.sink.files.len(), 0);
    assert_eq!(first.rejects().samples().len(), 10);
    let (now, later) = (line(0) + &line(1)[..50], line(1)[50..].to_owned());
    std::fs::write(&log, &now).unwrap();
    let (store, accepted, _) = read_file(Memory::default(), &log, Reimport::No);
    assert_eq!(accepted, 1);
    std::fs::write(&log, now + &later).unwrap();
    let (_, accepted, before) = read_file(store, &log, Reimport::No);
    assert_eq!((accepted, before), (1, Some(line(0).len() as u64)));
}

#[test]
fn keeps_rejects_as_they_came() {
    let folder = tempfile::tempdir().unwrap();
    let (log, rejects) = (folder.path().join("log"), folder.path().join("rejects"));
    let bad: Vec<_> = (0..25).map(|number| format!("bad line {number} \u{e9}\n")).collect();
    std::fs::write(&log, bad.concat() + &line(1)).unwrap();
    let parser = InputFormat::named("combined").unwrap().parser(0);
    let rejected = Rejects::to_file(&rejects).unwrap();
    let mut ingest = LogImport::new(parser, Memory::default(), rejected, StopSignal::new().unwrap());
    ingest.read(&mut Input::open(&log).unwrap()).unwrap();
    let (_, report, rejected) = ingest.finish();
    assert_eq!((report.rejected, report.accepted, rejected.shown().len()), (25, 1, 10));
    assert_eq!(std::fs::read_to_string(&rejects).unwrap(), bad.concat());
    assert!(Rejects::to_file(Path::new("/nonexistent/rejects")).is_err());
}

#[test]
fn a_pipe_that_pauses_is_committed_and_can_be_stopped() {
    let (reader, mut writer) = io::pipe().unwrap();
    let stop = StopSignal::new().unwrap();
    let requested = stop.clone();
    let (tell, told) = std::sync::mpsc::channel();
    /// Tells of its commits.
    struct Telling(Memory, std::sync::mpsc::Sender<usize>);
    impl EntrySink for Telling {
        fn add(&mut self, entry: &LogEntry<'_>) -> Result<(), Error> {
            self.0.add(entry)
        }
        fn commit(&mut self, mark: Option<Mark<'_>>) -> Result<(), Error> {
            self.0.commit(mark)?;
            self.1.send(self.0.committed.len()).map_err(|error| Error::Store(error.to_string()))
        }
        fn files(&mut self, source: &str) -> Result<Vec<FileRecord>, Error> {
            self.0.files(source)
        }
        fn files_with_head(&mut self, head: u64) -> Result<Vec<(String, FileRecord)>, Error> {
            self.0.files_with_head(head)
        }
    }
    writer.write_all((line(1) + "192.0.2.1 - - [half a li").as_bytes()).unwrap();
    let reading = std::thread::spawn(move || {
        let parser = InputFormat::named("combined").unwrap().parser(0);
        let mut ingest = LogImport::new(parser, Telling(Memory::default(), tell), Rejects::new(), stop);
        let descriptor: std::os::fd::OwnedFd = reader.into();
        let mut input = Input::new("pipe".to_owned(), File::from(descriptor)).unwrap();
        ingest.read(&mut input).map(|()| ingest.report())
    });
    let patience = std::time::Duration::from_secs(60);
    assert_eq!(told.recv_timeout(patience), Ok(1), "the pause alone makes it commit");
    requested.request();
    let report = reading.join().unwrap().unwrap();
    assert_eq!((report.accepted, report.rejected), (1, 0));
    drop(writer);
}

#[test]
fn an_independent_count_in_python_is_the_same() {
    const COUNT: &str = r#"
import re, sys
pattern = re.compile(rb'^(\S+) \S+ (.*?) \[(\d\d/[A-Z][a-z]{2}/\d{4}:[\d:]{8} [+-]\d{4})\] "([A-Z]+) ([^ "?]*)[^"]*" (\d{3}) (\d+) "[^"]*" "[^"]*"$')
found = [pattern.match(line) for line in open(sys.argv[1], 'rb').read().split(b'\n') if line]
good = [match for match in found if match]
print(len(good), len(found) - len(good), sum(int(match[7]) for match in good), len({match[5] for match in good}))
"#;
    let mut content = Vec::new();
    for number in 0..5_000u64 {
        let line = line(number * 7919 % 3_001);
        let line = if number % 97 == 0 { line.replace("\"GET", "GET") } else { line };
        content.extend_from_slice(line.as_bytes());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, &content).unwrap();
    let output = Command::new("python3").args(["-c", COUNT]).arg(&path).output();
    // Without Python there is nothing to compare with; every machine that tests Offramp has it.
    let output = output.expect("python3 is needed for the independent count");
    let mut ingest = ingest(Memory::default());
    ingest.read(&mut Input::open(&path).unwrap()).unwrap();
    let report = ingest.report();
    let entries = &ingest.sink.committed;
    let paths: std::collections::HashSet<_> = entries.iter().map(|(_, path, _)| path).collect();
    let bytes: u64 = entries.iter().map(|(_, _, bytes)| bytes).sum();
    let ours = format!("{} {} {bytes} {}", report.accepted, report.rejected, paths.len());
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), ours);
    assert!(report.rejected > 0);
}

/// Gives its bytes in parts of the given lengths.
struct Parts<'a> {
    rest: &'a [u8],
    lengths: std::iter::Cycle<std::slice::Iter<'a, usize>>,
}

impl Read for Parts<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length =
            self.lengths.next().map_or(1, |length| 1 + length % 97).min(self.rest.len()).min(buffer.len());
        let (now, later) = self.rest.split_at(length);
        buffer[..length].copy_from_slice(now);
        self.rest = later;
        Ok(length)
    }
}

proptest! {
    #[test]
    fn blocks_may_end_anywhere(
        content in collection::vec(proptest::prop_oneof![1 => proptest::strategy::Just(b'\n'), 5 => any::<u8>()], 0..2_000),
        lengths in collection::vec(any::<usize>(), 1..20),
    ) {
        let mut parts = Parts { rest: &content, lengths: lengths.iter().cycle() };
        let (mut lines, mut found, mut passed) = (LineBuffer::new(), Vec::new(), 0);
        loop {
            match lines.next() {
                NextLine::Line(line) => {
                    found.push(lines[line.clone()].to_vec());
                    passed += line.len() as u64 + 1;
                    prop_assert_eq!(lines.passed(), passed);
                }
                NextLine::TooLong(_) => unreachable!("no line is so long"),
                NextLine::More if lines.fill(&mut parts).unwrap() == 0 => break,
                NextLine::More => {}
            }
        }
        found.extend(lines.rest().map(<[u8]>::to_vec));
        prop_assert_eq!(lines.passed(), content.len() as u64);
        let mut expected: Vec<_> = content.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        if expected.last().is_some_and(Vec::is_empty) {
            expected.pop();
        }
        prop_assert_eq!(found, expected);
    }
}
