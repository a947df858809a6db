//! SIGUSR2 where nothing comes of it: the process serves on, and the log says why.

use std::fs;
use std::path::Path;
use std::process::Command;

use offramp_testkit::process::{Signal, require, write_program};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{connect, get, trusting};
use crate::support::instance::Home;
use crate::support::offramp::{offramp, output, stderr};
use crate::support::upgrade::{Upgraded, install, run_at};
use crate::upgrades_keep_the_admin_socket::ctl;

/// Puts a shell script in the place of the program.
pub(crate) fn script(program: &Path, text: &str) {
    let fresh = program.with_extension("new");
    write_program(&fresh, &format!("#!/bin/sh\n{text}\n"));
    fs::rename(fresh, program).unwrap();
}

fn served(upgraded: &Upgraded) {
    let config = trusting(&upgraded.instance.home.ca.certificate());
    for _ in 0..3 {
        let mut tls = connect(&config, upgraded.instance.address(), "localhost").unwrap();
        assert_eq!(get(&mut tls, "/x").unwrap(), "hello /x\n");
    }
    // Not by the configuration, which may be broken.
    let status = ctl(upgraded, &["--admin", "unix:state/admin.sock", "status"]);
    assert_eq!(status["pid"], upgraded.current());
}

#[test]
fn the_old_process_serves_on_and_says_why() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let home = Home::new();
    let program = home.file("bin");
    install(&program);
    let text = Home::one_route(app.address());
    let upgraded = run_at(home, &program, &text);
    for (does, reason) in [
        ("exit 1", "ended before it was ready (exit status: 1)"),
        ("kill -SEGV $$", "ended before it was ready (signal: 11"),
        ("printf 'hello' >&0; exec sleep 600", "a hand-over that is not known here: hello"),
        ("printf 'refused it is not my day' >&0; exit 3", "it is not my day"),
    ] {
        script(&program, does);
        let line = upgraded.fails();
        assert!(line.contains(reason), "{does}: {line}");
        served(&upgraded);
    }
    fs::remove_file(&program).unwrap();
    assert!(upgraded.fails().contains("cannot start"), "{:?}", upgraded.logged("upgrade failed"));
    install(&program);
    for (broken, reason) in [
        ("[limits\n".to_owned(), "offramp.toml:"),
        (text.replace("server.key", "missing.key"), "missing.key"),
        (format!("{text}[admin]\naddress = \"unix:/nonexistent/admin.sock\"\n"), "/nonexistent/admin.sock"),
    ] {
        upgraded.instance.home.configure(&broken);
        let line = upgraded.fails();
        assert!(line.contains(reason), "{line}");
        served(&upgraded);
    }
    // One that hangs has as long as the configuration says that is in force.
    upgraded.instance.home.configure(&format!("{text}[limits]\nupgrade_timeout = \"700ms\"\n"));
    upgraded.signal(Signal::HUP);
    upgraded.instance.notified("READY=1");
    script(&program, "exec sleep 600");
    let line = upgraded.fails();
    assert!(line.contains("was not ready within 0.7 s"), "{line}");
    served(&upgraded);
    // And when all is well again it goes as it should.
    install(&program);
    upgraded.instance.home.configure(&text);
    upgraded.signal(Signal::HUP);
    upgraded.instance.notified("READY=1");
    upgraded.upgrade();
    upgraded.until_others_ended();
    served(&upgraded);
    upgraded.stop();
}

/// Who orders a stop meanwhile gets it, and no process is left behind.
#[test]
fn an_order_to_stop_ends_an_upgrade_too() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let home = Home::new();
    let program = home.file("bin");
    install(&program);
    let upgraded = run_at(home, &program, &Home::one_route(app.address()));
    script(&program, "echo $$ > child; exec sleep 600");
    upgraded.signal(Signal::USR2);
    let child = upgraded.instance.home.file("child");
    let id = upgraded.instance.until("the new process", || {
        let text = fs::read_to_string(&child).ok()?;
        text.trim().parse::<u32>().ok()
    });
    upgraded.signal(Signal::TERM);
    upgraded.instance.until("the end of the new process", || {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X'])).then_some(())
    });
    upgraded.stop();
}

/// The first process of a container, as of every PID namespace: the kernel would end the new process with the old one.
#[test]
fn the_first_process_of_a_container_is_not_replaced() {
    let mut command = Command::new(require("unshare", "util-linux"));
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-current-user"]);
    }
    let home = Home::new();
    let offramp = offramp(home.path(), &["run", "--config"]);
    command.args(["--pid", "--fork", "--kill-child"]).arg(offramp.get_program()).args(offramp.get_args());
    for (name, value) in offramp.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(home.path());
    let instance = home.start(command, &Home::one_route("127.0.0.1:1"));
    let asked = output(instance.home.path(), &["ctl", "-c", "offramp.toml", "upgrade"]);
    let said = stderr(&asked);
    assert!(asked.status.code() == Some(1) && said.contains("first process of a container"), "{said}");
    let status = output(instance.home.path(), &["ctl", "-c", "offramp.toml", "status"]);
    assert!(status.status.success(), "{}", stderr(&status));
}
