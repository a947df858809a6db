//! The list of keys.

/// Keys and their meanings.
const KEYS: [(&str, &str); 12] = [
    ("1 to 7, Tab, Left, Right", "choose a table"),
    ("Up, Down, PageUp, PageDown", "choose a row; Home and End: the first and the last"),
    ("s, r", "order by the next column; reverse the order"),
    ("/", "show rows with a text; Enter keeps it, Esc does not"),
    ("Esc", "show all rows again"),
    ("Space", "pause and go on"),
    ("Enter", "more about the chosen row"),
    ("d, e", "drain the chosen server; enable it; y confirms"),
    ("k", "close the chosen connection; y confirms"),
    ("Ctrl-L", "draw the screen anew"),
    ("Ctrl-Z", "back to the shell; fg continues"),
    ("q, Ctrl-C", "end"),
];

pub(super) fn lines() -> Vec<String> {
    KEYS.iter().map(|(keys, meaning)| format!("{keys:<28}{meaning}")).collect()
}
