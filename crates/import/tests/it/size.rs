//! Large configurations: the work grows with the size of the files, and no faster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use offramp_import::{ForeignLanguage, import};

/// The CPU time of this thread, which does not grow while others have the CPU.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// Imports so many servers, and returns the CPU time.
fn servers(count: usize) -> Duration {
    let mut text = String::from("http {\n");
    for number in 0..count {
        text.push_str(&format!(
            "server {{ listen 80; server_name s{number}.example; location / {{ proxy_pass http://10.0.0.1:{}; }} }}\n",
            1024 + number % 60_000
        ));
    }
    text.push('}');
    let files = BTreeMap::from([(PathBuf::from("/n/nginx.conf"), text.into_bytes())]);
    let start = cpu();
    let imported = import(ForeignLanguage::Nginx, &[PathBuf::from("/n/nginx.conf")], &files).unwrap();
    let time = cpu() - start;
    assert_eq!(imported.toml.matches("[[route]]").count(), count);
    time
}

/// A ratio within one run, since machines differ: eight times the servers may take no more than thirty times the time.
/// Work that is quadratic takes sixty-four times as long.
#[test]
fn fifty_thousand_servers_take_time_in_proportion() {
    let best = |count: usize| (0..3).map(|_| servers(count)).min().unwrap();
    let (few, many) = (best(1_000), best(8_000));
    assert!(many < few * 30, "1,000 servers: {few:?}, 8,000: {many:?}");
    let all = servers(50_000);
    println!("50,000 servers: {all:?}");
    assert!(all < few * 50 * 4, "1,000 servers: {few:?}, 50,000: {all:?}");
}
