use super::*;
use crate::{Environment, parse};

const TEXT: &str = r#"# The front door.
[log]
level = "info" # quiet

[[listener]]
name = "web"
address = "127.0.0.1:443" # for now

# Shop.
[[route]]
host = "shop.example"
backend = "shop"

# The rest.
[[route]]
server = "127.0.0.1:9"

[backend.shop]
servers = [
    "10.0.0.1:80", # the old one
    "10.0.0.2:80 weight=2",
]
balance = "least_conn" # by load
"#;

fn config() -> Config {
    parse(TEXT, "f.toml", &Environment::default()).unwrap().0
}

fn edited(edit: &Edit) -> Result<String, EditError> {
    let text = edit.apply(TEXT, &config(), "f.toml")?;
    parse(&text, "f.toml", &Environment::default()).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Ok(text)
}

fn server(server: &str, change: ServerEdit) -> Edit {
    Edit::Server { backend: "shop".to_owned(), server: server.to_owned(), change }
}

fn table(text: &str) -> Table {
    text.parse::<DocumentMut>().unwrap().as_table().clone()
}

#[test]
fn a_server_changes_in_its_line() {
    let change = ServerEdit::Change { state: Some(ServerState::Drain), weight: Weight::new(3) };
    let text = edited(&server("10.0.0.1:80", change)).unwrap();
    let expected = TEXT.replace("\"10.0.0.1:80\",", "\"10.0.0.1:80 weight=3 drain\",");
    assert_eq!(text, expected);
    let text = edited(&server("10.0.0.3:80 backup", ServerEdit::Add)).unwrap();
    assert!(text.contains("10.0.0.3:80 backup") && text.contains("# the old one"), "{text}");
    let text = edited(&server("10.0.0.2:80", ServerEdit::Remove)).unwrap();
    assert!(!text.contains("10.0.0.2") && text.contains("# the old one"), "{text}");
    let text = edited(&server("10.0.0.1:80", ServerEdit::Remove)).unwrap();
    assert!(!text.contains("the old one") && text.contains("[\n    \"10.0.0.2:80 weight=2\",\n]"), "{text}");
}

/// Each comment stays with its server, whatever comes and goes.
#[test]
fn comments_stay_with_their_servers() {
    let in_text = |servers: &str| {
        format!(
            "[[listener]]\naddress = \"127.0.0.1:1\"\n[[route]]\nbackend = \"shop\"\n[backend.shop]\nservers = {servers}\n"
        )
    };
    let make = |servers: String, name: &str, change| {
        let text = in_text(&servers);
        let (config, _) = parse(&text, "f.toml", &Environment::default()).unwrap();
        let text = server(name, change).apply(&text, &config, "f.toml").unwrap();
        parse(&text, "f.toml", &Environment::default()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        text.split_once("servers = ").unwrap().1.trim_end().to_owned()
    };
    for (before, added, removed) in [
        (
            "[\n  \"h:1\", # one\n  \"h:2\", # two\n]",
            "[\n  \"h:1\", # one\n  \"h:2\", # two\n  \"h:4\",\n]",
            "[\n  \"h:1\", # one\n  \"h:4\",\n]",
        ),
        (
            "[\n  \"h:1\", # one\n  \"h:2\" # two\n]",
            "[\n  \"h:1\", # one\n  \"h:2\", # two\n  \"h:4\"\n]",
            "[\n  \"h:1\", # one\n  \"h:4\"\n]",
        ),
        (
            "[\n  \"h:1\", # one\n  \"h:2\", # two\n  # more to come\n]",
            "[\n  \"h:1\", # one\n  \"h:2\", # two\n  \"h:4\",\n  # more to come\n]",
            "[\n  \"h:1\", # one\n  \"h:4\",\n  # more to come\n]",
        ),
        ("[\"h:1\", \"h:2\"] # all", "[\"h:1\", \"h:2\", \"h:4\"] # all", "[\"h:1\", \"h:4\"] # all"),
        ("[\"h:1\",\n \"h:2\"]", "[\"h:1\",\n \"h:2\",\n \"h:4\"]", "[\"h:1\",\n \"h:4\"]"),
    ] {
        let text = make(before.to_owned(), "h:4", ServerEdit::Add);
        assert_eq!(text, added);
        assert_eq!(make(text.clone(), "h:4", ServerEdit::Remove), before);
        assert_eq!(make(text, "h:2", ServerEdit::Remove), removed);
    }
}

#[test]
fn many_edits_are_made_at_once_as_far_as_they_find_what_they_are_about() {
    let drain =
        |name: &str| server(name, ServerEdit::Change { state: Some(ServerState::Drain), weight: None });
    let route = |host: &str| Edit::Add {
        item: Item::Route,
        name: String::new(),
        table: table(&format!("host = \"{host}\"\nserver = \"127.0.0.1:8\"\n")),
    };
    let gone = Edit::Remove { item: Item::Route, name: "shop.example".to_owned() };
    let set = Edit::Set { section: "log", key: "level", value: "debug".to_owned() };
    let add = server("10.0.0.3:80", ServerEdit::Add);
    let all =
        [&drain("10.0.0.1:80"), &route("a.example"), &drain("10.0.0.2:80"), &route("b.example"), &set, &gone];
    let (text, made) = Edit::apply_some(&all, TEXT, &config(), "f.toml").unwrap();
    assert_eq!(made, 5, "which route goes is known only when those that come were read");
    assert_eq!(text.matches(" drain\"").count(), 2, "{text}");
    let (_, made) =
        Edit::apply_some(&[&add, &set, &drain("10.0.0.3:80")], TEXT, &config(), "f.toml").unwrap();
    assert_eq!(made, 2);
    let error = Edit::apply_some(&[&set, &drain("10.0.0.9:80")], TEXT, &config(), "f.toml").unwrap_err();
    assert!(matches!(error, (1, EditError::Unknown { kind: "server", .. })), "{error:?}");
    assert_eq!(route("a.example").to_string(), "route a.example: added");
}

#[test]
fn items_come_and_go_and_everything_else_stays() {
    let name = || "shop.example".to_owned();
    let text = edited(&Edit::Remove { item: Item::Route, name: name() }).unwrap();
    assert_eq!(text, TEXT.replace("\n# Shop.\n[[route]]\nhost = \"shop.example\"\nbackend = \"shop\"\n", ""));
    let new = table("host = \"shop.example\"\nserver = \"127.0.0.1:8\"\n");
    let text = edited(&Edit::Replace { item: Item::Route, name: name(), table: new.clone() }).unwrap();
    assert_eq!(text, TEXT.replace("backend = \"shop\"", "server = \"127.0.0.1:8\""));
    let new = table("host = \"b.example\"\nserver = \"127.0.0.1:8\"\n");
    let text = edited(&Edit::Add { item: Item::Route, name: String::new(), table: new }).unwrap();
    assert!(text.contains("\n[[route]]\nhost = \"b.example\"\nserver = \"127.0.0.1:8\"\n"), "{text}");
    assert!(text.starts_with("# The front door.") && text.contains("# by load"), "{text}");
    let new = table("servers = [\"10.0.0.9:80\"]\n");
    let add = |name: &str| Edit::Add { item: Item::Backend, name: name.to_owned(), table: new.clone() };
    let text = edited(&add("other")).unwrap();
    assert!(text.contains("\n[backend.other]\nservers = [\"10.0.0.9:80\"]\n"), "{text}");
    assert!(matches!(edited(&add("shop")), Err(EditError::Exists { .. })));
}

#[test]
fn a_key_is_set_with_its_comment() {
    let set = Edit::Set { section: "log", key: "level", value: "debug".to_owned() };
    assert_eq!(edited(&set).unwrap(), TEXT.replace("\"info\" # quiet", "\"debug\" # quiet"));
}

#[test]
fn unknown_names_have_a_nearest() {
    let error = edited(&server("10.0.0.1:8", ServerEdit::Remove)).unwrap_err();
    assert_eq!(error.to_string(), "there is no server `10.0.0.1:8`; the nearest one is `10.0.0.1:80`");
    // All of one host are as near.
    let error = edited(&server("10.0.0.1:99", ServerEdit::Remove)).unwrap_err();
    assert!(error.to_string().contains("; the nearest one is `10.0.0.1:"), "{error}");
    let error = edited(&Edit::Remove { item: Item::Backend, name: "shpo".to_owned() }).unwrap_err();
    assert_eq!(error.to_string(), "there is no backend `shpo`; the nearest one is `shop`");
    let error = Edit::Remove { item: Item::Backend, name: "shop".to_owned() };
    let error = error.apply(TEXT, &config(), "other.toml").unwrap_err();
    assert!(matches!(&error, EditError::Elsewhere { file, .. } if file == "f.toml"), "{error}");
}

#[test]
fn the_text_for_edits_means_the_same_and_implies_the_same() {
    let implied = parse(
        "[[route]]\nhost = \"a.example\"\nserver = \"127.0.0.1:9\"\n",
        "f.toml",
        &Environment::default(),
    );
    for config in [config(), implied.unwrap().0] {
        let text = Edit::text_of(&config);
        let (mut again, _) = parse(&text, EDITED, &Environment::default()).unwrap();
        assert_eq!(again, config, "{text}");
        let add = table("host = \"new.example\"\nserver = \"127.0.0.1:8\"\n");
        let add = Edit::Add { item: Item::Route, name: String::new(), table: add };
        let edited = add.apply(&text, &again, EDITED).unwrap();
        again.keep_places(&config);
        assert_eq!(again.routes[0].at.place(), config.routes[0].at.place());
        let place = |config: &Config| config.process.user.as_ref().map(|user| user.at.place().cloned());
        assert_eq!(place(&again), place(&config));
        assert_eq!(
            again.origins.of("log.level").map(ToString::to_string),
            config.origins.of("log.level").map(ToString::to_string)
        );
        let (new, _) = parse(&edited, EDITED, &Environment::default()).unwrap();
        let told = crate::ConfigDiff::between(&config, &new).to_string();
        // A certificate that is implied covers the new host too.
        assert!(told.contains("route new.example: added"), "{told}");
        assert!(new.route_hosts().len() == config.route_hosts().len() + 1, "{told}");
    }
}

#[test]
fn certificates_are_called_by_their_files_and_names() {
    let text = "[[certificate]]\ncert = \"/a.pem\" # old\n[[certificate]]\nlocal = true\nnames = [\"a.example\", \"b.example\"]\n\
                [[route]]\nhost = \"a.example\"\nserver = \"127.0.0.1:9\"\n";
    let (config, _) = parse(text, "f.toml", &Environment::default()).unwrap();
    let item = Item::Certificate;
    let replaced = Edit::Replace { item, name: "/a.pem".to_owned(), table: table("cert = \"/b.pem\"") };
    let replaced = replaced.apply(text, &config, "f.toml").unwrap();
    assert_eq!(replaced, text.replace("/a.pem", "/b.pem"));
    let removed = Edit::Remove { item, name: "a.example,b.example".to_owned() };
    let removed = removed.apply(text, &config, "f.toml").unwrap();
    assert!(removed.contains("/a.pem") && !removed.contains("local"), "{removed}");
    let unknown = Edit::Remove { item, name: "/a.pm".to_owned() }.apply(text, &config, "f.toml").unwrap_err();
    assert_eq!(unknown.to_string(), "there is no certificate `/a.pm`; the nearest one is `/a.pem`");
}

#[test]
fn names_that_are_not_written_follow_the_routes() {
    let text = "[[certificate]]\nlocal = true\n[[certificate]]\nlocal = true\nnames = [\"a.example\"]\n\
                [[route]]\nhost = \"a.example\"\nserver = \"127.0.0.1:9\"\n";
    let (config, _) = parse(text, "f.toml", &Environment::default()).unwrap();
    let mut current = config;
    // Twice: what an edit has made can be edited.
    for host in ["b.example", "c.example"] {
        let before = Edit::text_of(&current);
        let (same, _) = parse(&before, EDITED, &Environment::default()).unwrap();
        assert_eq!(same, current);
        let table = table(&format!("host = \"{host}\"\nserver = \"127.0.0.1:9\""));
        let edit = Edit::Add { item: Item::Route, name: String::new(), table };
        let (mut next, _) =
            parse(&edit.apply(&before, &same, EDITED).unwrap(), EDITED, &Environment::default()).unwrap();
        next.keep_places(&current);
        current = next;
    }
    let names: Vec<String> = current.certificates.iter().map(crate::model::CertificateConfig::name).collect();
    assert_eq!(names, ["a.example,b.example,c.example", "a.example"]);
}

#[test]
fn keys_of_an_item_change_and_the_others_stay() {
    let change = |text: &str, without: &[&str]| Edit::Change {
        item: Item::Route,
        name: "shop.example".to_owned(),
        table: table(text),
        without: without.iter().map(|key| (*key).to_owned()).collect(),
    };
    let text = edited(&change("log_one_in = 3\n", &[])).unwrap();
    assert_eq!(text, TEXT.replacen("backend = \"shop\"\n", "backend = \"shop\"\nlog_one_in = 3\n", 1));
    let text = edited(&change("server = \"127.0.0.1:8\"\n", &["backend"])).unwrap();
    assert_eq!(text, TEXT.replacen("backend = \"shop\"", "server = \"127.0.0.1:8\"", 1));
}

#[test]
fn what_routes_use_is_not_removed() {
    let shop = |item, name: &str| edited(&Edit::Remove { item, name: name.to_owned() }).unwrap_err();
    assert_eq!(
        shop(Item::Backend, "shop").to_string(),
        "the route `shop.example` uses the backend `shop`; change or remove the route first"
    );
    let text = TEXT.replace("[[route]]\n", "[[route]]\nlistener = \"web\"\n");
    let (config, _) = parse(&text, "f.toml", &Environment::default()).unwrap();
    let removed = Edit::Remove { item: Item::Listener, name: "web".to_owned() };
    assert_eq!(
        removed.apply(&text, &config, "f.toml").unwrap_err().to_string(),
        "the routes `shop.example`, `default` use the listener `web`; change or remove the routes first"
    );
}

#[test]
fn lines_of_a_text_that_nobody_can_open_are_told_as_items() {
    let config = config();
    let text = Edit::text_of(&config);
    let (current, _) = parse(&text, EDITED, &Environment::default()).unwrap();
    let new = table("server = \"127.0.0.1:8\"\n");
    let add = Edit::Add { item: Item::Route, name: String::new(), table: new };
    let text = add.apply(&text, &current, EDITED).unwrap();
    let errors = parse(&text, EDITED, &Environment::default()).unwrap_err();
    let problem = &errors.problems()[0];
    let line = problem.place().unwrap().line;
    assert_eq!(item_at(&text, line, &config).unwrap(), "route `default` (f.toml:15)");
    let help = without_lines(problem.remedy().unwrap(), &text, &config);
    assert_eq!(help, "it is route `default` (f.toml:15): make listener, host, path or alpn different");
    for (wanted, item) in
        [("[backend.shop]", "backend `shop` (f.toml:18)"), ("name = \"web\"", "listener `web` (f.toml:5)")]
    {
        let line = text.lines().position(|line| line == wanted).unwrap() + 1;
        assert_eq!(item_at(&text, line, &config).unwrap(), item);
    }
    assert_eq!(item_at(&text, 1, &config), None);
}

/// A file in which routes take over keys in every way.
const SHARING: &str = r#"[[listener]]
address = "127.0.0.1:1"
mode = "http"

[defaults.route]
deny = ["127.0.0.1", "file:denied"]
max_body = "1KiB"
response_headers = { set = { X-Shared = "all", X-Other = "all" } }
error_pages = { 404 = "404.html", 5xx = ["5xx.html", "5xx.json"] }
policy = "framed"

[policy.framed]
hsts = true
basic_auth = { file = "users", realm = "a b" }
response_headers = { set = { X-Other = "policy" } }

[policy."open.all"]
basic_auth = false
deny = false

[[route]]
host = "a.example"
server = "unix:app.sock"

[[route]]
host = "b.example"
server = "127.0.0.1:9"
policy = ["open.all"]
max_body = false
response_headers = { set = { X-Own = "b" } }

[[route]]
host = "c.example"
root = "/files"
policy = false
hsts = false
maintenance = { retry_after = "1h", allow = ["10.0.0.0/8"] }
rewrite = [{ match = "^/a", to = "/b" }]
"#;

/// What is in force is edited as its file is: what routes share holds for those that are new or change.
#[test]
fn an_edit_of_what_is_in_force_leads_where_the_same_edit_of_the_file_leads() {
    let read = |text: &str, name: &str| parse(text, name, &Environment::default());
    let (config, _) = read(SHARING, "/c/f.toml").unwrap();
    let item = Item::Route;
    let named = |name: &str| format!("{name}.example");
    let keys = [
        "",
        "policy = \"framed\"\n",
        "policy = [\"open.all\"]\n",
        "policy = false\n",
        "deny = false\n",
        "deny = \"10.0.0.1\"\nhsts = false\n",
        "response_headers = { remove = [\"X-Shared\"] }\nmax_body = \"2KiB\"\n",
        "error_pages = { 404 = \"/own.html\" }\nlog_one_in = 3\n",
    ];
    let gone = ["policy", "deny", "max_body", "hsts", "response_headers", "error_pages", "basic_auth"];
    let mut edits = Vec::new();
    for keys in keys {
        let whole = |name: &str| table(&format!("host = \"{name}\"\nserver = \"127.0.0.1:8\"\n{keys}"));
        edits.push(Edit::Add { item, name: String::new(), table: whole("new.example") });
        for name in ["a", "b", "c"].map(named) {
            edits.push(Edit::Replace { item, name: name.clone(), table: whole(&name) });
            let without = |key: &str| (!keys.contains(key)).then(|| key.to_owned());
            for without in gone.iter().map(|key| without(key)).chain([None]) {
                let (name, without) = (name.clone(), without.into_iter().collect());
                edits.push(Edit::Change { item, name, table: table(keys), without });
            }
        }
    }
    let text = Edit::text_of(&config);
    let (in_force, _) = read(&text, EDITED).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    assert_eq!(in_force, config, "{text}");
    for edit in &edits {
        let of_file = edit.apply(SHARING, &config, "/c/f.toml").unwrap();
        let of_force = edit.apply(&text, &in_force, EDITED).unwrap();
        // What the file must not have, what is in force must not have either.
        let (expected, found) = (read(&of_file, "/c/f.toml"), read(&of_force, EDITED));
        let found = found.map_err(|errors| errors.count());
        assert_eq!(
            found.map(|it| it.0),
            expected.map_err(|errors| errors.count()).map(|it| it.0),
            "{of_force}"
        );
    }
    let add = edits[0].apply(&text, &in_force, EDITED).unwrap();
    let (added, _) = read(&add, EDITED).unwrap();
    assert!(!added.routes[3].networks.is_empty() && added.routes[3].http.hsts.is_some(), "{add}");
}
