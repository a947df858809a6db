use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use serde_json::{Value, json};

use super::*;
use crate::top::model::TopMessage;
use crate::top::model::tests::{figures, model, press};

fn drawn(model: &mut TopModel, width: u16, height: u16, colour: bool) -> Buffer {
    model.arrange(table_height(height));
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model, TopPalette { colour })).unwrap();
    terminal.backend().buffer().clone()
}

fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let lines = buffer.content.chunks(width).map(|row| {
        let mut line = String::new();
        let mut column = 0;
        // A wide character has the next cell, too.
        while let Some(cell) = row.get(column) {
            line.push_str(cell.symbol());
            column += cell.symbol().width().max(1);
        }
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

/// Compares a screen with the file of this name.
fn assert_screen(name: &str, model: &mut TopModel, width: u16, height: u16) {
    let screen = text_of(&drawn(model, width, height, false));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/view/screens").join(format!("{name}.txt"));
    if std::env::var_os("OFFRAMP_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(path, &screen).unwrap();
    } else {
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(screen == expected, "{name}:\n{screen}instead of\n{expected}");
    }
}

/// A model with curves, requests and connections.
fn busy() -> TopModel {
    let mut model = model();
    for n in 0..30 {
        model.update(TopMessage::Figures(figures(100.0 + f64::from(n * n % 37))));
    }
    let request = |id: usize, path: &str, status: u16| {
        json!({
            "time": format!("2026-11-28T10:11:{id:02}.5Z"), "client": "192.0.2.7", "host": "a.example", "method": "GET",
            "path": path, "status": status, "duration_us": 1_250 * id, "request_id": id.to_string(),
        })
    };
    let requests = [
        request(1, "/", 200),
        request(2, "/\u{1b}]0;title\u{7}\u{202e}x", 404),
        request(3, "/日本語/a-path-that-is-wider-than-its-column-on-a-screen-of-eighty", 502),
    ];
    for request in requests {
        model.update(TopMessage::Request(request));
    }
    let connections = (0..40).map(|n| {
        json!({
            "id": format!("id-{n}"), "client": format!("192.0.2.{n}:40000"), "protocol": "h2", "age_s": 70 * n,
            "bytes_from_client": 900 * n, "bytes_to_client": 90_000 * (40 - n), "route": "a.example/api",
        })
    });
    model.update(TopMessage::Connections(connections.collect::<Vec<Value>>(), false));
    model
}

#[test]
fn screens_are_those_that_were_looked_at() {
    for (width, height) in [(80, 24), (120, 40), (20, 10)] {
        let size = format!("{width}x{height}");
        let mut model = busy();
        for (keys, name) in [("1", "hosts"), ("3", "servers"), ("5", "connections"), ("7", "requests")] {
            press(&mut model, keys);
            assert_screen(&format!("{name}-{size}"), &mut model, width, height);
            if width == 20 {
                break;
            }
        }
    }
    let mut model = busy();
    press(&mut model, "3vd");
    assert_screen("question-80x24", &mut model, 80, 24);
    press(&mut model, "n?");
    assert_screen("keys-80x24", &mut model, 80, 24);
    press(&mut model, "\x1b2\n");
    assert_screen("detail-80x24", &mut model, 80, 24);
    press(&mut model, "\x1b4");
    assert_screen("clients-60x14", &mut model, 60, 14);
    press(&mut model, "6/none");
    assert_screen("filter-80x24", &mut model, 80, 24);
    press(&mut model, "\x1b");
    model.update(TopMessage::Away("no Offramp listens at unix:/run/offramp/admin.sock".to_owned()));
    assert_screen("away-80x24", &mut model, 80, 24);
}

#[test]
fn every_size_can_be_drawn() {
    for width in [1, 2, 19, 59, 60, 61, 80, 300] {
        for height in [1, 2, 13, 14, 15, 100] {
            for keys in ["1", "2", "3", "3d", "4", "5", "6", "7", "7\n", "?", "/x", " "] {
                let mut model = busy();
                press(&mut model, keys);
                drawn(&mut model, width, height, true);
            }
            drawn(&mut TopModel::new("unix:/x", "1s"), width, height, true);
        }
    }
}

#[test]
fn without_colours_there_is_none_and_with_them_there_are() {
    for (keys, has_state) in [("3", true), ("7", true), ("3d", true)] {
        let mut model = busy();
        press(&mut model, keys);
        let coloured = |buffer: &Buffer| {
            buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
        };
        assert!(!coloured(&drawn(&mut model, 80, 24, false)), "{keys}");
        assert_eq!(coloured(&drawn(&mut model, 80, 24, true)), has_state, "{keys}");
    }
}

#[test]
fn nothing_on_a_screen_is_a_control_character() {
    let mut model = TopModel::new("unix:/\u{1b}[2J", "1s");
    let bad = "x\u{1b}]0;t\u{7}\r\n\u{9b}\u{202e}";
    let mut figures = figures(5.0);
    figures["hosts"][0]["name"] = bad.into();
    figures["at"] = "\u{1b}[31m\u{1b}[31m\u{1b}[31m\u{1b}[31m\u{1b}[31m".into();
    figures["backends"][0]["backend"] = bad.into();
    figures["backends"][0]["servers"][0]["server"] = bad.into();
    figures["causes"][0]["cause"] = bad.into();
    model.update(TopMessage::Figures(figures));
    model.update(TopMessage::Request(
        json!({ "time": bad, "path": bad, "host": bad, "method": bad, "client": bad }),
    ));
    model.update(TopMessage::Connections(
        vec![json!({ "id": bad, "client": bad, "protocol": bad, "route": bad })],
        false,
    ));
    for keys in
        ["1", "1\n", "\x1b3", "3d", "y", "6", "6\n", "\x1b7", "7\n", "\x1b5", "k", "y", "/\u{1b}", "\n"]
    {
        press(&mut model, keys);
        let buffer = drawn(&mut model, 100, 30, true);
        for cell in &buffer.content {
            let is_safe = |c: char| !c.is_control() && c != '\u{202e}';
            assert!(cell.symbol().chars().all(is_safe), "{keys:?}: {:?}", cell.symbol());
        }
    }
    model.update(TopMessage::Away(bad.to_owned()));
    let buffer = drawn(&mut model, 100, 30, true);
    assert!(buffer.content.iter().all(|cell| !cell.symbol().chars().any(char::is_control)));
}
