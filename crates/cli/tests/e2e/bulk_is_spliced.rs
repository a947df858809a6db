//! What is relayed without TLS of ours is spliced once there is much of it: through pipes, which are few, and gone or
//! empty when nobody needs them. Nothing is lost, doubled or cut off, whoever is slow or leaves.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::channel;
use std::thread;

use crate::support::crowd::tcp;
use crate::support::instance::{Home, Instance, LISTENER, PATIENCE, cause};
use crate::support::skipped::sees_inside_or_skipped;

const MIB: usize = 1 << 20;
/// More than all buffers on the way take.
const MUCH: usize = 64 * MIB;

trait Peer: Read + Write + Send {}
impl<T: Read + Write + Send> Peer for T {}

fn block(at: usize) -> Vec<u8> {
    (0..MIB).map(|byte| (byte / 3 + byte % 251 + at) as u8).collect()
}

/// How many ends of pipes the process has.
fn pipes(instance: &Instance) -> usize {
    let folder = format!("/proc/{}/fd", instance.process.id());
    let links = fs::read_dir(folder).unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|target| target.to_string_lossy().starts_with("pipe:")).count()
}

fn instance(server: &str) -> Instance {
    Home::new().run(&format!("{LISTENER}tls = false\n[[route]]\nserver = \"{server}\"\n"))
}

/// The client sends much, half-closes, and hears that all of it arrived. The server reads a little, and the rest when
/// it is told to. `before` is how many ends of pipes there were without anything to relay.
fn upload(instance: &Instance, before: usize, accept: impl FnOnce() -> Box<dyn Peer> + Send + 'static) {
    let (go, told) = channel();
    let server = thread::spawn(move || {
        let mut peer = accept();
        let mut bytes = vec![0; MIB];
        for at in 0..MUCH / MIB {
            if at == 16 {
                told.recv_timeout(PATIENCE).unwrap();
            }
            peer.read_exact(&mut bytes).unwrap();
            assert!(bytes == block(at), "MiB {at} is another one");
        }
        assert_eq!(peer.read(&mut bytes).unwrap(), 0, "nothing is doubled");
        peer.write_all(b"all of it").unwrap();
    });
    let mut client = tcp(instance.address()).unwrap();
    let mut writer = client.try_clone().unwrap();
    let sending = thread::spawn(move || {
        (0..MUCH / MIB).for_each(|at| writer.write_all(&block(at)).unwrap());
        writer.shutdown(Shutdown::Write).unwrap();
    });
    // What nobody takes waits in a pipe.
    instance.until("a pipe", || (pipes(instance) >= before + 2).then_some(()));
    go.send(()).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"all of it");
    sending.join().unwrap();
    server.join().unwrap();
}

#[test]
fn much_goes_through_a_pipe_and_arrives_whole() {
    if !sees_inside_or_skipped() {
        return;
    }
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let instance = instance(&server.local_addr().unwrap().to_string());
    let before = pipes(&instance);
    for round in 1..=3 {
        let server = server.try_clone().unwrap();
        upload(&instance, before, move || Box::new(server.accept().unwrap().0));
        let event = instance.events_of(round).pop().unwrap();
        let bytes = (event["bytes_from_client"].as_u64(), event["bytes_to_client"].as_u64());
        assert_eq!((cause(&event), bytes), ("client_closed", (Some(MUCH as u64), Some(9))), "{event}");
    }
    instance.stop();
}

#[test]
fn unix_sockets_are_spliced_too() {
    if !sees_inside_or_skipped() {
        return;
    }
    let home = Home::new();
    let path = home.file("server.sock");
    let server = UnixListener::bind(&path).unwrap();
    let instance =
        home.run(&format!("{LISTENER}tls = false\n[[route]]\nserver = \"unix:{}\"\n", path.display()));
    let before = pipes(&instance);
    upload(&instance, before, move || Box::new(server.accept().unwrap().0));
    instance.stop();
}

/// Connections that end while bytes are in their pipes leave none behind.
#[test]
fn pipes_do_not_outlive_their_connections() {
    if !sees_inside_or_skipped() {
        return;
    }
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let instance = instance(&server.local_addr().unwrap().to_string());
    let before = pipes(&instance);
    for round in 1..=30 {
        let mut client = tcp(instance.address()).unwrap();
        let (mut peer, _) = server.accept().unwrap();
        let writer = thread::spawn(move || {
            // Until the other side is gone.
            while client.write_all(&block(0)).is_ok() {}
        });
        peer.read_exact(&mut vec![0; 2 * MIB]).unwrap();
        instance.until("a pipe", || (pipes(&instance) > before).then_some(()));
        drop(peer);
        writer.join().unwrap();
        instance.events_of(round);
    }
    // Each worker keeps a few empty ones.
    assert!(pipes(&instance) <= before + 8, "{} after {before}", pipes(&instance));
    for event in instance.stop() {
        // Whether the reset is seen as one depends on whether something is just written.
        assert!(["server_reset", "server_closed"].contains(&cause(&event)), "{event}");
    }
}
