//! SIGUSR2: a new process takes over under load, and nobody notices.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use offramp_testkit::server::{Listen, Server, apps};
use rustls::ClientConfig;

use crate::certificates_are_swapped_in_time::shown;
use crate::support::crowd::{Crowd, Tls, close, connect, echo, get, tcp, trusting, until};
use crate::support::instance::{CERTIFICATE, Home};
use crate::support::logs_desk;
use crate::support::openssl;
use crate::support::upgrade::Upgraded;

/// Clients that do something again and again until they are stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<io::Result<()>>>,
}

impl Load {
    pub(crate) fn new() -> Self {
        Self { stop: Arc::default(), done: Arc::default(), clients: Vec::new() }
    }

    /// One more client: `work` gets what tells it to go on, and counts what it has done by it.
    pub(crate) fn add(
        &mut self,
        work: impl FnOnce(&mut dyn FnMut() -> bool) -> io::Result<()> + Send + 'static,
    ) {
        let (stop, done) = (Arc::clone(&self.stop), Arc::clone(&self.done));
        self.clients.push(std::thread::spawn(move || {
            work(&mut || {
                done.fetch_add(1, Ordering::SeqCst);
                !stop.load(Ordering::SeqCst)
            })
        }));
    }

    /// Waits until so much more was done.
    pub(crate) fn busy(&self, more: usize) {
        let goal = self.done.load(Ordering::SeqCst) + more;
        until("a load that is served", || (self.done.load(Ordering::SeqCst) >= goal).then_some(()));
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.join().unwrap().unwrap();
        }
    }
}

/// A stream that only checks that every byte comes back.
pub(crate) fn stream(mut tls: Tls, seed: u64, goes_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
    let (mut state, mut sum, mut expected) = (seed | 1, 0_u64, 0_u64);
    while goes_on() {
        let mut block = [0; 16_384];
        for byte in &mut block {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
            expected = expected.wrapping_mul(31).wrapping_add(u64::from(*byte));
        }
        tls.write_all(&block)?;
        tls.flush()?;
        let mut back = [0; 16_384];
        tls.read_exact(&mut back)?;
        for byte in back {
            sum = sum.wrapping_mul(31).wrapping_add(u64::from(byte));
        }
        if sum != expected {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    close(tls)
}

/// Requests on kept connections. Where the other side has closed one before a byte of the response, a client asks again
/// (RFC 9112 §9.3.1); everything else fails.
fn requests(
    config: &Arc<ClientConfig>,
    address: SocketAddr,
    goes_on: &mut dyn FnMut() -> bool,
) -> io::Result<()> {
    let mut kept: Option<Tls> = None;
    let mut at_first = true;
    while goes_on() {
        loop {
            at_first |= kept.is_none();
            let mut tls = match kept.take() {
                Some(tls) => tls,
                None => connect(config, address, "localhost")?,
            };
            match get(&mut tls, "/kept") {
                Ok(body) if body == "hello /kept\n" => {
                    kept = Some(tls);
                    at_first = false;
                    break;
                }
                Ok(body) => return Err(io::Error::other(body)),
                Err(error) if at_first => return Err(error),
                Err(_) => {}
            }
        }
    }
    Ok(())
}

pub(crate) fn listener(name: &str, mode: &str) -> String {
    format!("[[listener]]\nname = \"{name}\"\nmode = \"{mode}\"\naddress = \"127.0.0.1:0\"\n")
}

fn route(listener: &str, server: &Server) -> String {
    format!("[[route]]\nlistener = \"{listener}\"\nserver = \"{}\"\n", server.address())
}

#[test]
fn no_request_and_no_stream_fails_over_ten_upgrades() {
    let (http, echoes) = (
        Server::start(&Listen::Ipv4, apps::http).unwrap(),
        Server::start(&Listen::Ipv4, apps::echo).unwrap(),
    );
    let text = format!(
        "workers = 2\n[access_log]\noutput = \"./events\"\n[limits]\nhandshake_timeout = \"1m\"\ndrain_timeout = \"10m\"\n\
         {CERTIFICATE}{}{}{}{}{}{}",
        listener("relayed", "tcp"),
        listener("blind", "tcp"),
        listener("default", "http"),
        route("relayed", &http),
        route("blind", &echoes),
        route("default", &http),
    );
    let upgraded = Upgraded::of(Home::new().run(&text));
    let instance = &upgraded.instance;
    let config = trusting(&instance.home.ca.certificate());
    let crowd = Crowd::send(4, &config, instance.address_of("relayed"), "localhost");
    let (mut streams, mut asked) = (Load::new(), Load::new());
    for seed in 0..3 {
        let tls = connect(&config, instance.address_of("blind"), "localhost").unwrap();
        streams.add(move |goes_on| stream(tls, seed, goes_on));
    }
    for _ in 0..2 {
        let (config, address) = (Arc::clone(&config), instance.address());
        asked.add(move |goes_on| requests(&config, address, goes_on));
    }
    for _ in 0..10 {
        let renewed = instance.home.renew();
        upgraded.upgrade();
        instance.until("the new certificate", || (shown(instance, "localhost") == renewed).then_some(()));
        crowd.busy(3);
        streams.busy(5);
        asked.busy(5);
    }
    streams.stop();
    asked.stop();
    let tally = crowd.stop();
    assert!(tally.failures.is_empty() && tally.turned_away == 0, "{tally:?}");
    let stopped = upgraded.until_others_ended();
    assert_eq!(stopped.len(), 10);
    let lines = upgraded.logged("upgraded;");
    let took: Vec<&str> =
        lines.iter().filter_map(|line| line.split("took_ms=").nth(1)?.split(' ').next()).collect();
    assert_eq!(took.len(), 10, "{lines:?}");
    println!("from the signal until the new process accepts, in ms: {}", took.join(" "));
    upgraded.stop();
}

#[test]
fn a_session_is_resumed_at_the_new_process() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    for (argument, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let upgraded = Upgraded::of(Home::new().run(&Home::one_route(app.address())));
        let first = openssl::echo(&upgraded.instance, &[argument, "-sess_out", "session.pem"]);
        assert!(first.contains("New, TLSv1."), "{first}");
        for _ in 0..2 {
            upgraded.upgrade();
            upgraded.until_others_ended();
            let again = openssl::echo(&upgraded.instance, &[argument, "-sess_in", "session.pem"]);
            assert!(again.contains(&format!("Reused, {version}, ")), "{again}");
        }
        upgraded.stop();
    }
}

/// Another number of workers, listeners that come and go, and what one process alone can have.
#[test]
fn the_new_process_has_what_its_configuration_says() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = |workers: usize, extra: &str| {
        format!(
            "workers = {workers}\n[admin]\naddress = \"unix:admin.sock\"\n[metrics]\naddress = \"127.0.0.1:0\"\n\
             [log_store]\nurl = \"sqlite:store.db\"\n{CERTIFICATE}{}{}{extra}[[route]]\nserver = \"{}\"\n",
            listener("default", "http"),
            listener("blind", "tcp"),
            app.address()
        )
    };
    let unix =
        "[[listener]]\nname = \"extra\"\nmode = \"tcp\"\naddress = [\"unix:one.sock\", \"unix:two.sock\"]\n";
    let fewer = "[[listener]]\nname = \"renamed\"\nmode = \"tcp\"\naddress = \"unix:two.sock\"\n";
    let upgraded = Upgraded::of(Home::new().run(&text(3, unix)));
    let instance = &upgraded.instance;
    let config = trusting(&instance.home.ca.certificate());
    let (address, metrics) = (instance.address(), instance.metrics());
    // It keeps the first process alive all the while.
    let mut kept = connect(&config, instance.address_of("blind"), "localhost").unwrap();
    for (workers, extra, sockets) in
        [(1, unix, [true, true]), (4, fewer, [false, true]), (2, "", [false, false])]
    {
        assert_eq!(get(&mut kept, "/kept").unwrap(), "hello /kept\n");
        instance.home.configure(&text(workers, extra));
        upgraded.upgrade();
        let mut page = tcp(metrics).unwrap();
        assert!(get(&mut page, "/metrics").unwrap().contains("offramp_build_info"));
        let mut admin = UnixStream::connect(instance.home.file("admin.sock")).unwrap();
        admin.write_all(b"GET /grafana HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        admin.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        for _ in 0..20 {
            let mut tls = connect(&config, address, "localhost").unwrap();
            assert_eq!(get(&mut tls, "/counted").unwrap(), "hello /counted\n");
        }
        let names = ["one.sock", "two.sock"];
        let reached = names.map(|name| UnixStream::connect(instance.home.file(name)).is_ok());
        assert_eq!(reached, sockets, "{workers} workers");
    }
    assert_eq!(get(&mut kept, "/kept").unwrap(), "hello /kept\n");
    close(kept).unwrap();
    upgraded.until_others_ended();
    // Everybody's requests are in the one store, and nobody's twice.
    let count = ["query", "SELECT count(*) AS n FROM requests WHERE path = '/counted'"];
    logs_desk::until(instance.home.path(), &count, |rows| rows[0]["n"] == 60);
    assert_eq!(upgraded.logged("ERROR"), [""; 0]);
    upgraded.stop();
}

#[test]
fn the_right_to_order_certificates_passes_over() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let text = format!(
        "{CERTIFICATE}[acme.nobody]\ndirectory = \"https://127.0.0.1:1/directory\"\nca = \"{}\"\n\
         [[certificate]]\nacme = \"nobody\"\nnames = [\"acme.test\"]\n{}{}",
        home.ca.certificate().display(),
        listener("default", "tcp"),
        route("default", &app)
    );
    let upgraded = Upgraded::of(home.run(&text));
    let socket = upgraded.instance.home.file("state/acme/control.sock");
    let config = trusting(&upgraded.instance.home.ca.certificate());
    for _ in 0..2 {
        // It is served by the process that has the lock.
        upgraded.instance.until("the process that orders", || {
            let stream = UnixStream::connect(&socket).ok()?;
            let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
            (peer.pid.as_raw_nonzero().get().unsigned_abs() == upgraded.current()).then_some(())
        });
        let mut tls = connect(&config, upgraded.instance.address(), "localhost").unwrap();
        echo(&mut tls, "hello").unwrap();
        upgraded.upgrade();
        // The one before lives on.
        echo(&mut tls, "hello").unwrap();
        close(tls).unwrap();
    }
    assert_eq!(upgraded.logged("orders no certificates"), [""; 0]);
    upgraded.stop();
}
