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
        let place = |config: &Config| config.user.as_ref().map(|user| user.at.place().cloned());
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
    let names: Vec<String> = current.certificates.iter().map(crate::model::Certificate::name).collect();
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
