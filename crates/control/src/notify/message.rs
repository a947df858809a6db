//! The forms of a notification. Pure.
//!
//! Names come from clients, servers and authorities: each form escapes them, so that none becomes markup, a mention of
//! everybody, or another field.

use std::borrow::Cow;

use offramp_config::model::{BodyTemplate, NotifyField, NotifyFormat, NotifyKind};
use offramp_observe::visible;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::tracker::{AlertKey, LineState, Notification, NotificationLine};

/// The longest reason of a line, in characters.
const REASON: usize = 300;
/// The longest title, in characters: a phone shows less.
const TITLE: usize = 200;
const JSON: &str = "application/json";

/// The circumstances of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageOrigin<'a> {
    /// The name of the machine.
    pub(crate) host: &'a str,
    /// The time, as in RFC 3339.
    pub(crate) at: &'a str,
}

/// A request to a URL, but for its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotifyRequest {
    pub(crate) content_type: Cow<'static, str>,
    /// Further fields; their values are visible ASCII.
    pub(crate) fields: Vec<(Cow<'static, str>, String)>,
    pub(crate) body: String,
}

/// The request in one of the known forms.
pub(crate) fn request(
    notification: &Notification<NotifyKind>,
    format: NotifyFormat,
    origin: MessageOrigin<'_>,
) -> NotifyRequest {
    let (title, text) = (title(notification, origin.host), text(notification));
    let json =
        |body: Value| NotifyRequest { content_type: JSON.into(), fields: Vec::new(), body: body.to_string() };
    match format {
        NotifyFormat::Json => json(document(notification, origin)),
        NotifyFormat::Ntfy => {
            let is_over = notification.lines.iter().all(|line| line.state == LineState::Ends);
            let (priority, tags) = if is_over { ("3", "white_check_mark") } else { ("4", "warning") };
            NotifyRequest {
                content_type: "text/plain; charset=utf-8".into(),
                fields: vec![
                    ("title".into(), header_text(&title)),
                    ("priority".into(), priority.to_owned()),
                    ("tags".into(), tags.to_owned()),
                ],
                body: text,
            }
        }
        NotifyFormat::Slack => json(json!({ "text": format!("*{}*\n{}", chat(&title), chat(&text)) })),
        NotifyFormat::Matrix => json(json!({
            "msgtype": "m.text",
            "body": format!("{title}\n{text}"),
            "format": "org.matrix.custom.html",
            "formatted_body": format!("<b>{}</b><br>{}", html(&title), html(&text).replace('\n', "<br>")),
            // Nobody is mentioned, whatever the text says.
            "m.mentions": {},
        })),
    }
}

/// The request with a body of the operator's own.
pub(crate) fn templated(
    notification: &Notification<NotifyKind>,
    template: &BodyTemplate,
    origin: MessageOrigin<'_>,
) -> NotifyRequest {
    let first = notification.lines.first();
    let body = template.fill(|field| match field {
        NotifyField::Title => title(notification, origin.host),
        NotifyField::Text => text(notification),
        NotifyField::Host => origin.host.to_owned(),
        NotifyField::Time => origin.at.to_owned(),
        NotifyField::Kind => first.map_or("", kind).to_owned(),
        NotifyField::About => first.map_or("", |line| &*line.key.about).to_owned(),
        NotifyField::State => first.map_or("", |line| word(line.state)).to_owned(),
        NotifyField::Count => count(notification).to_string(),
    });
    NotifyRequest { content_type: JSON.into(), fields: Vec::new(), body }
}

/// Every detail: the body of `json`, and the standard input of programs.
pub(crate) fn document(notification: &Notification<NotifyKind>, origin: MessageOrigin<'_>) -> Value {
    let events = notification.lines.iter().map(|line| {
        json!({
            "kind": kind(line), "about": line.key.about, "state": word(line.state),
            "times": line.times, "says": line.says,
        })
    });
    json!({
        "source": "offramp", "host": origin.host, "at": origin.at, "title": title(notification, origin.host),
        "text": text(notification), "events": events.collect::<Vec<_>>(), "more": notification.more,
    })
}

/// The subject of a message: one line without control characters.
pub(crate) fn title(notification: &Notification<NotifyKind>, host: &str) -> String {
    let title = match (&notification.lines[..], notification.more) {
        ([line], 0) => format!("{host}: {}", heading(line)),
        _ => format!("{host}: {} alerts", count(notification)),
    };
    cut(&visible(&title), TITLE)
}

/// A line per alert.
pub(crate) fn text(notification: &Notification<NotifyKind>) -> String {
    let lines = notification.lines.iter().map(|line| {
        let times = if line.times > 1 { format!(" ({} times)", line.times) } else { String::new() };
        let says = cut(&visible(&line.says), REASON);
        let gap = if says.is_empty() { "" } else { ": " };
        format!("{}{times}{gap}{says}", cut(&visible(&heading(line)), TITLE))
    });
    let more = (notification.more > 0).then(|| format!("and {} more", notification.more));
    lines.chain(more).collect::<Vec<_>>().join("\n")
}

fn count(notification: &Notification<NotifyKind>) -> u64 {
    notification.lines.len() as u64 + notification.more
}

fn kind(line: &NotificationLine<NotifyKind>) -> &'static str {
    if line.state == LineState::Test { "test" } else { line.key.kind.word() }
}

/// A message that says that messages arrive.
pub(crate) fn trial(receiver: &str) -> Notification<NotifyKind> {
    let key = AlertKey { kind: NotifyKind::Change, about: receiver.into() };
    let says = "an operator has asked for this message; nothing is wrong".to_owned();
    let line = NotificationLine { key, state: LineState::Test, times: 1, says };
    Notification { lines: vec![line], more: 0 }
}

fn word(state: LineState) -> &'static str {
    match state {
        LineState::Begins => "begins",
        LineState::Ends => "ends",
        LineState::Happened => "happened",
        LineState::Test => "test",
    }
}

/// The subject and its state, in words.
fn heading(line: &NotificationLine<NotifyKind>) -> String {
    let about = &line.key.about;
    if line.state == LineState::Test {
        return format!("test of notifications to {about}");
    }
    let is_over = line.state == LineState::Ends;
    let either = |over: &str, active: &str| format!("{about} {}", if is_over { over } else { active });
    match line.key.kind {
        NotifyKind::Server if line.state == LineState::Happened => format!("server {about} was down"),
        NotifyKind::Server => format!("server {}", either("is back up", "is down")),
        NotifyKind::Certificate => {
            format!("certificate {}", either("needs no attention any more", "needs attention"))
        }
        NotifyKind::Errors => {
            format!("errors of {}", either("are below the bound again", "are above the bound"))
        }
        NotifyKind::Limit => format!("limit {}", either("refuses no longer", "refuses clients")),
        NotifyKind::LogStore => format!("log store {}", either("works again", "has a problem")),
        NotifyKind::TakenBack => format!("unconfirmed change {about}"),
        NotifyKind::Late => format!("worker {}", either("is in time again", "is late")),
        NotifyKind::Panic => format!("panic in {about}"),
        NotifyKind::Change => format!("change {about}"),
    }
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Text for Slack and for those that take its form. With `<` escaped, Slack has no links and no mentions such as
/// `<!channel>`. Mattermost and Rocket.Chat read Markdown, `@channel` and URLs in text as well: a space without a width
/// stands within each.
fn chat(text: &str) -> String {
    let mut shown = escaped(text);
    for (mark, broken) in [
        ("@", "@\u{200b}"),
        ("](", "]\u{200b}("),
        ("://", ":\u{200b}//"),
        ("www.", "www\u{200b}."),
        ("WWW.", "WWW\u{200b}."),
        ("mailto:", "mailto\u{200b}:"),
    ] {
        shown = shown.replace(mark, broken);
    }
    shown
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn html(text: &str) -> String {
    escaped(text).replace('"', "&quot;").replace('\'', "&#39;")
}

/// A value of a header field: ASCII as it is, else encoded words (RFC 2047), which ntfy decodes.
pub(crate) fn header_text(text: &str) -> String {
    use base64::Engine as _;
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && !text.contains("=?") {
        return text.trim().to_owned();
    }
    // An encoded word has at most 75 characters (RFC 2047 section 2), and no part of a character.
    let (mut words, mut part) = (Vec::new(), String::new());
    for c in text.chars() {
        if part.len() + c.len_utf8() > 45 {
            words.push(std::mem::take(&mut part));
        }
        part.push(c);
    }
    words.push(part);
    let engine = base64::engine::general_purpose::STANDARD;
    let encoded = words.iter().map(|word| format!("=?UTF-8?B?{}?=", engine.encode(word)));
    encoded.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: MessageOrigin<'_> = MessageOrigin { host: "web1", at: "2026-11-28T08:00:00Z" };
    /// Everything that some form gives a meaning.
    const HOSTILE: &str = "<script>\"'\\</b>&amp; <!channel> @room é\r\nX: y\u{1b}[31m {title}";

    fn line(
        kind: NotifyKind,
        about: &str,
        state: LineState,
        times: u64,
        says: &str,
    ) -> NotificationLine<NotifyKind> {
        NotificationLine { key: AlertKey { kind, about: about.into() }, state, times, says: says.to_owned() }
    }

    fn one(about: &str, says: &str) -> Notification<NotifyKind> {
        Notification { lines: vec![line(NotifyKind::Server, about, LineState::Begins, 1, says)], more: 0 }
    }

    #[test]
    fn words_of_each_kind_and_state() {
        for kind in NotifyKind::ALL {
            for state in [LineState::Begins, LineState::Ends, LineState::Happened] {
                let text = heading(&line(*kind, "NAME", state, 1, ""));
                assert!(text.contains("NAME") && !text.contains('\n'), "{text}");
            }
        }
        let several = Notification {
            lines: vec![
                line(NotifyKind::Server, "app/a:1", LineState::Ends, 3, "2 checks passed"),
                line(NotifyKind::Panic, "worker 1", LineState::Happened, 1, ""),
            ],
            more: 7,
        };
        assert_eq!(title(&several, "web1"), "web1: 9 alerts");
        assert_eq!(
            text(&several),
            "server app/a:1 is back up (3 times): 2 checks passed\npanic in worker 1\nand 7 more"
        );
        assert_eq!(title(&one("app/a:1", "refused"), "web1"), "web1: server app/a:1 is down");
    }

    #[test]
    fn no_name_becomes_markup_in_any_form() {
        let notification = one(HOSTILE, HOSTILE);
        let parsed = |body: &str| serde_json::from_str::<Value>(body).unwrap();
        let json = parsed(&request(&notification, NotifyFormat::Json, ORIGIN).body);
        assert_eq!(json["events"][0]["about"], HOSTILE);
        let ntfy = request(&notification, NotifyFormat::Ntfy, ORIGIN);
        for (name, value) in &ntfy.fields {
            assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{name}: {value}");
        }
        assert!(ntfy.body.lines().count() == 1 && !ntfy.body.contains('\u{1b}'), "{}", ntfy.body);
        let slack = parsed(&request(&notification, NotifyFormat::Slack, ORIGIN).body);
        let slack = slack["text"].as_str().unwrap();
        assert!(!slack.contains(['<', '>']) && slack.contains("&lt;!channel&gt;"), "{slack}");
        let says = "@channel @here [a](http://e.test/i) ![a](b) www.e.test mailto:a@e.test https://e.test";
        let chat = parsed(&request(&one("a@all", says), NotifyFormat::Slack, ORIGIN).body);
        let chat = chat["text"].as_str().unwrap();
        for mark in ["@c", "@h", "@a", "@e", "](", "://", "www.", "mailto:"] {
            assert!(!chat.contains(mark), "{mark}: {chat}");
        }
        assert_eq!(
            chat.replace('\u{200b}', ""),
            format!("*web1: server a@all is down*\nserver a@all is down: {says}")
        );
        let matrix = parsed(&request(&notification, NotifyFormat::Matrix, ORIGIN).body);
        let html = matrix["formatted_body"].as_str().unwrap();
        let bare = html.replace("<b>", "").replacen("</b>", "", 1).replace("<br>", "");
        assert!(!bare.contains(['<', '>', '"', '\'']), "{html}");
        assert_eq!(matrix["m.mentions"], json!({}));
        let template: BodyTemplate =
            "{\"a\": [\"{title}\", \"{text}\", \"{about}\"], \"n\": {count}}".parse().unwrap();
        let own = parsed(&templated(&notification, &template, ORIGIN).body);
        assert_eq!((&own["a"][2], &own["n"]), (&json!(HOSTILE), &json!(1)));
    }

    #[test]
    fn titles_are_header_values_of_bounded_words() {
        assert_eq!(header_text("web1: server a is down"), "web1: server a is down");
        let encoded = header_text(&"é".repeat(150));
        for word in encoded.split(' ') {
            assert!(word.len() <= 75 && word.starts_with("=?UTF-8?B?") && word.ends_with("?="), "{word}");
        }
        assert!(
            header_text("=?UTF-8?Q?a?=").starts_with("=?UTF-8?B?"),
            "text is never taken for an encoded word"
        );
    }

    #[test]
    fn long_texts_are_cut() {
        let long = "é".repeat(5000);
        let notification = one(&long, &long);
        assert!(title(&notification, "web1").chars().count() <= TITLE + 1);
        assert!(text(&notification).chars().count() <= TITLE + REASON + 10);
    }
}
