//! Measures the store: `fill LINES URL [DAYS [small]]` writes so many made-up requests of a busy small server and says what it took;
//! with `small` in the memory of a proxy's store rather than an import's;
//! `fill ask URL` times the questions of a dashboard; `fill log LINES` prints a `vhost` log of the same requests.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use offramp_analytics::entry::{RequestPart, ResponsePart};
use offramp_analytics::question::DataSource;
use offramp_analytics::{LogEntry, Options, QuerySettings, Questions, RequestFilter, Top, Writer};

/// Made-up requests with the repetition that logs have: few hosts, pages by popularity, clients that come back.
struct Requests {
    state: u64,
    time_us: i64,
    step_us: u64,
    paths: Vec<String>,
    agents: Vec<String>,
    referers: Vec<String>,
    query: String,
}

impl Requests {
    fn new(count: u64, days: u64) -> Self {
        let paths = (0..20_000)
            .map(|n| format!("/section-{}/article-{n}/some-title-{}.html", n % 40, n * 7))
            .collect();
        let agents = (0..1500)
            .map(|n| match n % 5 {
                0 => format!(
                    "Mozilla/5.0 (compatible; Somebot/{}.{}; +http://bots.example/{n})",
                    n % 7,
                    n % 10
                ),
                _ => format!(
                    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) \
                     Chrome/{}.0.{n}.0 Safari/537.36",
                    90 + n % 40
                ),
            })
            .collect();
        let referers = (0..4000).map(|n| format!("https://site-{}.example/some/page/{n}", n % 300)).collect();
        Self {
            state: 0x9e37_79b9_7f4a_7c15,
            time_us: 1_772_323_200_000_000,
            step_us: days * 86_400_000_000 / count.max(1),
            paths,
            agents,
            referers,
            query: String::new(),
        }
    }

    /// xorshift64*: the same requests each time.
    fn random(&mut self, below: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
    }

    /// Some come often, most rarely: about as Zipf has it.
    fn popular(&mut self, of: usize) -> usize {
        let exponent = self.random(1 << 20) as f64 / f64::from(1 << 20);
        ((of as f64).powf(exponent) as usize).min(of) - 1
    }

    fn next(&mut self) -> LogEntry<'_> {
        self.time_us += i64::try_from(self.random(2 * self.step_us + 1)).unwrap_or(0);
        let visitor = self.popular(40_000) as u32;
        let path = self.popular(self.paths.len());
        let host = ["www.example.org", "git.example.org", "blog.example.org", "files.example.org"][path % 4];
        let agent = (visitor as usize * 31 + usize::from(self.random(10) == 0)) % self.agents.len();
        let referer = (self.random(10) < 4).then(|| self.popular(self.referers.len()));
        let has_query = self.random(12) == 0;
        self.query.clear();
        if has_query {
            let (page, word) = (self.random(50), self.random(400));
            self.query = format!("page={page}&q=word{word}");
        }
        let status = [200, 200, 200, 200, 200, 304, 404, 301][self.random(8) as usize];
        let bytes = if status == 200 { 500 + self.random(60_000) } else { 0 };
        LogEntry {
            time_us: self.time_us / 1_000_000 * 1_000_000,
            host: Some(host.as_bytes()),
            client: Some(IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + visitor * 97))),
            request: RequestPart {
                method: Some(b"GET"),
                path: self.paths[path].as_bytes(),
                query: has_query.then_some(self.query.as_bytes()),
                protocol: Some(b"HTTP/1.1"),
            },
            response: ResponsePart { status, bytes, received: None, duration_us: None },
            referer: referer.map(|referer| self.referers[referer].as_bytes()),
            agent: Some(self.agents[agent].as_bytes()),
            ..LogEntry::default()
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["ask", url] => ask(url),
        ["log", lines] => log(lines.parse().expect("a number")),
        [lines, url] => fill(lines.parse().expect("a number"), url, 3, false),
        [lines, url, days, rest @ ..] => {
            let days = days.parse().expect("a number");
            fill(lines.parse().expect("a number"), url, days, rest == ["small"]);
        }
        _ => eprintln!("fill LINES URL [DAYS [small]] | fill ask URL | fill log LINES"),
    }
}

fn fill(lines: u64, url: &str, days: u64, small: bool) {
    let mut requests = Requests::new(lines, days);
    let begun = Instant::now();
    for _ in 0..lines {
        std::hint::black_box(requests.next());
    }
    let making = begun.elapsed();
    let mut requests = Requests::new(lines, days);
    let options = match small {
        true => Options::default(),
        false => Options { texts_at_hand: 32_768, cache_kib: 16 << 10, ..Options::default() },
    };
    let mut writer = Writer::open(url, &options).expect("a store");
    let begun = Instant::now();
    for line in 1..=lines {
        writer.add(&requests.next()).expect("room");
        if line % 50_000 == 0 {
            writer.commit_with("fill", &line.to_le_bytes()).expect("room");
        }
    }
    writer.commit().expect("room");
    let written = begun.elapsed().saturating_sub(making);
    writer.finish(SystemTime::now()).expect("room");
    let finished = begun.elapsed().saturating_sub(making);
    println!(
        "{lines} requests: {:.2} µs each written, {:.2} µs with all roll-ups ({:.2} µs to make them up)",
        written.as_secs_f64() * 1e6 / lines as f64,
        finished.as_secs_f64() * 1e6 / lines as f64,
        making.as_secs_f64() * 1e6 / lines as f64,
    );
    drop(writer);
    let status = std::fs::read_to_string("/proc/self/status").expect("a process");
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default());
    if let Some(path) = url.strip_prefix("sqlite:") {
        let size = std::fs::metadata(path).expect("the file").len();
        println!("{size} bytes on disk, {:.1} each", size as f64 / lines as f64);
    }
}

fn ask(url: &str) {
    let mut questions = Questions::open(url, &QuerySettings::default()).expect("a store");
    for source in [DataSource::Either, DataSource::Rollups, DataSource::Requests] {
        for top in Top::ALL.into_iter().take(7) {
            let filter = RequestFilter { source, ..RequestFilter::default() };
            let begun = Instant::now();
            let rows = questions.top(top, &filter).expect("an answer").rows.len();
            println!("{source:?} {}: {rows} rows in {:?}", top.name(), begun.elapsed());
        }
        for exclude in [vec![], vec!["11.0.0.0/24".parse().expect("a network")]] {
            let filter =
                RequestFilter { source, exclude, since: Some(UNIX_EPOCH), ..RequestFilter::default() };
            let begun = Instant::now();
            let rows =
                questions.traffic(Duration::from_secs(3600), false, &filter).expect("an answer").rows.len();
            println!("{source:?} traffic by the hour: {rows} rows in {:?}", begun.elapsed());
        }
    }
}

fn log(lines: u64) {
    let mut requests = Requests::new(lines, 3);
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    for _ in 0..lines {
        let entry = requests.next();
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or(b"-")).into_owned();
        let query = entry.request.query.map(|query| format!("?{}", String::from_utf8_lossy(query)));
        let second = entry.time_us / 1_000_000 - 1_772_323_200;
        writeln!(
            output,
            "{} - - [{:02}/Mar/2026:{:02}:{:02}:{:02} +0000] \"GET {}{} HTTP/1.1\" {} {} \"{}\" \"{}\" \"{}\"",
            entry.client.expect("one"),
            1 + second / 86_400,
            second / 3600 % 24,
            second / 60 % 60,
            second % 60,
            text(Some(entry.request.path)),
            query.unwrap_or_default(),
            entry.response.status,
            entry.response.bytes,
            text(entry.referer),
            text(entry.agent),
            text(entry.host),
        )
        .expect("output");
    }
}
