//! What a line costs to parse: `parse_cost FORMAT FILE`, where FORMAT is a name, an nginx format or a regular
//! expression. The file is held in memory; CPU time is taken, and the least of five rounds counts.

use std::time::Duration;

use offramp_analytics::format::InputFormat;
use rustix::time::{ClockId, clock_gettime};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [format, file] = arguments.as_slice() else {
        eprintln!("parse_cost FORMAT FILE");
        return;
    };
    let mut parser = format.parse::<InputFormat>().expect("a format").parser(0);
    let log = std::fs::read(file).expect("a file that can be read");
    let (mut least, mut lines, mut bytes) = (Duration::MAX, 0u64, 0u64);
    for _ in 0..5 {
        (lines, bytes) = (0, 0);
        let begun = cpu();
        for line in log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let entry = parser.parse(line).expect("a line of the format").expect("a request");
            lines += 1;
            bytes += entry.response.bytes;
        }
        least = least.min(cpu().saturating_sub(begun));
    }
    println!("{lines} lines, {bytes} bytes sent: {:.0} ns a line", least.as_nanos() as f64 / lines as f64);
}

fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
