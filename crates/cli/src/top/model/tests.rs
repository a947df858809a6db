use serde_json::json;

use super::*;

/// Figures with two hosts, two servers, a cause, and these requests per second.
pub(in crate::top) fn figures(rate: f64) -> Value {
    json!({
        "at": "2026-11-28T10:11:12Z", "interval_s": 1.0,
        "requests": { "per_second": rate, "open": 3, "total": 900,
                      "by_class": { "2xx": rate - 2.0, "3xx": 0.0, "4xx": 1.0, "5xx": 0.5, "none": 0.5 } },
        "connections": { "open": 41, "accepted_per_second": 2.0, "accepted": 88 },
        "handshakes": { "full_per_second": 1.5, "resumed_per_second": 0.5, "failed_per_second": 0.0 },
        "bytes": { "in_per_second": 20_480.0, "out_per_second": 5_242_880.0 },
        "latency_ms": { "p50": 1.2, "p95": 8.0, "p99": 31.4 },
        "workers": [{ "worker": 0, "busy": 0.12, "late": false }, { "worker": 1, "busy": 0.5, "late": true }],
        "hosts": [
            { "name": "a.example", "requests_per_second": rate, "bytes_out_per_second": 5_242_880.0 },
            { "name": "b.example", "requests_per_second": 40.0, "bytes_out_per_second": 100.0 },
        ],
        "routes": [{ "route": "a.example/api", "listener": "web", "requests_per_second": rate, "errors_per_second": 1.0, "p95_ms": 8.0 }],
        "backends": [{ "backend": "apps", "servers": [
            { "server": "10.0.0.1:3000", "state": "up", "requests_per_second": rate, "active": 2 },
            { "server": "10.0.0.2:3000", "state": "down", "requests_per_second": 0.0, "active": 0 },
        ] }],
        "clients": [],
        "causes": [{ "cause": "connect_refused", "side": "server", "per_second": 0.5, "total": 7 }],
        "limits": [],
    })
}

pub(in crate::top) fn model() -> TopModel {
    let mut model = TopModel::new("unix:/run/offramp/admin.sock", "1s");
    model.update(TopMessage::Figures(figures(120.0)));
    model.arrange(10);
    model
}

/// Presses keys: a character each, but `\n` is Enter, `\t` is Tab, `\x1b` is Esc, `\x08` is Backspace, `v` and `^` are Down
/// and Up.
pub(in crate::top) fn press(model: &mut TopModel, keys: &str) -> Vec<TopEffect> {
    let mut effects = Vec::new();
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            '\x08' => KeyCode::Backspace,
            'v' => KeyCode::Down,
            '^' => KeyCode::Up,
            key => KeyCode::Char(key),
        };
        effects.extend(model.update(TopMessage::Key(KeyEvent::new(code, KeyModifiers::NONE))));
    }
    effects
}

/// The names of the rows that are shown.
fn shown(model: &TopModel) -> Vec<String> {
    let column = &model.table.columns()[0];
    model.rows().visible(100).map(|(row, _)| column.cell(row).into_owned()).collect()
}

fn drain(server: &str) -> TopAsk {
    TopAsk::Drain { backend: "apps".to_owned(), server: server.to_owned() }
}

#[test]
fn keys_choose_tables_and_their_order() {
    let mut model = model();
    assert_eq!(shown(&model), ["a.example", "b.example"]);
    press(&mut model, "r");
    assert_eq!(shown(&model), ["b.example", "a.example"]);
    press(&mut model, "s");
    assert_eq!(shown(&model), ["a.example", "b.example"], "by bytes");
    press(&mut model, "\t");
    assert_eq!(model.table, TopTable::Routes);
    press(&mut model, "3");
    assert_eq!((model.table, model.rows().len()), (TopTable::Servers, 2));
    press(&mut model, "7\t");
    assert_eq!(model.table, TopTable::Hosts);
    model.update(TopMessage::Key(KeyCode::BackTab.into()));
    assert_eq!(model.table, TopTable::Requests);
    press(&mut model, "1");
    assert_eq!(shown(&model), ["a.example", "b.example"], "each table keeps its order");
}

#[test]
fn the_chosen_row_stays_chosen_wherever_it_moves() {
    let mut model = model();
    press(&mut model, "v");
    assert_eq!(model.rows().selected().unwrap()["name"], "b.example");
    model.update(TopMessage::Figures(figures(10.0)));
    assert_eq!(shown(&model), ["b.example", "a.example"]);
    assert_eq!(model.rows().selected().unwrap()["name"], "b.example");
    press(&mut model, "vvvv");
    assert_eq!(model.rows().selected().unwrap()["name"], "a.example");
}

#[test]
fn a_table_that_is_longer_than_the_screen_scrolls() {
    let mut model = model();
    let rows = (0..300)
        .map(|n| json!({ "id": n.to_string(), "client": format!("{n:03}"), "bytes_to_client": 1_000 - n }));
    model.update(TopMessage::Connections(rows.collect(), true));
    press(&mut model, "5");
    let seen = |model: &TopModel| -> Vec<(String, bool)> {
        let rows = model.rows().visible(3);
        rows.map(|(row, chosen)| (row["client"].as_str().unwrap().to_owned(), chosen)).collect()
    };
    let expected = |rows: [(&str, bool); 3]| rows.map(|(name, chosen)| (name.to_owned(), chosen));
    model.arrange(3);
    press(&mut model, "vvv");
    model.arrange(3);
    assert_eq!(seen(&model), expected([("001", false), ("002", false), ("003", true)]));
    model.update(TopMessage::Key(KeyCode::End.into()));
    model.arrange(3);
    assert_eq!(seen(&model), expected([("297", false), ("298", false), ("299", true)]));
    model.update(TopMessage::Key(KeyCode::PageUp.into()));
    model.arrange(3);
    assert_eq!(seen(&model), expected([("296", true), ("297", false), ("298", false)]));
    model.update(TopMessage::Key(KeyCode::Home.into()));
    model.arrange(3);
    assert_eq!(seen(&model), expected([("000", true), ("001", false), ("002", false)]));
    assert!(model.rows().note.as_deref().unwrap().contains("first 300"));
    model.update(TopMessage::Connections(Vec::new(), false));
    model.arrange(3);
    assert!(seen(&model).is_empty() && model.rows().selected().is_none());
    assert_eq!(press(&mut model, "k\n"), [], "there is nothing to close or to show");
    assert!(model.notice.is_none() || matches!(model.mode, TopMode::Browse));
}

#[test]
fn a_filter_is_kept_or_taken_back() {
    let mut model = model();
    press(&mut model, "/B.exz\x08");
    assert_eq!((&*model.filter, shown(&model)), ("B.ex", vec!["b.example".to_owned()]));
    press(&mut model, "\n");
    assert!(matches!(model.mode, TopMode::Browse));
    model.update(TopMessage::Figures(figures(50.0)));
    assert_eq!(shown(&model), ["b.example"], "it holds for the next figures");
    press(&mut model, "/q\x1b");
    assert_eq!(model.filter, "B.ex");
    press(&mut model, "\x1b");
    assert_eq!(shown(&model).len(), 2);
    press(&mut model, "/");
    press(&mut model, &"x".repeat(200));
    assert_eq!(model.filter.len(), MAX_FILTER);
}

#[test]
fn changes_are_made_after_a_yes_alone() {
    let mut model = model();
    assert_eq!(press(&mut model, "d"), []);
    assert!(model.notice.as_deref().unwrap().contains("table 3"), "{:?}", model.notice);
    press(&mut model, "3v");
    assert_eq!(press(&mut model, "d"), []);
    assert!(
        matches!(&model.mode, TopMode::Question(ask) if *ask == drain("10.0.0.2:3000")),
        "{:?}",
        model.mode
    );
    // Enter is no answer, and neither is the key that asked.
    assert_eq!(press(&mut model, "\nd "), []);
    assert_eq!(press(&mut model, "n"), []);
    assert_eq!(model.notice.as_deref(), Some("nothing was changed"));
    press(&mut model, "d");
    // The question is about the server that was chosen, whatever has moved meanwhile.
    model.update(TopMessage::Figures(figures(0.0)));
    assert_eq!(press(&mut model, "y"), [TopEffect::Ask(drain("10.0.0.2:3000"))]);
    model.update(TopMessage::Answer(drain("10.0.0.2:3000"), Ok(json!({}))));
    assert_eq!(model.notice.as_deref(), Some("10.0.0.2:3000 drains"));
    model.update(TopMessage::Answer(drain("10.0.0.2:3000"), Err("no\u{1b}[2J".to_owned())));
    assert_eq!(model.notice.as_deref(), Some("no\u{fffd}[2J"));
    let enable = TopAsk::Enable { backend: "apps".to_owned(), server: "10.0.0.1:3000".to_owned() };
    assert_eq!(press(&mut model, "^ey"), [TopEffect::Ask(enable)]);

    model.update(TopMessage::Connections(vec![json!({ "id": "c-1", "client": "192.0.2.1:4" })], false));
    let close = TopAsk::Close { id: "c-1".to_owned(), client: "192.0.2.1:4".to_owned() };
    assert_eq!(press(&mut model, "5k\x1b"), []);
    assert_eq!(press(&mut model, "ky"), [TopEffect::Ask(close)]);
}

#[test]
fn a_pause_keeps_what_is_shown() {
    let mut model = model();
    press(&mut model, "7 ");
    assert_eq!((model.paused, model.wanted()), (true, None));
    model.update(TopMessage::Figures(figures(1.0)));
    model.update(TopMessage::Request(json!({ "time": "2026-11-28T10:00:00Z", "request_id": "1" })));
    assert_eq!((model.figures["requests"]["per_second"].as_f64(), model.rows().total()), (Some(120.0), 0));
    press(&mut model, " ");
    assert_eq!(model.wanted(), Some(TopTable::Requests));
    model.update(TopMessage::Figures(figures(1.0)));
    assert_eq!(model.figures["requests"]["per_second"], 1.0);
}

#[test]
fn a_new_stream_does_not_blank_the_screen() {
    let mut model = TopModel::new("unix:/x", "1s");
    let mut totals = figures(1.0);
    totals["interval_s"] = Value::Null;
    totals["requests"]["per_second"] = Value::Null;
    model.update(TopMessage::Figures(totals.clone()));
    assert_eq!(model.figures["connections"]["open"], 41, "totals are better than nothing");
    model.update(TopMessage::Figures(figures(120.0)));
    model.update(TopMessage::Away("no Offramp\u{7} listens".to_owned()));
    assert_eq!(model.away.as_deref(), Some("no Offramp\u{fffd} listens"));
    model.update(TopMessage::Figures(totals));
    assert_eq!((model.away.as_deref(), &model.figures["requests"]["per_second"]), (None, &120.0.into()));
}

#[test]
fn requests_are_a_bounded_list_with_the_newest_first() {
    let mut model = model();
    press(&mut model, "7");
    for n in 0..700 {
        let time = format!("2026-11-28T10:{:02}:{:02}Z", n / 60, n % 60);
        model.update(TopMessage::Request(json!({ "time": time, "request_id": n.to_string(), "path": "/" })));
    }
    model.arrange(10);
    assert_eq!(model.rows().total(), MAX_REQUESTS);
    assert_eq!(model.rows().visible(1).next().unwrap().0["request_id"], "699");
    model.update(TopMessage::Request(
        json!({ "time": "2026-11-28T10:11:38Z", "request_id": "698", "path": "/" }),
    ));
    model.arrange(10);
    assert_eq!(
        model.rows().visible(3).filter(|(row, _)| row["request_id"] == "698").count(),
        1,
        "it was repeated"
    );
    model.update(TopMessage::Lost(7));
    model.update(TopMessage::Lost(2));
    assert_eq!(model.lost, 9);
    model.update(TopMessage::Missing(TopTable::Requests, "there is no log store".to_owned()));
    assert_eq!((model.rows().total(), model.rows().note.as_deref()), (0, Some("there is no log store")));
}

#[test]
fn a_detail_shows_the_row_until_its_answer_comes() {
    let mut model = model();
    let ask = TopAsk::Server { backend: "apps".to_owned(), server: "10.0.0.1:3000".to_owned() };
    assert_eq!(press(&mut model, "3\n"), [TopEffect::Ask(ask.clone())]);
    let lines = |model: &TopModel| match &model.mode {
        TopMode::Detail(detail) => detail.lines.clone(),
        other => panic!("{other:?}"),
    };
    assert!(lines(&model).iter().any(|line| line.ends_with(" up")), "{:?}", lines(&model));
    let answer = json!({ "servers": [{ "name": "10.0.0.1:3000", "why": "it answers" }] });
    model.update(TopMessage::Answer(ask.clone(), Ok(answer)));
    assert!(lines(&model).iter().any(|line| line.ends_with("it answers")), "{:?}", lines(&model));
    model.update(TopMessage::Answer(ask.clone(), Err("gone\nIs one running?".to_owned())));
    assert_eq!(lines(&model)[..2], ["gone", "Is one running?"]);
    press(&mut model, "\x1b");
    assert!(matches!(model.mode, TopMode::Browse));
    model.update(TopMessage::Answer(ask, Ok(json!({}))));
    assert!(matches!(model.mode, TopMode::Browse), "a late answer opens nothing");
    assert_eq!(press(&mut model, "1\n"), [], "a host has nothing more");
    assert_eq!(press(&mut model, "\x1b?q"), []);
    assert_eq!(press(&mut model, "q"), [TopEffect::Quit]);
    let alt = KeyEvent::new(KeyCode::Char('3'), KeyModifiers::ALT);
    press(&mut model, "/x\n?");
    model.update(TopMessage::Key(alt));
    assert!(matches!(model.mode, TopMode::Browse) && model.table == TopTable::Servers, "Esc, then 3");
    let control = |c| TopMessage::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
    assert_eq!(model.update(control('c')), Some(TopEffect::Quit));
    assert_eq!(model.update(control('z')), Some(TopEffect::Suspend));
}
