use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use toml_parser::parser::{Event, EventKind, parse_document};
use toml_parser::{ParseError, Source};

use super::*;

fn laid_out(text: &str) -> String {
    formatted(text, "f.toml").unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

#[test]
fn layouts() {
    let long = "\"0123456789012345678901234567890123456789\"";
    for (text, expected) in [
        ("", ""),
        ("\n\n \n", ""),
        ("a=1", "a = 1\n"),
        ("  a   =   1   \n\n\n\n\tb=2\n\n", "a = 1\n\nb = 2\n"),
        // Line ends and a mark of the order of bytes.
        ("\u{feff}a=1\r\n\r\n\r\nb=2\r\n", "a = 1\n\nb = 2\n"),
        // Names and strings.
        ("'a' . \"b\".\"c d\".'e\\f' = 'x'", "a.b.\"c d\".'e\\f' = \"x\"\n"),
        (
            "a = 'C:\\x'\nb = 'say \"x\"'\nc = \"tab\\t\"\nd = ''",
            "a = 'C:\\x'\nb = 'say \"x\"'\nc = \"tab\\t\"\nd = \"\"\n",
        ),
        ("a = \"\"\"x\n  y \"\"\" # c\nb='''\nz'''", "a = \"\"\"x\n  y \"\"\" # c\nb = '''\nz'''\n"),
        (
            "a = 0x1F\nb = 1_000\nc = +1.5e3\nd = 1979-05-27 07:32:00Z",
            "a = 0x1F\nb = 1_000\nc = +1.5e3\nd = 1979-05-27 07:32:00Z\n",
        ),
        // Headers.
        ("a=1\n[ b . 'c' ]\n\n\nd=1\n[[ e ]]#x\n[f]", "a = 1\n\n[b.c]\nd = 1\n\n[[e]] #x\n\n[f]\n"),
        (
            "# top\n\n[a]\n\n# of x\nx=1\n# of b\n# and more\n[b]",
            "# top\n\n[a]\n# of x\nx = 1\n\n# of b\n# and more\n[b]\n",
        ),
        ("[a]\nx=1\n# free\n\n\n[b]", "[a]\nx = 1\n# free\n\n[b]\n"),
        // Comments at the ends of adjacent lines stand in one column.
        ("a=1#x\nbcd=2     # y\n\ne = 3 #z", "a = 1   #x\nbcd = 2 # y\n\ne = 3 #z\n"),
        ("a=1#x\nbc=2\nd=33# y\ne=4 #z  ", "a = 1 #x\nbc = 2\nd = 33 # y\ne = 4  #z\n"),
        // Arrays.
        ("a=[1,2 ,3,]\nb=[ ]\nc=[\n\n]\nd=[1,\n2]", "a = [1, 2, 3]\nb = []\nc = []\nd = [1, 2]\n"),
        ("a = [\n1,2]", "a = [\n    1,\n    2,\n]\n"),
        (
            "a = [ # first\n1, # one\n\n\n# two\n22 # too\n, # late\n]# end",
            "a = [\n    # first\n    1, # one\n\n    # two\n    22, # too\n    # late\n] # end\n",
        ),
        ("a = [[1,2],[\n3]]", "a = [\n    [1, 2],\n    [\n        3,\n    ],\n]\n"),
        (&format!("a = [{long}, {long}]"), &format!("a = [{long}, {long}]\n")),
        (
            &format!("abcdefghijklmno = [{long}, {long}]"),
            &format!("abcdefghijklmno = [\n    {long},\n    {long},\n]\n"),
        ),
        (
            &format!("abcdefghijklmn = [{long}, {long}] # c"),
            &format!("abcdefghijklmn = [\n    {long},\n    {long},\n] # c\n"),
        ),
        ("a = [\"\"\"x\ny\"\"\", 1]", "a = [\n    \"\"\"x\ny\"\"\",\n    1,\n]\n"),
        // Tables in braces stay on their line.
        ("a={b=1,c = { d=[ 1,2 ] },}\nb={ }\nc={\n}", "a = { b = 1, c = { d = [1, 2] } }\nb = {}\nc = {}\n"),
        (
            &format!("a = {{ b = [{long}, {long}], c = 1 }}"),
            &format!("a = {{ b = [{long}, {long}], c = 1 }}\n"),
        ),
        ("a = { b = [\n1, # one\n2], c = 3 } # end", "a = { b = [\n    1, # one\n    2,\n], c = 3 } # end\n"),
        ("a = { b = \"\"\"x\ny\"\"\", c = [\n1] }", "a = { b = \"\"\"x\ny\"\"\", c = [\n    1,\n] }\n"),
        ("a = {\nb=1, # one\n\n'c'=2\n}", "a = {\n    b = 1, # one\n\n    c = 2,\n}\n"),
        ("a = [{b=1},{b=2}]", "a = [{ b = 1 }, { b = 2 }]\n"),
    ] {
        let out = laid_out(text);
        assert_eq!(out, expected, "{text}");
        assert_eq!(laid_out(&out), out, "again");
    }
}

#[test]
fn a_width_of_100_is_kept() {
    let of = |count: usize| format!("a = [\"{}\", \"\"]", "x".repeat(count - 12));
    assert_eq!(laid_out(&of(100)), of(100) + "\n");
    assert!(laid_out(&of(101)).starts_with("a = [\n"));
    // Characters count, and not bytes.
    assert_eq!(laid_out(&of(100).replace('x', "é")).lines().count(), 1);
    // Within a list, the comma counts.
    let nested = |count: usize| format!("a = [\n    [\"{}\", \"\"],\n]", "x".repeat(count - 13));
    assert_eq!(laid_out(&nested(100)).lines().count(), 3);
    assert_eq!(laid_out(&nested(101)).lines().count(), 6);
}

#[test]
fn what_is_no_toml_is_told_as_by_the_parser() {
    for text in ["a = ", "a = 1\na = 2", "[a\nb = 1", "a = 'x", "a = 1 b = 2", "a = [1, 2", "\u{0}", "a\r= 1"]
    {
        let said = formatted(text, "f.toml").unwrap_err();
        let of_parser = crate::parse(text, "f.toml", &crate::Environment::default()).unwrap_err();
        assert!(!said.problems().is_empty());
        for problem in said.problems() {
            assert!(of_parser.problems().contains(problem), "{text}: {problem}");
            assert!(problem.to_string().contains("^"), "{problem}");
        }
    }
    // A mistake of meaning is none here.
    assert_eq!(laid_out("unknown=1"), "unknown = 1\n");
}

/// The comments of a text in order, without blanks at their ends.
fn comments(text: &str) -> Vec<&str> {
    let source = Source::new(text);
    let mut events: Vec<Event> = Vec::new();
    parse_document(&source.lex().into_vec(), &mut events, &mut |_: ParseError| {});
    let of_comments = events.iter().filter(|event| event.kind() == EventKind::Comment);
    of_comments.map(|event| source.get(event).unwrap().as_str().trim_end()).collect()
}

fn blanks() -> impl Strategy<Value = &'static str> {
    select(&["", " ", "\t  "][..])
}

/// Spaces, line ends and comments between the elements of an array.
fn gaps() -> impl Strategy<Value = String> {
    let part = select(&["", " ", "\n", "\r\n", "\n\n\n", " # a\n", "\n\t# b, ]\r\n", "#\n"][..]);
    vec(part, 0..3).prop_map(|parts| parts.concat())
}

fn scalars() -> impl Strategy<Value = String> {
    let others = select(
        &[
            "1",
            "0xFF",
            "true",
            "\"a\\\"b\"",
            "\"\"",
            "\"# é\"",
            "'a'",
            "'\\d\"'",
            "'''x\n\ny'''",
            "\"\"\"\nx \\\n  y\"\"\"",
            "1.5",
            "2026-01-01",
            "''",
        ][..],
    );
    let long = (20..70_usize).prop_map(|count| format!("\"{}\"", "w".repeat(count)));
    prop_oneof![4 => others.prop_map(str::to_owned), 1 => long]
}

/// A value; tables in braces have names that differ.
fn values() -> impl Strategy<Value = String> {
    scalars().prop_recursive(3, 12, 4, |inner| {
        let element = (gaps(), inner, gaps());
        (vec(element, 0..4), any::<bool>(), gaps(), any::<bool>()).prop_map(
            |(elements, last, end, is_table)| {
                let count = elements.len();
                let written: Vec<String> = elements
                    .into_iter()
                    .enumerate()
                    .map(|(at, (before, value, after))| {
                        let name = if is_table { format!("'k{at}' =\t") } else { String::new() };
                        format!("{before}{name}{value}{after}")
                    })
                    .collect();
                let comma = if last && count > 0 { "," } else { "" };
                let (open, close) = if is_table { ("{", "}") } else { ("[", "]") };
                format!("{open}{}{comma}{end}{close}", written.join(","))
            },
        )
    })
}

/// A document, in which every name is new.
fn documents() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        4 => (blanks(), blanks(), values(), blanks()).prop_map(|(a, b, value, c)| format!("{a}NAME{b}={c}{value}")),
        1 => blanks().prop_map(|a| format!("{a}'NAME' . \"x y\" . z = 1")),
        1 => blanks().prop_map(|a| format!("{a}[ NAME . \"s\"]")),
        1 => blanks().prop_map(|a| format!("{a}[[lists]]")),
        2 => Just(String::new()),
    ];
    let end = select(&["", "  ", "# end", " \t#: end,  "][..]);
    let lines = vec((line, end, select(&["\n", "\r\n", "\n\n\n"][..])), 0..10);
    (lines, any::<bool>()).prop_map(|(lines, marked)| {
        let mark = if marked { "\u{feff}" } else { "" };
        let written = lines.into_iter().enumerate().map(|(at, (line, end, newline))| {
            format!("{}{end}{newline}", line.replace("NAME", &format!("n{at}")))
        });
        mark.to_owned() + &written.collect::<String>()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_layout_is_final_and_keeps_values_and_comments(text in documents()) {
        // A difference of values is an error.
        let out = formatted(&text, "f.toml").map_err(|errors| TestCaseError::fail(format!("{text}\n{errors}")))?;
        prop_assert_eq!(&laid_out(&out), &out, "of {:?}", text);
        prop_assert_eq!(comments(&out), comments(&text), "of {:?}\n{}", text, out);
        prop_assert!(!out.contains("\n\n\n") || text.contains("''") || text.contains("\"\"\""), "{}", out);
        for line in out.lines().filter(|line| !text.contains("\"\"\"") && !line.is_empty()) {
            prop_assert!(!line.ends_with([' ', '\t']), "{line:?} of {text:?}");
        }
    }

    #[test]
    fn any_text_is_laid_out_or_refused(text in "(?s).{0,80}") {
        let _ = formatted(&text, "f.toml");
    }
}
