use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::pin::pin;
use std::task::Poll;

use super::*;
use crate::places::PLACES;

/// Connections that this process has accepted on a port: the kernel shows pending ones without an inode.
fn accepted(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let own = format!("0100007F:{port:04X}");
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Established, and with an inode (proc(5)).
    rows.filter(|row| row.get(1) == Some(&&*own) && row[3] == "01" && row[9] != "0").count()
}

#[test]
fn no_more_connections_are_open_than_there_are_places_however_many_wait() {
    let address = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let fd = listen::open(&address, 1).unwrap().remove(0);
    let bound = listen::bound_address(&fd).unwrap();
    let clients: Vec<TcpStream> = (0..3 * PLACES).map(|_| TcpStream::connect(bound).unwrap()).collect();
    let settings = Settings {
        store: None,
        control: None,
        token: None,
        users: None,
        hosts: Arc::default(),
        identity: None,
        mount: Mount::Grafana,
        log: Log::silent(),
    };
    let (_closing, closes) = watch::channel(false);
    let places = ConnectionSlots::default();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (mut most, mut turns) = (0, 0);
    runtime.block_on(async {
        let acceptor = Acceptor::new(fd).unwrap();
        let mut accepting = pin!(accept(acceptor, settings, &places, &closes));
        let all = std::future::poll_fn(|cx| {
            // Whatever it accepts in a turn is open at the end of the turn.
            let Poll::Pending = accepting.as_mut().poll(cx) else { panic!("the socket broke") };
            most = most.max(accepted(bound.port()));
            turns += 1;
            if places.accepted() >= clients.len() as u64 { Poll::Ready(()) } else { Poll::Pending }
        });
        timeout(Duration::from_secs(60), all).await.unwrap();
    });
    assert!((OF_ONE..=PLACES).contains(&most), "{most} in {turns} turns");
    // Every few have a turn of their own.
    assert!(turns >= clients.len() / BURST, "{turns}");
}
