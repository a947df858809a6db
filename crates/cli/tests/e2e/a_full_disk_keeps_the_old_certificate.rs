//! The disk is full before an order and in the middle of one: the old certificate stays, nothing is ordered that could not
//! be kept, and what was issued is fetched once there is room.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use offramp_testkit::process::{Process, Source, require};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::authority::{Authority, Fault};
use crate::support::crowd::{connect, trusting};
use crate::support::instance::{Home, LIFE, PATIENCE};
use crate::support::offramp::{output, stderr};
use crate::support::skipped::is_root_or_skipped;

/// Polls until there is something.
fn until<T>(process: &Process, what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}\n{}", process.transcript());
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

fn count(process: &Process, text: &str) -> usize {
    process.lines(Source::Stderr).iter().filter(|line| line.contains(text)).count()
}

/// Takes all the room there is.
pub(crate) fn fill(state: &Path) -> PathBuf {
    let path = state.join("filler");
    let mut file = fs::File::create(&path).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    path
}

#[test]
fn nothing_is_lost_and_nothing_is_ordered_in_vain() {
    if !is_root_or_skipped("only root may mount") {
        return;
    }
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, Duration::from_secs(90 * 24 * 3600));
    let client = trusting(&authority.root(home.path()));
    let text = format!(
        "{}[[certificate]]\nacme = \"own\"\nnames = [\"a.test\"]\n\
         [[listener]]\nname = \"default\"\naddress = \"127.0.0.1:0\"\n[[route]]\nserver = \"{}\"\n",
        authority.section(&home.ca.certificate(), ""),
        app.address()
    );
    let configuration = home.configure(&text);
    let inner = home.file("state");
    fs::create_dir(&inner).unwrap();
    let script = "mount -t tmpfs -o size=256k,mode=700 tmpfs \"$1\"; exec \"$2\" run --config \"$3\"";
    let mut unshare = Command::new(require("unshare", "util-linux"));
    unshare.args(["-m", "sh", "-euc", script, "sh"]).arg(&inner);
    unshare.arg(env!("CARGO_BIN_EXE_offramp")).arg(&configuration).env("NO_COLOR", "1");
    let process = Process::start(unshare, LIFE).unwrap();
    until(&process, "there is a certificate", || {
        (count(&process, "certificates changed") == 1).then_some(())
    });
    let address = until(&process, "it listens", || {
        let lines = process.lines(Source::Stderr);
        let line = lines.iter().find(|line| line.contains(" listening "))?;
        line.split("address=").nth(1)?.split_whitespace().next()?.parse().ok()
    });
    connect(&client, address, "a.test").unwrap();
    // The state directory as others see it, who are not in that namespace.
    let state = PathBuf::from(format!("/proc/{}/root{}", process.id(), inner.display()));
    let outer = home.file("outer.toml");
    let same = fs::read_to_string(&configuration).unwrap();
    fs::write(&outer, same.replacen("state_dir = \"state\"", &format!("state_dir = {state:?}"), 1)).unwrap();
    let renew = || -> Output { output(home.path(), &["cert", "renew", "a.test", "--config", "outer.toml"]) };

    let filler = fill(&state);
    let refused = renew();
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("No space left on device"), "{}", stderr(&refused));
    // A failure that cannot be noted on disk is known all the same: nobody tries without a pause.
    until(&process, "the failure is known", || (count(&process, "failures=1 ") == 1).then_some(()));
    assert_eq!((authority.orders().len(), count(&process, "ordering a certificate")), (1, 2));
    connect(&client, address, "a.test").unwrap();

    fs::remove_file(&filler).unwrap();
    authority.set_fault(Fault::Slow);
    std::thread::scope(|scope| {
        let renewal = scope.spawn(renew);
        until(&process, "the order is in its middle", || {
            (authority.requests("/finalize") == 2).then_some(())
        });
        fill(&state);
        authority.set_fault(Fault::None);
        let refused = renewal.join().unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(stderr(&refused).contains("No space left on device"), "{}", stderr(&refused));
    });
    connect(&client, address, "a.test").unwrap();
    assert_eq!(authority.orders().len(), 2);

    fs::remove_file(&filler).unwrap();
    let renewed = renew();
    assert_eq!(renewed.status.code(), Some(0), "{}", stderr(&renewed));
    assert_eq!((authority.orders().len(), count(&process, "an order that was under way goes on")), (2, 1));
    until(&process, "clients get the new one", || {
        (count(&process, "certificates changed") == 2).then_some(())
    });
    connect(&client, address, "a.test").unwrap();
    let left = fs::read_dir(state.join("acme/certificates")).unwrap().next().unwrap().unwrap().path();
    let left: Vec<_> = fs::read_dir(left).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
