//! Configurations of several files.

use std::fs;
use std::path::Path;

use offramp_config::{Config, Environment, Errors, load, parse};

const ROUTE: &str = "[[route]]\nhost = \"HOST\"\nserver = \"unix:app.sock\"\n";

fn route(host: &str) -> String {
    ROUTE.replace("HOST", host)
}

/// A folder with files in it.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn read(folder: &Path) -> Result<Config, Errors> {
    load(&folder.join("offramp.toml"), &Environment::default()).map(|(config, warnings)| {
        assert_eq!(warnings, []);
        config
    })
}

/// What is said of these files, with `.` for the folder.
fn messages(files: &[(&str, &str)]) -> String {
    let folder = folder(files);
    let errors = read(folder.path()).unwrap_err().to_string();
    errors.replace(folder.path().to_str().unwrap(), ".")
}

#[test]
fn what_may_be_repeated_adds_up() {
    let folder = folder(&[
        ("offramp.toml", &format!("include = [\"sites.d/*.toml\", \"more.toml\"]\n{}", route("first.test"))),
        ("more.toml", "[limits]\nidle_timeout = \"9s\"\n[backend.b]\nservers = [\"unix:b.sock\"]"),
        ("sites.d/b.toml", &route("b.test")),
        (
            "sites.d/a.toml",
            "[[route]]\nhost = \"a.test\"\nbackend = \"b\"\n[[certificate]]\ncert = \"a.pem\"",
        ),
        ("sites.d/.hidden.toml", "nonsense"),
        ("sites.d/note.txt", "nonsense"),
    ]);
    let config = read(folder.path()).unwrap();
    let hosts: Vec<String> = config.routes.iter().map(|route| route.hosts[0].to_string()).collect();
    assert_eq!(hosts, ["first.test", "a.test", "b.test"]);
    assert_eq!(config.limits.idle_timeout.as_secs(), 9);
    // Relative paths start at the folder of the file that has them.
    let printed = offramp_config::print(&config);
    for path in ["app.sock", "sites.d/app.sock", "sites.d/a.pem", "b.sock"] {
        let path = folder.path().join(path);
        assert!(printed.contains(path.to_str().unwrap()), "{printed}");
    }
    let place = config.routes[2].at.place().unwrap();
    assert_eq!((&*place.file, place.line), (folder.path().join("sites.d/b.toml").to_str().unwrap(), 1));
    // What is printed stands for itself.
    let (again, _) = parse(&printed, "offramp.toml", &Environment::default()).unwrap();
    assert_eq!(again, config);
}

#[test]
fn what_is_shared_and_what_shares_it_keep_the_folders_of_their_files() {
    let shared = "[policy.p]\nbasic_auth = \"users\"\ndeny = [\"file:denied\", \"10.0.0.0/8\"]\n\
                  error_pages = { 404 = \"404.html\", 5xx = [\"5.html\", \"5.json\"] }\n\
                  client_auth = { ca = \"ca.pem\", crl = [\"crl.pem\"] }\n\
                  forward_auth = { server = \"unix:auth.sock\" }\n";
    let listener = "[[listener]]\naddress = \"127.0.0.1:1\"\nmode = \"http\"\n";
    let main =
        format!("include = \"sites.d/*.toml\"\n{listener}[defaults.route]\nallow = \"file:allowed\"\n");
    let site = "[[route]]\nhost = \"a.test\"\nserver = \"unix:a.sock\"\npolicy = \"p\"\nredirects = \"old\"\n\
                [[route]]\nhost = \"b.test\"\nroot = \"/b\"\npolicy = \"p\"\n\
                [[route]]\nhost = \"c.test\"\npassthrough = \"unix:c.sock\"\nallow = false\nlistener = \"tls\"\n\
                [[route]]\nhost = \"d.test\"\nrespond = { file = \"d.txt\" }\njwt = { jwks = \"keys.json\", audience = \"d\" }\n\
                [[route]]\nhost = \"e.test\"\nserver = \"127.0.0.1:9\"\n\
                jwt = { jwks = \"https://keys.test/\", ca = \"keys.pem\", audience = \"e\" }\n\
                client_auth = { trust_domains = { \"a.test\" = [\"one.pem\", \"two.pem\"] } }\n\
                [[listener]]\nname = \"tls\"\naddress = \"127.0.0.1:2\"\n";
    let folder =
        folder(&[("offramp.toml", &main), ("sites.d/a.toml", site), ("sites.d/shared.toml", shared)]);
    let config = read(folder.path()).unwrap_or_else(|errors| panic!("{errors}"));
    let printed = offramp_config::print(&config);
    let (again, _) = parse(&printed, "/elsewhere/offramp.toml", &Environment::default())
        .unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
    assert_eq!(again, config, "{printed}");
    assert!(printed.contains("[policy.p]") && printed.contains("policy = [\"p\"]"), "{printed}");
}

#[test]
fn one_file_alone_says_what_several_say() {
    let (main, more) = (route("a.test"), format!("{}[limits]\nidle_timeout = \"9s\"\n", route("b.test")));
    let parts = folder(&[("offramp.toml", &format!("include = \"b.toml\"\n{main}")), ("b.toml", &more)]);
    let whole = folder(&[("offramp.toml", &format!("{main}{more}"))]);
    let print = |folder: &Path| {
        let printed = offramp_config::print(&read(folder).unwrap());
        printed.replace(folder.to_str().unwrap(), ".")
    };
    assert_eq!(print(parts.path()), print(whole.path()));
}

#[test]
fn a_pattern_may_match_nothing_and_a_file_is_read_once() {
    let text = format!("include = [\"none.d/*.toml\", \"a*.toml\", \"a.toml\"]\n{}", route("x.test"));
    let folder = folder(&[("offramp.toml", &text), ("a.toml", &route("a.test"))]);
    assert_eq!(read(folder.path()).unwrap().routes.len(), 2);
}

#[test]
fn names_with_marks_of_patterns_are_only_names_in_the_folder() {
    let outer =
        folder(&[("[a]/offramp.toml", "include = \"*.d/x.toml\"\n"), ("[a]/s.d/x.toml", &route("a.test"))]);
    assert_eq!(read(&outer.path().join("[a]")).unwrap().routes.len(), 1);
}

#[test]
fn mistakes_name_the_file_and_come_all_at_once() {
    let said = messages(&[
        (
            "offramp.toml",
            "include = \"sites.d/*\"\nworker = 1\n[limits]\nstreams = 9\n[backend.x]\nservers = \"a:1\"\n",
        ),
        ("sites.d/1", "[[route]]\nserver = \"nowhere\"\n"),
        ("sites.d/2", "\n\n[limits]\nstreams = 8\n"),
        ("sites.d/3", "include = \"4\"\n[backend.x]\nservers = [\"b:1\"]"),
    ]);
    for expected in [
        "unknown key `worker`",
        "--> ./offramp.toml:2:1",
        "--> ./sites.d/1:2:10",
        "`limits` is written twice: also at ./offramp.toml:3:2",
        "--> ./sites.d/2:3:2",
        "a file that is included cannot include others",
        "--> ./sites.d/3:1:1",
        "`x` is written twice: also at ./offramp.toml:5:10",
        "--> ./sites.d/3:2:10",
        "./offramp.toml: 5 errors",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
}

#[test]
fn broken_toml_in_one_file_is_told_where_it_is() {
    let said = messages(&[
        ("offramp.toml", &format!("include = \"b\"\n{}", route("a.test"))),
        ("b", "[[route]]\nhost = \"é\"\nserver = oops\n"),
    ]);
    assert!(said.contains("--> ./b:3:10") && said.contains("3 | server = oops"), "{said}");
}

#[test]
fn files_that_cannot_be_included_are_told() {
    let main = |include: &str| {
        format!("include = {include}\n[[route]]\nbackend = \"in-the-file-that-is-missing\"\n")
    };
    for (include, expected) in [
        ("\"missing.toml\"", "cannot read ./missing.toml: No such file"),
        ("\"sub\"", "`./sub` is not a regular file"),
        ("\"su?\"", "`./sub` is not a regular file"),
        ("\"latin\"", "./latin, line 2: not UTF-8"),
        ("\"**/x\"", "`**` is not supported"),
        ("\"[\"", "is not a pattern for files"),
        ("\"\"", "is not a pattern for files"),
        ("3", "`include` cannot be an integer"),
    ] {
        let folder = folder(&[("offramp.toml", &main(include)), ("sub/file", "")]);
        fs::write(folder.path().join("latin"), b"a\n\xe9").unwrap();
        let said = read(folder.path()).unwrap_err().to_string();
        let said = said.replace(folder.path().to_str().unwrap(), ".");
        assert!(said.contains(expected) && said.contains("offramp.toml:1:"), "{include}\n{said}");
        let follows = include == "3";
        assert_eq!(said.contains("there is no backend"), follows, "no second error follows: {said}");
    }
}

#[test]
fn all_files_together_have_a_bound() {
    let comment = format!("# {}\n", "x".repeat(6 << 20));
    let said = messages(&[
        ("offramp.toml", "include = \"*.d/*\"\n"),
        ("a.d/1", &comment),
        ("a.d/2", &comment),
        ("a.d/3", &comment),
    ]);
    assert!(said.contains("./a.d/3 is larger than 16 MiB") || said.contains("16 MiB at most"), "{said}");
}

#[test]
fn a_text_without_a_file_includes_nothing() {
    let errors = parse("include = \"/dev/stdin\"", "offramp.toml", &Environment::default()).unwrap_err();
    assert!(errors.to_string().contains("only a configuration in a file"), "{errors}");
}
