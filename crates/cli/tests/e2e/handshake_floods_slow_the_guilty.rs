//! Thousands of handshakes a second from many addresses, and the client whose connection is open is served as before.
//!
//! The worker has a core of its own, all clients have another one; both are shared with whatever else the machine does.
//! So what is compared is no time that passes but CPU time of the process: what it does between a request and its
//! response, against what a handshake costs it.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Socket, Type};

use crate::support::crowd::{Tls, connect, get, trusting};
use crate::support::figures::cpu;
use crate::support::instance::{CERTIFICATE, Home, Instance};

/// What is offered.
const PER_SECOND: u32 = 4000;
const ADDRESSES: u32 = 200;
/// How long a hostile client waits for the answer to its hello.
const WAITS: Duration = Duration::from_secs(1);
/// The requests of a phase, and the time between two of them.
const REQUESTS: u32 = 400;
const PACE: Duration = Duration::from_millis(4);
/// The handshakes that a request waits for on average, at the most, where less than one was counted on a quiet machine. Without the budget of
/// handshakes it is the 61 tasks that tokio runs between two looks at its sockets.
const AHEAD: u32 = 12;
/// The full handshakes whose CPU time is the measure.
const MEASURED: u32 = 32;

/// Ties the worker to one core and the calling thread, with those that it starts, to another, if there are two.
fn take_cores(instance: &Instance) {
    let mine = sched_getaffinity(None).unwrap();
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| mine.is_set(*core)).collect();
    let [first, second, ..] = cores[..] else { return };
    let only = |core| {
        let mut set = CpuSet::new();
        set.set(core);
        set
    };
    for task in fs::read_dir(format!("/proc/{}/task", instance.process.id())).unwrap() {
        let task = task.unwrap().path();
        if fs::read_to_string(task.join("comm")).unwrap().trim() == "offramp-0" {
            let id = task.file_name().unwrap().to_str().unwrap().parse().unwrap();
            sched_setaffinity(Pid::from_raw(id), &only(first)).unwrap();
        }
    }
    sched_setaffinity(None, &only(second)).unwrap();
}

/// A flood, until it is dropped.
struct Flood {
    over: Arc<AtomicBool>,
    /// Hellos that were sent, and those that were answered.
    counts: Arc<[AtomicUsize; 2]>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flood {
    /// Full handshakes whose clients never finish them: nothing is cheaper for them.
    fn begin(to: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        let hello = || {
            let mut client =
                ClientConnection::new(Arc::clone(config), "localhost".try_into().unwrap()).unwrap();
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            bytes
        };
        let hellos: Vec<_> = (0..16).map(|_| hello()).collect();
        let (over, counts): (Arc<AtomicBool>, Arc<[AtomicUsize; 2]>) = Default::default();
        let (ends, counted) = (Arc::clone(&over), Arc::clone(&counts));
        let thread = thread::spawn(move || {
            let begun = Instant::now();
            let mut waiting: VecDeque<(Instant, TcpStream)> = VecDeque::new();
            let mut sent = 0;
            while !ends.load(Ordering::Relaxed) {
                // As many as are due by now, but never so many that this thread does nothing else.
                let due = (begun.elapsed().as_secs_f64() * f64::from(PER_SECOND)) as u32;
                for _ in 0..due.saturating_sub(sent).min(40) {
                    let from = Ipv4Addr::new(127, 0, 1, 1 + (sent % ADDRESSES) as u8);
                    sent += 1;
                    if let Ok(stream) = knock(from, to, &hellos[sent as usize % hellos.len()]) {
                        counted[0].fetch_add(1, Ordering::Relaxed);
                        waiting.push_back((Instant::now(), stream));
                    }
                }
                waiting.retain_mut(|(since, stream)| {
                    let answered = stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0);
                    counted[1].fetch_add(usize::from(answered), Ordering::Relaxed);
                    !answered && since.elapsed() < WAITS
                });
                thread::sleep(Duration::from_millis(2));
            }
        });
        Self { over, counts, thread: Some(thread) }
    }

    fn counts(&self) -> [usize; 2] {
        [0, 1].map(|which: usize| self.counts[which].load(Ordering::Relaxed))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Sends a hello from this address, and waits for nothing.
fn knock(from: Ipv4Addr, to: SocketAddr, hello: &[u8]) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    // No port waits for late packets.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.connect_timeout(&to.into(), Duration::from_millis(50))?;
    socket.set_nonblocking(true)?;
    let mut stream = TcpStream::from(socket);
    stream.write_all(hello)?;
    Ok(stream)
}

/// Paced requests on an open connection.
struct Phase {
    /// Mean CPU time of the process between a request and its response.
    work: Duration,
    /// Times to the response, in ascending order.
    times: Vec<Duration>,
}

impl Phase {
    fn of(client: &mut Tls, instance: &Instance) -> Self {
        let begun = Instant::now();
        let (mut work, mut times) = (Duration::ZERO, Vec::new());
        for n in 0..REQUESTS {
            thread::sleep((PACE * n).saturating_sub(begun.elapsed()));
            let (asked, before) = (Instant::now(), cpu(instance.process.id()));
            assert_eq!(get(client, "/well").unwrap(), "ok");
            work += cpu(instance.process.id()) - before;
            times.push(asked.elapsed());
        }
        times.sort_unstable();
        Self { work: work / REQUESTS, times }
    }
}

#[test]
fn who_is_served_stays_served_and_who_is_new_comes_in() {
    let home = Home::new();
    let ca = home.ca.certificate();
    let config = trusting(&ca);
    let instance = home.run(&format!(
        "workers = 1\n[access_log]\noutput = \"none\"\n{CERTIFICATE}[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n\
         [[route]]\npath = \"/well\"\nrespond = {{ body = \"ok\" }}\n"
    ));
    let address = instance.address();
    take_cores(&instance);
    let mut client = connect(&config, address, "localhost").unwrap();
    let before = cpu(instance.process.id());
    (0..MEASURED).for_each(|_| drop(connect(&trusting(&ca), address, "localhost").unwrap()));
    let handshake = (cpu(instance.process.id()) - before) / MEASURED;
    let quiet = Phase::of(&mut client, &instance);
    let flood = Flood::begin(address, &config);
    let begun = Instant::now();
    let loud = Phase::of(&mut client, &instance);
    // A client that comes now is served, too.
    let asked = Instant::now();
    let mut newcomer = connect(&config, address, "localhost").unwrap();
    assert_eq!(get(&mut newcomer, "/well").unwrap(), "ok");
    let waited = asked.elapsed();
    let [sent, answered] = flood.counts();
    assert!(answered > 0, "there was no flood");
    let per_second = |count| count as f64 / begun.elapsed().as_secs_f64();
    println!(
        "offered {:.0}/s, answered {:.0}/s, a handshake costs {handshake:?}, a newcomer waits {waited:?}",
        per_second(sent),
        per_second(answered)
    );
    for (name, phase) in [("quiet", &quiet), ("flood", &loud)] {
        let [median, p99] = [50, 99].map(|of| phase.times[phase.times.len() * of / 100]);
        println!("{name}: mean work {:?}, p50 {median:?}, p99 {p99:?}", phase.work);
    }
    drop(flood);
    let bound = quiet.work + AHEAD * handshake;
    assert!(
        loud.work < bound,
        "a request in a flood waits for {:?} of work, {bound:?} are allowed",
        loud.work
    );
    instance.stop();
}
