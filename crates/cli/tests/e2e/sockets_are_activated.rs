//! Socket activation: the service manager opens the sockets, and Offramp serves what its configuration says of them.

use std::fs;
use std::os::unix::net::UnixStream;

use offramp_testkit::process::{Signal, require};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{connect, get, tcp, trusting};
use crate::support::instance::{CERTIFICATE, Home};
use crate::support::offramp::offramp;
use crate::support::upgrade::Upgraded;

/// Does what systemd does: opens sockets (`NAME=HOST:PORT`, `NAME=unix:PATH`), says where in a file, and becomes the
/// program with them.
const MANAGER: &str = r#"
import os, socket, sys
names, sockets = [], []
for one in sys.argv[1].split():
    name, where = one.split("=")
    if where.startswith("unix:"):
        it = socket.socket(socket.AF_UNIX)
        it.bind(where[5:])
    else:
        host, port = where.rsplit(":", 1)
        it = socket.socket()
        it.bind((host, int(port)))
    it.listen(64)
    names.append(name)
    sockets.append(it)
with open("where", "w") as where:
    where.write("\n".join(str(it.getsockname()[1]) if it.family == socket.AF_INET else "" for it in sockets))
high = [os.dup2(it.fileno(), 100 + at, inheritable=False) for at, it in enumerate(sockets)]
for at, fd in enumerate(high):
    os.dup2(fd, 3 + at, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(sockets)), LISTEN_FDNAMES=":".join(names))
os.execv(sys.argv[2], sys.argv[2:])
"#;

/// Starts Offramp as systemd does with these sockets. Gives the ports, too.
fn activate(home: Home, sockets: &str, text: &str) -> (Upgraded, Vec<u16>) {
    let model = offramp(home.path(), &["run", "--config"]);
    let mut command = std::process::Command::new(require("python3", "python3"));
    command.arg("-c").arg(MANAGER).arg(sockets).arg(model.get_program()).args(model.get_args());
    command.current_dir(home.path());
    for (name, value) in model.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let upgraded = Upgraded::of(home.start(command, text));
    let ports = fs::read_to_string(upgraded.instance.home.file("where")).unwrap();
    let ports = ports.lines().map(|port| port.parse().unwrap_or(0)).collect();
    (upgraded, ports)
}

#[test]
fn sockets_are_matched_by_name_and_by_address() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let home = Home::new();
    let path = home.file("door.sock");
    let text = format!(
        "workers = 3\n[metrics]\naddress = \"127.0.0.1:1\"\n{CERTIFICATE}\
         [[listener]]\nname = \"web\"\naddress = \"127.0.0.1:443\"\n\
         [[listener]]\nname = \"local\"\naddress = \"unix:{}\"\n[[route]]\nserver = \"{}\"\n",
        path.display(),
        app.address()
    );
    let sockets = format!(
        "offramp.socket=unix:{} web=127.0.0.1:0 stray=127.0.0.2:0 metrics=127.0.0.1:0",
        path.display()
    );
    let (upgraded, ports) = activate(home, &sockets, &text);
    let instance = &upgraded.instance;
    let config = trusting(&instance.home.ca.certificate());
    let served = || {
        for _ in 0..12 {
            let mut tls = connect(&config, ([127, 0, 0, 1], ports[1]).into(), "localhost").unwrap();
            assert_eq!(get(&mut tls, "/x").unwrap(), "hello /x\n");
        }
        let metrics = get(&mut tcp(([127, 0, 0, 1], ports[3]).into()).unwrap(), "/metrics").unwrap();
        assert!(metrics.contains("offramp_build_info"));
        UnixStream::connect(&path).unwrap();
    };
    served();
    // What belongs to nothing is said, and closed.
    let line = instance.until("the stray one", || upgraded.logged("belongs to no listener").pop());
    assert!(line.contains("name=stray") && line.contains(&format!("127.0.0.2:{}", ports[2])), "{line}");
    assert!(tcp(([127, 0, 0, 2], ports[2]).into()).is_err());
    // The file belongs to the service manager, whatever happens here.
    upgraded.upgrade();
    upgraded.until_others_ended();
    served();
    upgraded.signal(Signal::TERM);
    instance.until("the end", || (upgraded.logged(" stopped ").len() == 2).then_some(()));
    assert!(path.exists());
}

/// What is meant for another process is left alone.
#[test]
fn sockets_of_others_are_not_taken() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let home = Home::new();
    let mut command = offramp(home.path(), &["run", "--config"]);
    command.env("LISTEN_PID", "1").env("LISTEN_FDS", "2").env("LISTEN_FDNAMES", "default:default");
    let instance = home.start(command, &Home::one_route(app.address()));
    let config = trusting(&instance.home.ca.certificate());
    let mut tls = connect(&config, instance.address(), "localhost").unwrap();
    assert_eq!(get(&mut tls, "/x").unwrap(), "hello /x\n");
    drop(tls);
    instance.stop();
}

/// A sign of life comes again and again, also while connections are drained; none is given to a manager that does not
/// ask for one or means another process.
#[test]
fn the_watchdog_gets_a_sign_of_life() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let home = Home::new();
    let mut command = offramp(home.path(), &["run", "--config"]);
    command.env("WATCHDOG_USEC", "200000");
    let upgraded = Upgraded::of(home.start(command, &Home::one_route(app.address())));
    for _ in 0..3 {
        upgraded.instance.notified("WATCHDOG=1");
    }
    upgraded.upgrade();
    upgraded.until_others_ended();
    for _ in 0..3 {
        upgraded.instance.notified("WATCHDOG=1");
    }
    upgraded.stop();
    let home = Home::new();
    let mut command = offramp(home.path(), &["run", "--config"]);
    command.env("WATCHDOG_USEC", "1000").env("WATCHDOG_PID", "1");
    let instance = home.start(command, &Home::one_route(app.address()));
    instance.process.signal(Signal::TERM).unwrap();
    instance.process.wait(crate::support::instance::PATIENCE).unwrap();
    assert!(!instance.was_notified("WATCHDOG=1"));
}
