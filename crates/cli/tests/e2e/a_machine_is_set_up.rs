//! `offramp setup` and its way back, in trees of files, and on a machine whose directories and network are the test's own.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use offramp_testkit::process::{require, temp_dir};

use crate::http_documents::is_like;
use crate::support::instance::{PATIENCE, ask};
use crate::support::offramp::{offramp, output, stderr, stdout};
use crate::support::skipped::is_root_or_skipped;

/// All files and links below a folder, with modes and texts.
fn files(folder: &Path) -> Vec<(PathBuf, u32, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                folders.push(entry.path());
            }
            // The tools of users keep copies of what they change, and lists of numbers.
            let name = entry.file_name().into_string().unwrap();
            if name.ends_with('-') || name.starts_with("sub") {
                continue;
            }
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            found.push((entry.path(), metadata.permissions().mode() & 0o777, text));
        }
    }
    found.sort();
    found
}

/// A tree with the files of users.
fn tree(home: &Path, has_systemd: bool) -> PathBuf {
    let _ = require("useradd", "passwd");
    let tree = home.join("tree");
    for folder in ["etc/systemd/system", "usr/lib/systemd", "var/lib", "usr/local/bin"] {
        fs::create_dir_all(tree.join(folder)).unwrap();
    }
    for file in ["passwd", "group", "shadow", "gshadow"] {
        fs::write(tree.join("etc").join(file), "").unwrap();
    }
    if has_systemd {
        fs::write(tree.join("usr/lib/systemd/systemd"), "").unwrap();
    }
    tree
}

fn setup(home: &Path, arguments: &[&str]) -> Output {
    output(home, &[&["setup", "--yes", "--root", "tree"], arguments].concat())
}

fn done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(output), stderr(output));
    stderr(output) + &stdout(output)
}

fn refused(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}{}", stdout(output), stderr(output));
    stderr(output) + &stdout(output)
}

#[test]
fn a_tree_gets_all_and_loses_exactly_that() {
    let home = temp_dir();
    let home = home.path();
    let tree = tree(home, true);
    let _ = require("systemctl", "systemd");
    let before = files(&tree);
    // What is printed is what is done.
    let arguments = ["--name", "box.home.arpa", "--app", "3000"];
    let script = setup(home, &[&arguments[..], &["--print"]].concat());
    done(&script);
    assert_eq!(files(&tree), before);
    let said = done(&setup(home, &arguments));
    assert!(said.contains("from the local CA, not from Let's Encrypt"), "{said}");
    let after = files(&tree);
    let config = tree.join("etc/offramp/offramp.toml");
    assert_eq!(fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o640);
    let unit = fs::read_to_string(tree.join("etc/systemd/system/offramp.service")).unwrap();
    assert!(unit.contains("\nExecStart=/usr/local/bin/offramp run -c /etc/offramp/offramp.toml\n"), "{unit}");
    assert!(tree.join("usr/local/bin/offramp").exists());
    assert!(fs::read_to_string(tree.join("etc/passwd")).unwrap().starts_with("offramp:x:"));
    let wanted = tree.join("etc/systemd/system/multi-user.target.wants/offramp.service");
    assert!(wanted.symlink_metadata().is_ok(), "the service is enabled");
    let config = config.display().to_string();
    done(&output(home, &["check", "-c", &config]));
    done(&output(home, &["fmt", "--check", &config]));
    // Once more: everything is there.
    let again = done(&setup(home, &arguments));
    assert_eq!(again.matches("  already  ").count(), 3, "{again}");
    assert_eq!(files(&tree), after);
    // Another answer takes the place of the first, which setup has written itself.
    done(&setup(home, &["--name", "box.home.arpa", "--app", "4000"]));
    assert!(fs::read_to_string(&config).unwrap().contains("server = \"127.0.0.1:4000\""));
    let said = done(&output(home, &["setup", "--undo", "--yes", "--root", "tree"]));
    assert!(said.contains("taken back  create the user offramp"), "{said}");
    let mut left = files(&tree);
    // systemctl leaves the folder of links.
    left.retain(|(path, ..)| !path.ends_with("multi-user.target.wants"));
    assert_eq!(left, before);
    let said = refused(&output(home, &["setup", "--undo", "--yes", "--root", "tree"]), 1);
    assert!(said.contains("nothing to take back"), "{said}");
    // The commands that were printed do the same as setup.
    let run = Command::new("sh").arg("-euc").arg(stdout(&script)).output().unwrap();
    done(&run);
    let mut by_shell = files(&tree);
    by_shell.retain(|(path, ..)| !path.starts_with(tree.join("etc/passwd")));
    let record = tree.join("var/lib/offramp-setup.json");
    let names = |files: &[(PathBuf, u32, String)]| {
        files
            .iter()
            .map(|(path, mode, _)| (path.clone(), *mode))
            .filter(|(path, _)| *path != record && !path.ends_with("passwd"))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&by_shell), names(&after), "{}", stdout(&script));
}

#[test]
fn a_file_of_somebody_else_stays_unless_it_may_go() {
    let home = temp_dir();
    let home = home.path();
    let tree = tree(home, false);
    let config = tree.join("etc/offramp/offramp.toml");
    fs::create_dir(tree.join("etc/offramp")).unwrap();
    fs::write(&config, "# mine\n").unwrap();
    let before = files(&tree);
    let arguments = ["--name", "box.home.arpa", "--app", "3000"];
    let said = refused(&setup(home, &arguments), 1);
    assert!(
        said.contains("setup has not written it as it is") && said.contains("--overwrite replaces it"),
        "{said}"
    );
    assert_eq!(files(&tree), before);
    done(&setup(home, &[&arguments[..], &["--overwrite"]].concat()));
    assert_eq!(fs::read_to_string(tree.join("etc/offramp/offramp.toml.before-setup")).unwrap(), "# mine\n");
    // A file that setup wrote and somebody changed is somebody's.
    let written = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{written}# edited\n")).unwrap();
    refused(&setup(home, &arguments), 1);
    // The printed commands leave it too.
    let script = stdout(&output(home, &["setup", "--undo", "--print", "--root", "tree"]));
    assert!(
        script.starts_with("set -eu\numask 022\n")
            && script.contains("sha256sum")
            && script.contains("chgrp 0"),
        "{script}"
    );
    let said = done(&output(home, &["setup", "--undo", "--yes", "--root", "tree"]));
    assert!(said.contains("stays       write the configuration"), "{said}");
    assert!(said.contains("was changed since, and is left as it is"), "{said}");
    assert!(fs::read_to_string(&config).unwrap().ends_with("# edited\n"));
    assert_eq!(fs::metadata(&config).unwrap().gid(), rustix::process::getegid().as_raw());
    // It is forgotten: there is nothing that could fail for ever.
    let said = refused(&output(home, &["setup", "--undo", "--yes", "--root", "tree"]), 1);
    assert!(said.contains("nothing to take back"), "{said}");
    assert_eq!(fs::read_to_string(tree.join("etc/offramp/offramp.toml.before-setup")).unwrap(), "# mine\n");
}

#[test]
fn a_setup_that_was_interrupted_goes_on() {
    let home = temp_dir();
    let home = home.path();
    let tree = tree(home, true);
    // Something is in the way of the unit.
    let obstacle = tree.join("etc/systemd/system/offramp.service");
    fs::create_dir(&obstacle).unwrap();
    let arguments = ["--name", "box.home.arpa", "--app", "3000"];
    let said = refused(&setup(home, &arguments), 1);
    assert!(said.contains("cannot write") && said.contains("offramp setup --undo"), "{said}");
    assert!(tree.join("etc/offramp/offramp.toml").exists());
    fs::remove_dir(&obstacle).unwrap();
    let said = done(&setup(home, &arguments));
    assert!(
        said.contains("already  write the configuration") && said.contains("done     install the unit"),
        "{said}"
    );
    done(&output(home, &["setup", "--undo", "--yes", "--root", "tree"]));
    assert!(!tree.join("etc/offramp").exists() && !obstacle.exists());
}

#[test]
fn a_tree_that_was_copied_is_taken_back_where_it_is() {
    let home = temp_dir();
    let home = home.path();
    let tree = tree(home, false);
    done(&setup(home, &["--name", "box.home.arpa", "--app", "3000"]));
    let copied = Command::new("cp").args(["-a", "tree", "other"]).current_dir(home).status().unwrap();
    assert!(copied.success());
    done(&output(home, &["setup", "--undo", "--yes", "--root", "other"]));
    assert!(!home.join("other/etc/offramp").exists());
    assert_eq!(fs::read_to_string(home.join("other/etc/passwd")).unwrap(), "");
    // The first is as it was, and another setup there knows its own files.
    assert!(fs::read_to_string(tree.join("etc/passwd")).unwrap().contains("offramp:"));
    fs::rename(&tree, home.join("moved")).unwrap();
    done(&output(home, &["setup", "--yes", "--root", "moved", "--name", "box.home.arpa", "--app", "4000"]));
    done(&output(home, &["setup", "--undo", "--yes", "--root", "moved"]));
    assert!(!home.join("moved/etc/offramp").exists());
}

#[test]
fn a_record_runs_no_command_and_a_tree_reaches_nothing_outside() {
    let home = temp_dir();
    let home = home.path();
    let tree = tree(home, false);
    let record = tree.join("var/lib/offramp-setup.json");
    let run = r#"{"version": 1, "steps": [{"title": "x", "undo": [{"run": ["touch", "ran"]}]}]}"#;
    fs::write(&record, run).unwrap();
    fs::set_permissions(&record, fs::Permissions::from_mode(0o600)).unwrap();
    let said = refused(&output(home, &["setup", "--undo", "--yes", "--root", "tree"]), 1);
    assert!(said.contains("is damaged") && !home.join("ran").exists(), "{said}");
    fs::write(&record, r#"{"version": 2, "steps": []}"#).unwrap();
    fs::set_permissions(&record, fs::Permissions::from_mode(0o666)).unwrap();
    let said = refused(&setup(home, &["--app", "3000"]), 1);
    assert!(said.contains("is not believed"), "{said}");
    fs::remove_file(&record).unwrap();
    let said = refused(&setup(home, &["--app", "3000", "--config", "/etc/a\nid;#"]), 2);
    assert!(said.contains("control character"), "{said}");
    fs::create_dir(home.join("outside")).unwrap();
    std::os::unix::fs::symlink(home.join("outside"), tree.join("etc/offramp")).unwrap();
    let said = refused(&setup(home, &["--app", "3000"]), 1);
    assert!(said.contains("leads out of the tree"), "{said}");
    assert_eq!(fs::read_dir(home.join("outside")).unwrap().count(), 0);
}

#[test]
fn an_undo_that_was_killed_goes_on() {
    let home = temp_dir();
    let home = home.path();
    let tree = tree(home, false);
    done(&setup(home, &["--name", "box.home.arpa", "--app", "3000"]));
    // As an undo leaves it that was killed after it deleted the user, before it noted that.
    for file in ["passwd", "group", "shadow", "gshadow"] {
        fs::write(tree.join("etc").join(file), "").unwrap();
    }
    let said = done(&output(home, &["setup", "--undo", "--yes", "--root", "tree"]));
    assert!(said.contains("gone        create the user"), "{said}");
    // A user that somebody created since has another number, and stays.
    done(&setup(home, &["--name", "box.home.arpa", "--app", "3000"]));
    let theirs = "offramp:x:4242:4242::/:/bin/sh\n";
    fs::write(tree.join("etc/passwd"), theirs).unwrap();
    let said = done(&output(home, &["setup", "--undo", "--yes", "--root", "tree"]));
    assert!(said.contains("the user offramp is left"), "{said}");
    assert_eq!(fs::read_to_string(tree.join("etc/passwd")).unwrap(), theirs);
}

#[test]
fn every_problem_is_told_at_once() {
    let home = temp_dir();
    let home = home.path();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let config = home.join("offramp.toml");
    fs::write(&config, "# mine\n").unwrap();
    // A name that no server knows, an application that does not answer, a port of another process, a file of somebody else.
    let arguments =
        ["setup", "--print", "--name", "nobody.invalid", "--app", "unix:/no/such.sock", "--http-port", "0"];
    let more = ["--https-port", &port, "--config", "offramp.toml"];
    let said = done(&output(home, &[&arguments[..], &more].concat()));
    for part in [
        format!("error    port {port} is taken: "),
        format!("(pid {}) listens on 127.0.0.1:{port}", std::process::id()),
        "no public authority may issue for nobody.invalid".to_owned(),
        "the application at unix:/no/such.sock does not answer".to_owned(),
        "setup has not written it as it is".to_owned(),
        "of a router, of a cloud".to_owned(),
    ] {
        assert!(said.contains(&part), "{part} in {said}");
    }
    assert_eq!(fs::read_to_string(&config).unwrap(), "# mine\n");
    let said = refused(&output(home, &["setup", "--name", "bücher.example", "--email", "me"]), 2);
    assert_eq!(said.matches("error: ").count(), 3, "{said}");
    // Without a terminal it wants to be told that nobody is asked.
    tree(home, false);
    let said = refused(&output(home, &["setup", "--root", "tree", "--app", "3000"]), 2);
    assert!(said.contains("no terminal to ask on"), "{said}");
    assert!(!home.join("tree/etc/offramp").exists());
    // Who is not root gets the commands.
    if !rustix::process::geteuid().is_root() {
        let output =
            output(home, &["setup", "--yes", "--name", "box.home.arpa", "--app", "3000", "--no-start"]);
        let said = refused(&output, 1);
        assert!(said.contains("only root may") && stdout(&output).contains("\nuseradd "), "{said}");
    }
}

/// Answers at a terminal, one for each question.
#[test]
fn it_asks_at_a_terminal() {
    let home = temp_dir();
    let tree = tree(home.path(), false);
    let line = format!("{} setup --root tree", env!("CARGO_BIN_EXE_offramp"));
    let mut command = Command::new(require("script", "bsdutils"));
    command
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .current_dir(home.path())
        .env("SHELL", "/bin/sh");
    let said = ask(
        command,
        b"https://box.home.arpa/\nbox.home.arpa\nhttp://x\n3000\nnot an address\n\nmaybe\ny\n",
        PATIENCE,
    );
    let shown = stdout(&said);
    assert!(said.status.success(), "{shown}");
    for part in [
        "write the name alone: box.home.arpa",
        "write x:80 instead",
        "no e-mail address",
        "write y or n",
        "take it back",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let text = fs::read_to_string(tree.join("etc/offramp/offramp.toml")).unwrap();
    assert!(text.contains("host = \"box.home.arpa\""), "{text}");
}

#[test]
fn the_pages_say_what_happens() {
    let page = |name: &str| {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to");
        fs::read_to_string(docs.join(name)).unwrap()
    };
    let page = page("setup.md") + &page("trust.md");
    let home = temp_dir();
    let program = Path::new(env!("CARGO_BIN_EXE_offramp")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let _ =
        (require("chromium", "chromium"), require("certutil", "libnss3-tools"), require("useradd", "passwd"));
    let mut commands = 0;
    for block in page.split("```console\n").skip(1) {
        let block = format!("\n{}", block.split("```").next().unwrap());
        for command in block.split("\n$ ").skip(1) {
            let (line, expected) = command.split_once('\n').unwrap_or((command, ""));
            commands += 1;
            let mut shell = Command::new("sh");
            let own = offramp(home.path(), &[]);
            shell.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
            shell.args(["-c", &format!("exec 2>&1; {line}")]).env("PATH", &path).env_remove("SUDO_USER");
            shell.current_dir(home.path());
            let output = ask(shell, b"", PATIENCE);
            assert!(is_like(&stdout(&output), expected), "{line}\n{}instead of\n{expected}", stdout(&output));
        }
    }
    assert!(commands >= 6, "{commands}");
}

/// A machine of the test's own: its directories, its network, and a systemctl that starts what the unit says.
const MACHINE: &str = r#"
mount --make-rprivate /
cp -a /etc "$HOME/etc" 2>/dev/null || true
mount --bind "$HOME/etc" /etc
for place in /var/lib /usr/local /run /home; do mount -t tmpfs -o mode=755 tmpfs $place; done
ip link set lo up
mkdir -p /run/systemd/system /usr/local/bin /home/ada
rm -rf /etc/offramp
sed -i /^offramp:/d /etc/passwd /etc/group /etc/shadow /etc/gshadow
echo 'ada:x:4001:4001::/home/ada:/bin/sh' >> /etc/passwd
chown 4001:4001 /home/ada
cp "$PROGRAM" /home/ada/offramp
cat > /usr/local/bin/systemctl <<'EOF'
#!/bin/sh
echo "$*" >> /run/asked
case "$*" in
--version) echo 'systemd 255 (255)';;
'is-active --quiet offramp') kill -0 "$(cat /run/pid)" 2>/dev/null; exit;;
is-*) exit 1;;
'restart offramp') "$0" stop offramp; exec "$0" reload-or-restart offramp;;
'reload-or-restart offramp')
    line=$(sed -n s/^ExecStart=//p /etc/systemd/system/offramp.service)
    mkdir -p /var/lib/offramp && chown offramp:offramp /var/lib/offramp
    XDG_STATE_HOME=/var/lib setpriv --reuid=offramp --regid=offramp --clear-groups --inh-caps=+net_bind_service \
        --ambient-caps=+net_bind_service $line > /run/log 2>&1 &
    echo $! > /run/pid
    for i in $(seq 300); do grep -q ' started ' /run/log && exit; sleep 0.1; done
    exit 1;;
'stop offramp') kill "$(cat /run/pid)"; while kill -0 "$(cat /run/pid)" 2>/dev/null; do sleep 0.1; done;;
esac
EOF
chmod 755 /usr/local/bin/systemctl
export PATH=/usr/local/bin:$PATH
cd /
setup() { /home/ada/offramp setup --yes --name localhost --app 3000 "$@" 2>&1; }

echo '== taken'
mkdir -p /var/lib/nginx
nginx -c "$HOME/nginx.conf" 2>&1
! setup || exit 1
[ ! -e /etc/offramp ]
nginx -c "$HOME/nginx.conf" -s stop
# It removes its file before it closes port 443 (01BB).
for i in $(seq 300); do grep -q ':01BB .* 0A ' /proc/net/tcp || break; sleep 0.1; done

echo '== set up'
setup
curl -q --silent --show-error --noproxy '*' --cacert /var/lib/offramp/ca/ca.pem -o /dev/null -w 'status %{http_code}\n' https://localhost/
curl -q --silent --show-error --noproxy '*' -o /dev/null -w 'redirect %{redirect_url}\n' http://localhost/

echo '== set up with another file'
setup --config /etc/offramp/other.toml
grep -x 'restart offramp' /run/asked
tr '\0' ' ' < /proc/$(cat /run/pid)/cmdline

echo '== trusted'
SUDO_USER=ada offramp ca trust --browsers 2>&1
stat -c 'owner %U %n' /home/ada/.pki/nssdb/cert9.db
[ ! -e "$HOME/.pki" ]

echo '== taken back'
offramp setup --undo --yes 2>&1
! getent passwd offramp || exit 1
stat -c 'owner %U %n' /var/lib/offramp
ls -A /etc/systemd/system | grep -c offramp || true
[ ! -e /etc/offramp ] && [ ! -e /usr/local/bin/offramp ] && [ ! -e /var/lib/offramp-setup.json ]
"#;

#[test]
fn a_machine_goes_from_nginx_to_a_service_and_back() {
    if !is_root_or_skipped("only root sets a machine up") {
        return;
    }
    let home = temp_dir();
    let nginx = "pid /run/nginx.pid; error_log /run/nginx.log; events {} \
                 http { access_log off; server { listen 127.0.0.1:443; return 200; } }";
    fs::write(home.path().join("nginx.conf"), nginx).unwrap();
    let _ = (require("nginx", "nginx-light"), require("ip", "iproute2"), require("curl", "curl"));
    let mut command = Command::new(require("unshare", "util-linux"));
    command.args([
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-euc",
        MACHINE,
    ]);
    command.env("HOME", home.path()).env("PROGRAM", env!("CARGO_BIN_EXE_offramp"));
    for name in ["XDG_STATE_HOME", "NOTIFY_SOCKET", "SUDO_USER"] {
        command.env_remove(name);
    }
    let output = ask(command, b"", PATIENCE);
    let said = stdout(&output);
    assert!(output.status.success(), "{said}{}", stderr(&output));
    let part = |title: &str| {
        let rest = said.split(&format!("== {title}\n")).nth(1).unwrap_or_else(|| panic!("{said}"));
        rest.split("== ").next().unwrap().to_owned()
    };
    let taken = part("taken");
    assert!(taken.contains("port 443 is taken: nginx (pid "), "{taken}");
    assert!(
        taken.contains("systemctl disable --now nginx") && taken.contains("nothing was changed"),
        "{taken}"
    );
    let set_up = part("set up");
    assert!(set_up.contains("done     start the service"), "{set_up}");
    assert!(set_up.contains("status 502") && set_up.contains("redirect https://localhost/"), "{set_up}");
    assert!(set_up.contains("copy the program to /usr/local/bin/offramp"), "{set_up}");
    // A running service reads its command line only at a start.
    let other = part("set up with another file");
    assert!(other.contains("port 443 belongs to Offramp already"), "{other}");
    assert!(other.contains("\nrestart offramp\n") && other.contains("-c /etc/offramp/other.toml"), "{other}");
    let trusted = part("trusted");
    assert!(trusted.contains("owner ada /home/ada/.pki/nssdb/cert9.db"), "{trusted}");
    let back = part("taken back");
    assert!(back.contains("owner root /var/lib/offramp\n0\n"), "{back}");
}
