use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use offramp_config::{Environment, parse};

use super::*;

fn source(folder: &Path) -> Source {
    Source {
        origin: Origin::File(folder.join("config/offramp.toml")),
        environment: Environment { home: Some(folder.join("home")), ..Environment::default() },
    }
}

fn scope<'a>(source: &'a Source, also: &'a Reach) -> Scope<'a> {
    Scope { source, program: None, also }
}

/// Folders as a configuration finds them, and the text of one.
fn scene(folder: &Path) -> String {
    for name in ["config", "home", "logs", "run", "state", "certs", "archive", "elsewhere", "www"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    for name in ["config/offramp.toml", "config/users", "home/users", "archive/1.pem", "elsewhere/users"] {
        fs::write(folder.join(name), "").unwrap();
    }
    symlink(folder.join("archive/1.pem"), folder.join("certs/cert.pem")).unwrap();
    let at = folder.display();
    format!(
        "state_dir = \"{at}/state\"\n[access_log]\noutput = \"{at}/logs/events\"\n\
         [[certificate]]\ncert = \"{at}/certs/cert.pem\"\n\
         [[listener]]\naddress = [\"127.0.0.1:8443\", \"unix:{at}/run/offramp.sock\"]\nmode = \"http\"\n\
         [[route]]\nserver = \"127.0.0.1:3000\"\n"
    )
}

fn config(folder: &Path, text: &str) -> Config {
    let path = folder.join("config/offramp.toml").display().to_string();
    let environment = source(folder).environment;
    parse(text, &path, &environment).unwrap_or_else(|errors| panic!("{errors}")).0
}

fn rights(grants: &Grants, path: &Path) -> Rights {
    let real = real(path);
    let place = grants.bounds.places.iter().find(|place| place.path == real);
    place.map(|place| place.rights).unwrap_or_default()
}

#[test]
fn writing_is_for_the_folders_of_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = scene(folder.path());
    let grants =
        Grants::of(&config(folder.path(), &text), scope(&source(folder.path()), &Reach::default()), false);
    assert!(!grants.bounds.reading && grants.bounds.ports.is_none());
    assert_eq!(rights(&grants, &at("state")), Rights::ALL);
    assert_eq!(rights(&grants, &at("logs")), Rights::FILES);
    assert_eq!(rights(&grants, &at("run")), Rights::SOCKETS);
    assert_eq!(rights(&grants, &at("config")), Rights::FILES, "for `persist`");
    for name in ["certs", "archive", "elsewhere", "home", ""] {
        assert_eq!(rights(&grants, &at(name)), Rights::default(), "{name}");
    }
}

#[test]
fn reading_is_for_the_folders_of_what_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = format!("{}basic_auth = \"{}\"\n", scene(folder.path()), at("home/users").display());
    let also = Reach {
        files: vec![at("elsewhere/users")],
        ports: vec![5432],
        sockets: vec![at("www")],
        abstract_sockets: false,
    };
    let grants = Grants::of(&config(folder.path(), &text), scope(&source(folder.path()), &also), true);
    // Where a link is, where it leads to, and beside the configuration.
    for name in ["certs", "archive", "elsewhere"] {
        assert_eq!(rights(&grants, &at(name)), Rights::READ, "{name}");
    }
    assert_eq!(rights(&grants, &at("config")), Rights::KEEP);
    assert_eq!(rights(&grants, &at("www")), Rights::SOCKETS);
    assert_eq!(rights(&grants, &at("logs")), Rights::FILES, "events are not read");
    // Of a folder with much else, only the file.
    assert_eq!(rights(&grants, &at("home/users")), Rights::READ);
    assert_eq!(rights(&grants, &at("home")), Rights::default());
    let ports = grants.bounds.ports.unwrap();
    assert_eq!(ports.listen.into_iter().collect::<Vec<_>>(), [8443]);
    assert_eq!(ports.connect.into_iter().collect::<Vec<_>>(), [53, 3000, 5432]);
}

#[test]
fn the_configuration_of_a_folder_of_the_system_is_not_written() {
    for path in ["/etc/offramp.toml", "/offramp.toml", "/usr/local/etc/offramp.toml"] {
        assert_eq!(persist(Path::new(path)), None, "{path}");
    }
    let own = persist(Path::new("/etc/offramp/offramp.toml")).unwrap();
    assert_eq!((own.path.as_path(), own.rights), (Path::new("/etc/offramp"), Rights::FILES));
}

#[test]
fn what_is_special_is_given_alone() {
    let device = given(&What::Log("/dev/null".into()), None);
    assert_eq!(device, [PathRule { path: "/dev/null".into(), rights: Rights::FILES }]);
}

#[test]
fn standard_output_is_given_alone_wherever_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out");
    let open = fs::File::create(&file).unwrap();
    // As `/dev/stdout` is a link into this folder.
    let stream = Path::new("/proc/self/fd").join(std::os::fd::AsRawFd::as_raw_fd(&open).to_string());
    assert_eq!(given(&What::Log(stream), None), [PathRule { path: real(&file), rights: Rights::FILES }]);
    assert!(is_stream(Path::new("/dev/stdout")) && !is_stream(&file));
}

#[test]
fn a_log_that_is_a_link_in_a_shared_folder_does_not_give_that_folder() {
    let folder = tempfile::tempdir().unwrap();
    let root = real(folder.path());
    for name in ["home", "logs"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    let (link, file) = (root.join("home/events"), root.join("logs/events"));
    symlink(&file, &link).unwrap();
    let paths = |home: Option<&Path>| -> Vec<PathBuf> {
        given(&What::Log(link.clone()), home).into_iter().map(|place| place.path).collect()
    };
    let named = root.join("home");
    fs::write(&file, "").unwrap();
    assert_eq!(paths(Some(&named)), [root.join("logs"), file.clone()]);
    assert_eq!(paths(None), [named, root.join("logs"), file]);
}

#[test]
fn certificates_that_are_links_give_the_archive_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let root = real(folder.path());
    let lineage = |name: &str| {
        let (live, archive) = (root.join("live").join(name), root.join("archive").join(name));
        for folder in [&live, &archive] {
            fs::create_dir_all(folder).unwrap();
        }
        for file in ["fullchain", "privkey"] {
            fs::write(archive.join(format!("{file}1.pem")), "").unwrap();
            let target = format!("../../archive/{name}/{file}1.pem");
            symlink(target, live.join(format!("{file}.pem"))).unwrap();
        }
    };
    lineage("a.test");
    let live = root.join("live");
    let places = given(&What::Certificates(live.clone()), None);
    assert!(places.contains(&PathRule { path: root.join("archive"), rights: Rights::READ }), "{places:?}");
    assert!(!places.iter().any(|place| place.path == root), "{places:?}");
    // Links that lead elsewhere, and within the folder.
    let other = root.join("other");
    fs::create_dir_all(other.join("b")).unwrap();
    fs::write(root.join("archive/a.test/one.pem"), "").unwrap();
    symlink("../../archive/a.test/one.pem", other.join("b/fullchain.pem")).unwrap();
    assert_eq!(archives(&other).count(), 0);
    assert_eq!(archives(&live).collect::<HashSet<_>>(), HashSet::from([root.join("archive")]));
}

#[test]
fn the_program_is_read_without_what_lies_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = real(folder.path()).join("offramp");
    let paths = of_program(&program).map(|place| place.path);
    assert_eq!(paths, [program.clone(), program.with_file_name(".debug")]);
}

#[test]
fn changes_that_are_handed_over_reach_no_further_than_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let text = scene(folder.path());
    let at = folder.path().display().to_string();
    let refused = |mode: &str, from: &str, to: &str| -> Vec<String> {
        let text = format!("sandbox = \"{mode}\"\n{text}");
        let (file, edited) = (config(folder.path(), &text), config(folder.path(), &text.replace(from, to)));
        let findings =
            super::super::beyond_file(&file, &edited, scope(&source(folder.path()), &Reach::default()));
        findings.into_iter().map(|finding| finding.text).collect()
    };
    let (server, root) = ("server = \"127.0.0.1:3000\"", format!("root = \"{at}/www\""));
    for (mode, from, to, what) in [
        ("strict", server, &*root, "read /"),
        ("strict", ":3000", ":3001", "connect to port 3001"),
        ("strict", ":8443", ":8444", "listen on port 8444"),
        ("strict", "run/offramp.sock", "elsewhere/offramp.sock", "make the socket /"),
        ("on", "run/offramp.sock", "elsewhere/offramp.sock", "make the socket /"),
        ("required", "run/offramp.sock", "elsewhere/offramp.sock", "make the socket /"),
    ] {
        let said = refused(mode, from, to);
        assert_eq!(said.len(), 1, "{mode} {to}: {said:?}");
        assert!(said[0].contains(what) && said[0].contains("write it to the file"), "{said:?}");
        // Elsewhere nothing is said: the sandbox is off, or what is asked for lies within it.
        assert_eq!(refused("off", from, to), [""; 0]);
        assert_eq!(refused(mode, "offramp.sock", "other.sock"), [""; 0]);
    }
    assert_eq!(refused("on", server, &root), [""; 0], "reading is free");
}

/// Root opens for another user's configuration what its own file names, for the same use, and nothing beside it.
#[test]
fn a_configuration_of_another_user_has_the_files_that_the_file_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display().to_string();
    let text = scene(folder.path());
    let server = "server = \"127.0.0.1:3000\"";
    let named = format!("{server}\nerror_pages = {{ \"404\" = \"{at}/mine.html\" }}");
    let text = text.replacen(server, &named, 1);
    let refused = |mode: &str, from: &str, to: &str| -> Vec<String> {
        let text = format!("sandbox = \"{mode}\"\n{text}");
        assert!(text.contains(from), "{from}");
        let (file, edited) =
            (config(folder.path(), &text), config(folder.path(), &text.replacen(from, to, 1)));
        let findings =
            super::super::beyond_named(&file, &edited, scope(&source(folder.path()), &Reach::default()));
        findings.into_iter().map(|finding| finding.text).collect()
    };
    let body = |name: &str| format!("respond = {{ file = \"{at}/{name}\" }}");
    for mode in ["off", "on"] {
        for (from, to, key) in [
            (server, &*body("beside.html"), "route.respond.file"),
            (&*named, &*body("mine.html"), "route.respond.file"),
            ("mine.html", "beside.html", "route.error_pages"),
            (server, &*format!("root = \"{at}\""), "route.root"),
            ("offramp.sock", "other.sock", "`"),
        ] {
            let said = refused(mode, from, to);
            let is_told =
                said.iter().any(|said| said.contains(key) && said.contains(": root does not open /"));
            assert!(is_told, "{mode} {to}: {said:?}");
        }
        for (from, to) in
            [(":3000", ":3001"), (&*named, server), ("mine.html\" }", "mine.html\" }\nmax_body = \"1MiB\"")]
        {
            assert_eq!(refused(mode, from, to), [""; 0], "{to}");
        }
    }
}

#[test]
fn a_link_to_a_release_may_lead_to_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let releases = folder.path().join("releases");
    fs::create_dir_all(releases.join("1")).unwrap();
    let link = folder.path().join("current");
    symlink(releases.join("1"), &link).unwrap();
    let places = given(&What::ReadAll(link), None);
    let paths: Vec<_> = places.into_iter().map(|place| place.path).collect();
    assert_eq!(paths, [real(&releases), real(&releases.join("1"))]);
}

#[test]
fn later_configurations_get_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let text = scene(folder.path());
    let at = folder.path().display().to_string();
    let first = config(folder.path(), &text);
    let (on, strict) = (false, true);
    let grants = |strict| Grants::of(&first, scope(&source(folder.path()), &Reach::default()), strict);
    let refused = |strict, text: String| -> Vec<String> {
        let findings = grants(strict).missing(&config(folder.path(), &text));
        findings.iter().map(|finding| finding.text.clone()).collect()
    };
    assert_eq!(refused(strict, text.clone()), [""; 0]);
    // Beside what was read, and below.
    assert_eq!(refused(strict, format!("{text}basic_auth = \"{at}/config/users\"\n")), [""; 0]);
    assert_eq!(refused(strict, text.replace("logs/events", "logs/other")), [""; 0]);
    for (refusing, text, key, what) in [
        (on, text.replace("logs/events", "elsewhere/events"), "access_log.output", "write /"),
        (on, text.replace("run/offramp.sock", "elsewhere/s"), "listener.address", "make the socket /"),
        (strict, format!("{text}basic_auth = \"{at}/elsewhere/users\"\n"), "route.basic_auth.file", "read /"),
        (
            strict,
            text.replace("server = ", "root = ").replace("127.0.0.1:3000", &format!("{at}/www")),
            "route.root",
            "read /",
        ),
        (strict, text.replace(":8443", ":8444"), "listener.address", "listen on port 8444"),
        (strict, text.replace(":3000", ":3001"), "route.server", "connect to port 3001"),
    ] {
        let told = refused(strict, text.clone());
        assert_eq!(told.len(), 1, "{key}: {told:?}");
        let expected = format!("`{key}`: the sandbox does not let Offramp {what}");
        assert!(told[0].starts_with(&expected) && told[0].contains("offramp ctl upgrade"), "{told:?}");
        assert_eq!(refused(on, text).is_empty(), refusing, "{key}");
    }
}

#[test]
fn the_port_of_a_url_in_a_file_is_known_where_it_is_strict() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = scene(folder.path());
    let receiver = format!("[[notify]]\nname = \"a\"\nurl_file = \"{}\"\n", at("config/url").display());
    let with = config(folder.path(), &format!("{text}{receiver}"));
    fs::write(at("config/url"), "https://chat.example.org:8443/secret\n").unwrap();
    let (source, also) = (source(folder.path()), Reach::default());
    let grants = Grants::of(&with, scope(&source, &also), true);
    let connect = |grants: &Grants| grants.bounds.ports.as_ref().unwrap().connect.clone();
    assert!(connect(&grants).contains(&8443) && !connect(&grants).contains(&443));
    assert_eq!(grants.missing(&with).len(), 0);
    // Another URL in the same file is a need of its own.
    fs::write(at("config/url"), "https://chat.example.org/secret\n").unwrap();
    let missing = grants.missing(&with);
    assert_eq!(missing.len(), 1, "{missing:?}");
    let said = missing[0].to_string();
    assert!(said.contains("`notify.url_file`") && said.contains("connect to port 443"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    fs::remove_file(at("config/url")).unwrap();
    assert!(!connect(&Grants::of(&with, scope(&source, &also), true)).contains(&443));
}
