//! `offramp ca trust` and `untrust`: stores in scratch directories, with the tools that distributions have. Chromium
//! itself is in `browser`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::process::{require, temp_dir};

use crate::support::instance::Home;
use crate::support::offramp::{offramp, stderr, stdout};
use crate::support::skipped::is_root_or_skipped;

fn ca(home: &Path, arguments: &[&str]) -> Output {
    let mut command = offramp(home, &[&["ca"], arguments].concat());
    command.env_remove("JAVA_HOME").output().unwrap()
}

fn done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(output), stderr(output));
    stderr(output)
}

fn refused(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}{}", stdout(output), stderr(output));
    stderr(output)
}

fn run(program: &str, package: &str, arguments: &[&str]) -> String {
    let output = Command::new(require(program, package)).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

fn keytool(arguments: &[&str], store: &[&str]) -> String {
    run("keytool", "default-jdk-headless", &[arguments, store].concat())
}

/// The base64 of a certificate, without line ends.
fn body(pem: &str) -> String {
    pem.split("-----").nth(2).unwrap().split_whitespace().collect()
}

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A tree with the folders of Debian.
fn debian(home: &Path) -> PathBuf {
    let _ = require("update-ca-certificates", "ca-certificates");
    let tree = home.join("tree");
    for folder in [
        "usr/local/share/ca-certificates",
        "usr/share/ca-certificates",
        "etc/ca-certificates/update.d",
        "etc/ssl/certs/java",
        "usr/lib/jvm/java-17/lib/security",
    ] {
        fs::create_dir_all(tree.join(folder)).unwrap();
    }
    // The tool leaves the bundle as it is where no certificate at all is left.
    fs::write(tree.join("etc/ca-certificates.conf"), "other.crt\n").unwrap();
    fs::write(tree.join("usr/share/ca-certificates/other.crt"), "").unwrap();
    tree
}

/// The bundle of the tree, without blanks.
fn bundle(tree: &Path) -> String {
    let text = fs::read_to_string(tree.join("etc/ssl/certs/ca-certificates.crt")).unwrap_or_default();
    text.split_whitespace().collect()
}

#[test]
fn the_system_and_java_trust_it_and_forget_it() {
    let home = temp_dir();
    let home = home.path();
    let tree = debian(home);
    // Programs of the tree are not run here.
    let own = format!("#!/bin/sh\necho $0 >> {}\nexit 1\n", home.join("own").display());
    program(&tree.join("usr/lib/jvm/java-17/bin/keytool"), &own);
    program(&tree.join("etc/ca-certificates/update.d/hook"), &own);
    // A keystore that installations share by an absolute link, as Debian has it.
    let cacerts = tree.join("etc/ssl/certs/java/cacerts").display().to_string();
    let store = ["-keystore", &cacerts, "-storepass", "changeit"];
    keytool(&["-genkeypair", "-alias", "other", "-keyalg", "EC", "-dname", "CN=other"], &store);
    let link = tree.join("usr/lib/jvm/java-17/lib/security/cacerts");
    symlink("/etc/ssl/certs/java/cacerts", link).unwrap();

    let bundle = || bundle(&tree);
    let java = || keytool(&["-list"], &store).matches("offramp-local-ca-").count();
    let pem = || body(&fs::read_to_string(home.join("state/ca/ca.pem")).unwrap());
    let trust =
        |word: &str| ca(home, &[word, "--state-dir", "state", "--root", "tree", "--system", "--java"]);
    let said = done(&trust("trust"));
    assert!(
        said.contains("trusted now") && said.matches(&*tree.display().to_string()).count() == 2,
        "{said}"
    );
    let first = pem();
    assert!(bundle().contains(&first) && java() == 1);
    let said = done(&trust("trust"));
    assert!(said.contains("Nothing was to be done: every store trusts it already."), "{said}");
    // A CA that was made anew takes the place of the old one.
    fs::remove_dir_all(home.join("state/ca")).unwrap();
    done(&trust("trust"));
    assert!(pem() != first && bundle().contains(&pem()) && !bundle().contains(&first));
    assert_eq!(java(), 1);
    // The same certificate at another path is the same CA.
    fs::copy(home.join("state/ca/ca.pem"), home.join("copy.pem")).unwrap();
    let copy = |word: &str| ca(home, &[word, "copy.pem", "--root", "tree", "--system", "--java"]);
    assert_eq!(done(&copy("trust")).matches("trusted already").count(), 2);
    done(&copy("untrust"));
    assert!(bundle().is_empty() && java() == 0);
    done(&trust("trust"));
    // It goes even if its own file is gone, and what others have added stays.
    let other = tree.join("usr/local/share/ca-certificates/offramp-local-ca.crt");
    fs::write(&other, "").unwrap();
    fs::remove_dir_all(home.join("state/ca")).unwrap();
    done(&trust("untrust"));
    assert!(bundle().is_empty() && java() == 0 && other.exists());
    assert_eq!(fs::read_dir(other.parent().unwrap()).unwrap().count(), 1);
    assert!(done(&trust("untrust")).contains("no store has it"));
    assert!(!home.join("state/ca").exists(), "no CA is made to be forgotten");
    assert!(!home.join("own").exists(), "{:?}", fs::read_to_string(home.join("own")));
}

/// A tool that fails leaves the file of the CA in the folder, or gone from it, and the bundle as it was.
#[test]
fn the_bundle_says_if_the_system_trusts_it() {
    let home = temp_dir();
    let home = home.path();
    let tree = debian(home);
    program(&home.join("fake/update-ca-certificates"), "#!/bin/sh\necho no >&2\nexit 3\n");
    let path = format!("{}:{}", home.join("fake").display(), std::env::var("PATH").unwrap());
    let arguments = |word: &'static str| ["ca", word, "--state-dir", "state", "--root", "tree", "--system"];
    let fails = |word| {
        let output = offramp(home, &arguments(word)).env("PATH", &path).output().unwrap();
        assert!(refused(&output, 1).contains("exit code 3"), "{}", stderr(&output));
    };
    let works = |word| done(&offramp(home, &arguments(word)).output().unwrap());
    fails("trust");
    fails("trust");
    assert!(works("trust").contains("trusted now") && works("trust").contains("trusted already"));
    let pem = body(&fs::read_to_string(home.join("state/ca/ca.pem")).unwrap());
    fails("untrust");
    fails("untrust");
    assert!(bundle(&tree).contains(&pem));
    assert!(works("untrust").contains("taken out") && bundle(&tree).is_empty());
    assert!(works("untrust").contains("not there"));
    // Without the certificate, the bundle's age says it.
    works("trust");
    fs::remove_dir_all(home.join("state/ca")).unwrap();
    fails("untrust");
    assert!(works("untrust").contains("taken out") && bundle(&tree).is_empty());
    // What another has put there stays, and is named.
    works("trust");
    let other = tree.join("usr/local/share/ca-certificates/other.crt");
    fs::copy(home.join("state/ca/ca.pem"), &other).unwrap();
    for _ in 0..2 {
        let said = refused(&ca(home, &arguments("untrust")[1..]), 1);
        assert!(said.contains("other.crt has it, which Offramp did not write"), "{said}");
    }
    assert!(other.exists());
}

/// Links that a process within the tree would not follow out of it.
#[test]
fn nothing_is_changed_outside_a_tree() {
    for (link, options) in [
        ("usr/local/share/ca-certificates", "--system"),
        ("etc/ssl/certs", "--system"),
        ("etc/ssl/certs/ca-certificates.crt.new", "--system"),
        ("home/.pki/nssdb", "--browsers"),
        ("home/.pki/nssdb/cert9.db", "--browsers"),
        ("home/.mozilla", "--browsers"),
    ] {
        let home = temp_dir();
        let home = home.path();
        let tree = debian(home);
        let outside = home.join("outside");
        profile(home, "outside");
        profile(home, "outside/firefox/a.default");
        profile(&tree, "home/.pki/nssdb");
        let link = tree.join(link);
        let target = if link.is_file() { outside.join("cert9.db") } else { outside.clone() };
        let _ = fs::remove_file(&link);
        let _ = fs::remove_dir_all(&link);
        symlink(target, &link).unwrap();
        let names = || fs::read_dir(&outside).unwrap().count();
        let list = |place: &str| {
            let database = format!("sql:{}", outside.join(place).display());
            run("certutil", "libnss3-tools", &["-L", "-d", &database])
        };
        let before = names();
        let arguments = ["ca", "trust", "--state-dir", "state", "--root", "tree", options];
        let output = offramp(home, &arguments).env("HOME", tree.join("home")).output().unwrap();
        let shown = format!("{}: {}", link.display(), stderr(&output));
        assert_eq!(names(), before, "{shown}");
        assert!(!list("").contains("Offramp") && !list("firefox/a.default").contains("Offramp"), "{shown}");
        assert!(options == "--browsers" || output.status.code() == Some(1), "{shown}");
    }
}

/// Programs and links in the home of a user do not have the power of root.
#[test]
fn stores_of_a_user_are_handled_as_the_user() {
    let folder = temp_dir();
    let folder = folder.path();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let _ca = done(&ca(folder, &["--state-dir", "state"]));
    let home = folder.join("home");
    let called = folder.join("called");
    fs::write(&called, "").unwrap();
    fs::set_permissions(&called, fs::Permissions::from_mode(0o666)).unwrap();
    fs::write(folder.join("secret"), "").unwrap();
    let keytool = format!("#!/bin/sh\nid -u >> {}\n", called.display());
    let is_root = rustix::process::geteuid().is_root();
    for place in [".sdkman/candidates/java/x", ".jdks/y"] {
        program(&home.join(place).join("bin/keytool"), &keytool);
        fs::create_dir_all(home.join(place).join("lib/security")).unwrap();
    }
    fs::write(home.join(".sdkman/candidates/java/x/lib/security/cacerts"), "").unwrap();
    symlink(folder.join("secret"), home.join(".jdks/y/lib/security/cacerts")).unwrap();
    let uid = if is_root { 65534 } else { rustix::process::geteuid().as_raw() };
    if is_root {
        chown(&home, Some(uid), Some(uid)).unwrap();
    }
    for word in ["trust", "untrust"] {
        let arguments = ["ca", word, "state/ca/ca.pem", "--java", "--print"];
        let output = offramp(folder, &arguments).env("HOME", &home).env_remove("JAVA_HOME").output().unwrap();
        let script = stdout(&output);
        assert!(!is_root || word == "untrust" || script.matches("sudo -H -u ").count() == 2, "{script}");
    }
    assert_eq!(fs::read_to_string(&called).unwrap(), format!("{uid}\n").repeat(4));
}

/// The stores of other distributions, with programs that note how they are called.
#[test]
fn each_distribution_has_its_store_and_its_tool() {
    for (folder, extension, called, bundle) in [
        (
            "etc/pki/ca-trust/source/anchors",
            "pem",
            "update-ca-trust extract",
            "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        ),
        ("etc/pki/trust/anchors", "pem", "update-ca-certificates", "var/lib/ca-certificates/ca-bundle.pem"),
        (
            "etc/ca-certificates/trust-source/anchors",
            "crt",
            "update-ca-trust",
            "etc/ca-certificates/extracted/tls-ca-bundle.pem",
        ),
    ] {
        let tool = called.split(' ').next().unwrap();
        let home = temp_dir();
        let home = home.path();
        let tree = home.join("tree");
        fs::create_dir_all(tree.join(folder)).unwrap();
        fs::create_dir_all(tree.join(bundle).parent().unwrap()).unwrap();
        let chroot = format!(
            "#!/bin/sh\necho \"$*\" >> \"$HOME/called\"\ncat \"$1/{folder}\"/* > \"$1/{bundle}\" || :\n"
        );
        program(&home.join("fake/chroot"), &chroot);
        let path = format!("{}:{}", home.join("fake").display(), std::env::var("PATH").unwrap());
        let trust = |word: &str| {
            let arguments = ["ca", word, "--state-dir", "state", "--root", "tree", "--system"];
            offramp(home, &arguments).env("PATH", &path).output().unwrap()
        };
        let said = refused(&trust("trust"), 1);
        assert!(
            said.contains(&format!("the program `{tool}` is missing; install the package ca-")),
            "{said}"
        );
        fs::create_dir_all(tree.join("usr/bin")).unwrap();
        program(&tree.join("usr/bin").join(tool), "");
        done(&trust("trust"));
        let names = || {
            fs::read_dir(tree.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        let [name] = &names()[..] else { panic!("{folder}: {:?}", names()) };
        assert!(name.extension().is_some_and(|found| found == extension), "{}", name.display());
        assert!(done(&trust("trust")).contains("trusted already"));
        done(&trust("untrust"));
        assert!(names().is_empty());
        let line = format!("{} {called}\n", tree.canonicalize().unwrap().display());
        assert_eq!(fs::read_to_string(home.join("called")).unwrap(), line.repeat(2));
    }
}

/// A database as a browser makes it.
fn profile(home: &Path, place: &str) -> String {
    let folder = home.join(place);
    fs::create_dir_all(&folder).unwrap();
    let database = format!("sql:{}", folder.display());
    run("certutil", "libnss3-tools", &["-N", "-d", &database, "--empty-password"]);
    database
}

#[test]
fn browsers_trust_it_and_forget_it() {
    let home = temp_dir();
    let home = home.path();
    // The name of a profile is text, in a script and on a terminal.
    let places = [
        ".pki/nssdb",
        ".mozilla/firefox/a.default\ntouch pwned;#\u{1b}[2J",
        "snap/firefox/common/.mozilla/firefox/b b.default",
    ];
    let databases = places.map(|place| profile(home, place));
    let list = |database: &str| run("certutil", "libnss3-tools", &["-L", "-d", database]);
    let trust = |words: &[&str]| ca(home, &[words, &["--state-dir", "state", "--browsers"]].concat());
    // The commands that are printed do the same, and make no CA.
    let said = refused(&trust(&["trust", "--print"]), 2);
    assert!(said.contains("create it first: offramp ca") && !home.join("state").exists(), "{said}");
    done(&ca(home, &["--state-dir", "state"]));
    let script = trust(&["trust", "--print"]);
    done(&script);
    assert!(databases.iter().all(|database| !list(database).contains("Offramp")));
    let shell = format!("cd '{}'\n{}", home.display(), stdout(&script));
    run("sh", "dash", &["-euc", &shell]);
    assert!(!home.join("pwned").exists(), "{shell}");
    let own = home.join("state/ca/ca.pem").display().to_string();
    for database in &databases {
        assert!(list(database).contains(&own) && list(database).contains(" C,,"), "{}", list(database));
    }
    let said = done(&trust(&["trust"]));
    assert!(said.matches("trusted already").count() == 3 && !said.contains('\u{1b}'), "{said}");
    // The same certificate at another path is the same CA.
    fs::copy(home.join("state/ca/ca.pem"), home.join("copy.pem")).unwrap();
    let copy = |word: &str| done(&ca(home, &[word, "copy.pem", "--browsers"]));
    assert_eq!(copy("trust").matches("trusted already").count(), 3);
    assert_eq!(copy("untrust").matches("taken out").count(), 3);
    assert_eq!(done(&trust(&["trust"])).matches("trusted now").count(), 3);
    // That of another user or machine stays beside it.
    let other = Home::new();
    let theirs = other.ca.certificate().display().to_string();
    done(&ca(home, &["trust", &theirs, "--browsers"]));
    fs::remove_dir_all(home.join("state/ca")).unwrap();
    assert_eq!(done(&trust(&["trust"])).matches("trusted now").count(), 3);
    for database in &databases {
        assert_eq!(list(database).matches("Offramp Local CA").count(), 2, "{}", list(database));
        assert_eq!(list(database).matches(&theirs).count(), 1, "{}", list(database));
    }
    done(&trust(&["untrust"]));
    done(&ca(home, &["untrust", &theirs, "--browsers"]));
    assert!(databases.iter().all(|database| !list(database).contains("Offramp")));
}

#[test]
fn a_missing_tool_is_named_with_its_package() {
    let home = temp_dir();
    let home = home.path();
    let tree = home.join("tree");
    profile(&tree, ".mozilla/firefox/a.default");
    fs::create_dir_all(tree.join("etc")).unwrap();
    for (release, package) in [
        ("ID=debian", "libnss3-tools: apt install libnss3-tools"),
        ("ID=fedora", "nss-tools: dnf install nss-tools"),
        ("ID=opensuse-leap\nID_LIKE=\"suse opensuse\"", "mozilla-nss-tools: zypper install"),
        ("ID=arch", "nss: pacman -S nss"),
        ("ID=own", "nss-tools\n"),
    ] {
        fs::write(tree.join("etc/os-release"), release).unwrap();
        let arguments = ["ca", "trust", "--state-dir", "state", "--browsers", "--root", "tree"];
        let mut command = offramp(home, &arguments);
        command.env("PATH", home.join("empty")).env("HOME", &tree);
        let said = refused(&command.output().unwrap(), 1);
        assert!(said.contains(&format!("`certutil` is missing; install the package {package}")), "{said}");
    }
    // No store of the system is known in such a tree.
    let said = refused(&ca(home, &["trust", "--state-dir", "state", "--system", "--root", "tree"]), 1);
    assert!(said.contains("no store of a known kind"), "{said}");
}

#[test]
fn what_is_no_ca_is_refused() {
    let home = Home::new();
    let leaf = home.ca.issue("leaf", &Leaf::server(Key::P256, &["a.example"])).unwrap();
    let authority = fs::read_to_string(home.ca.certificate()).unwrap();
    let key = fs::read_to_string(home.file("server.key")).unwrap();
    fs::write(home.file("both.pem"), format!("{authority}{key}")).unwrap();
    fs::write(home.file("two.pem"), authority.repeat(2)).unwrap();
    fs::write(home.file("empty.pem"), "").unwrap();
    let leaf = leaf.cert.display().to_string();
    for (file, why) in [
        (leaf.as_str(), "which is no CA"),
        ("both.pem", "has a private key"),
        ("two.pem", "has 2 certificates"),
        ("empty.pem", "empty.pem"),
        ("missing.pem", "cannot read"),
    ] {
        let said = refused(&ca(home.path(), &["trust", file, "--browsers"]), 2);
        assert!(said.contains(why), "{file}: {said}");
    }
}

#[test]
fn a_database_that_cannot_be_changed_has_advice() {
    let home = temp_dir();
    let home = home.path();
    let database = format!("sql:{}", home.join(".mozilla/firefox/a.default").display());
    fs::create_dir_all(home.join(".mozilla/firefox/a.default")).unwrap();
    fs::write(home.join("password"), "of the database\n").unwrap();
    let password = home.join("password").display().to_string();
    run("certutil", "libnss3-tools", &["-N", "-d", &database, "-f", &password]);
    let arguments = ["trust", "--state-dir", "state", "--browsers"];
    let said = refused(&ca(home, &arguments), 1);
    assert!(said.contains("A primary password protects it"), "{said}");
    // A module of another tree is a program of it.
    let tree = home.join("tree");
    profile(&tree, ".mozilla/firefox/a.default");
    let modules = tree.join(".mozilla/firefox/a.default/pkcs11.txt");
    let text = fs::read_to_string(&modules).unwrap();
    fs::write(&modules, format!("{text}\nlibrary=/tree/evil.so\nname=x\n\n")).unwrap();
    let mut command = offramp(home, &[&["ca"], &arguments[..], &["--root", "tree"]].concat());
    let said = refused(&command.env("HOME", &tree).output().unwrap(), 1);
    assert!(said.contains("loads the module /tree/evil.so"), "{said}");
}

#[test]
fn a_ca_of_the_past_and_an_unknown_user_are_warned_of() {
    let home = temp_dir();
    let home = home.path();
    let mut old = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    old.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    old.not_after = rcgen::date_time_ymd(2020, 1, 2);
    let old = old.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
    fs::write(home.join("old.pem"), old.pem()).unwrap();
    let said = done(&ca(home, &["trust", "old.pem", "--browsers"]));
    assert!(said.contains("warning: this CA expired on 2020-01-02"), "{said}");
    if is_root_or_skipped("only root acts for the user behind sudo") {
        profile(home, ".mozilla/firefox/a.default");
        let arguments = ["ca", "trust", "--state-dir", "state", "--browsers"];
        let output = offramp(home, &arguments).env("SUDO_USER", "no\u{1b}body at all").output().unwrap();
        let said = done(&output);
        assert!(said.contains("no\\u{1b}body at all, who is no user") && said.contains("no store"), "{said}");
    }
}
