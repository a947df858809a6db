//! Recognition of bots by their `User-Agent`.
//!
//! Bots that pretend to be browsers pass; finding them would need behaviour, not names.

/// Words that programs use of themselves: anywhere in the text, ignoring case.
const WORDS: [&str; 46] = [
    "crawl",
    "spider",
    "slurp",
    "scrape",
    "scan",
    "monitor",
    "uptime",
    "pingdom",
    "validator",
    "archiver",
    "archive.org",
    "fetcher",
    "preview",
    "facebookexternalhit",
    "feed",
    "rss",
    "reader/",
    "httpclient",
    "http-client",
    "http_request",
    "libwww",
    "curl/",
    "wget",
    "python",
    "aiohttp",
    "httpx",
    "java/",
    "okhttp",
    "go-http",
    "ruby",
    "perl",
    "php/",
    "guzzle",
    "axios",
    "node-fetch",
    "undici",
    "postman",
    "insomnia",
    "headless",
    "phantomjs",
    "selenium",
    "lighthouse",
    "nmap",
    "nikto",
    "sqlmap",
    "masscan",
];

/// Products that are recognised at the start of the text.
const BEGINNINGS: [&str; 6] = ["ab/", "apachebench", "hey/", "wrk/", "w3c_", "lynx"];

/// Returns `true` if an agent names itself as a program rather than a person's browser.
#[must_use]
pub fn is_robot(agent: &[u8]) -> bool {
    let text = String::from_utf8_lossy(agent).to_ascii_lowercase();
    BEGINNINGS.iter().any(|word| text.starts_with(word))
        || WORDS.iter().any(|word| text.contains(word))
        || has_bot(&text)
}

/// `bot` ends a word (`Googlebot/2.1`, `bingbot;`, `AhrefsBot`) or starts one (`bot-7`); it is part of others
/// (`robotics.example`, and the phones called Cubot).
fn has_bot(text: &str) -> bool {
    text.match_indices("bot").any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + 3..].chars().next();
        let ends = !after.is_some_and(|c| c.is_ascii_alphabetic()) || text[at + 3..].starts_with("s ");
        let begins = !before.is_some_and(char::is_alphanumeric);
        (ends || begins && !after.is_some_and(|c| c.is_ascii_alphabetic())) && !text[..at].ends_with("cu")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bots() {
        for agent in [
            "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
            "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; +x) Chrome/116.0 Safari/537.36",
            "Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)",
            "Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)",
            "GPTBot",
            "curl/8.5.0",
            "Go-http-client/2.0",
            "python-requests/2.31.0",
            "Wget/1.21.3",
            "facebookexternalhit/1.1",
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/120.0 Safari/537.36",
        ] {
            assert!(is_robot(agent.as_bytes()), "{agent}");
        }
    }

    #[test]
    fn people() {
        for agent in [
            "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
            "Mozilla/5.0 (Linux; Android 9; CUBOT NOVA) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/99.0 Mobile Safari/537.36",
            "Opera/9.80 (Windows NT 6.1) Presto/2.12.388 Version/12.18",
            "",
            "\u{fffd}\0",
        ] {
            assert!(!is_robot(agent.as_bytes()), "{agent}");
        }
        assert!(!is_robot(b"\xff\xfe"));
    }
}
