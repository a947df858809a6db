use super::*;
use crate::Socket;

fn free() -> Address {
    Address::Tcp("127.0.0.1:0".parse().unwrap())
}

/// A change under trial takes no connections from the sockets in use.
#[test]
fn a_socket_beside_an_own_one_takes_no_connection_before_it_is_started() {
    let own = open(&Address::Tcp("0.0.0.0:0".parse().unwrap()), 1).unwrap();
    let port = bound_address(&own[0]).unwrap().port();
    let narrow = SocketAddr::from(([127, 0, 0, 1], port));
    let beside = open_beside_own(&Address::Tcp(narrow), 2).unwrap();
    let accept = |fd: &OwnedFd| accept_with(fd, SocketFlags::CLOEXEC).is_ok();
    let _first = std::net::TcpStream::connect(narrow).unwrap();
    assert!(accept(&own[0]) && beside.iter().all(|fd| !sockopt::socket_acceptconn(fd).unwrap()));
    start(&beside).unwrap();
    // The kernel prefers the more specific address.
    let _second = std::net::TcpStream::connect(narrow).unwrap();
    assert!(beside.iter().any(accept) && !accept(&own[0]));
}

#[test]
fn own_addresses_are_those_of_interfaces() {
    let own = ["127.0.0.1", "::1", "192.0.2.7"].map(|text| text.parse::<IpAddr>().unwrap());
    for (address, wanted) in [
        ("127.0.0.1", true),
        ("127.0.0.77", true),
        ("::ffff:192.0.2.7", true),
        ("::1", true),
        ("192.0.2.8", false),
        ("::2", false),
    ] {
        assert_eq!(is_among(address.parse().unwrap(), own.into_iter()), wanted, "{address}");
    }
    assert!(!is_among(own[0], own[1..].iter().copied()), "no interface has a loopback of IPv4");
    assert!(is_own(own[0]) && !is_own("203.0.113.254".parse().unwrap()));
}

#[test]
fn workers_share_one_port() {
    let all = open(&free(), 3).unwrap();
    let addresses: Vec<_> = all.iter().map(|fd| bound_address(fd).unwrap()).collect();
    assert!(addresses[0].port() != 0 && addresses.iter().all(|address| *address == addresses[0]));
    let taken = open(&Address::Tcp(addresses[0]), 1).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn adopted_sockets_are_for_every_worker() {
    let group = open(&free(), 2).unwrap();
    let address = bound_address(&group[0]).unwrap();
    let more = adopt(group, 4).unwrap();
    assert_eq!(more.len(), 4);
    // Each has a queue of its own.
    assert!(more.iter().all(|fd| bound_address(fd) == Some(address) && shares_address(fd)));
    let ids = |fds: &[OwnedFd]| queues(fds).len();
    assert_eq!(ids(&more), 4);
    assert_eq!(adopt(more, 1).unwrap().len(), 4, "no queue is given up");
    let alone: OwnedFd = std::net::TcpListener::bind("127.0.0.1:0").unwrap().into();
    let shared = adopt(vec![alone], 3).unwrap();
    assert_eq!((shared.len(), ids(&shared)), (3, 1));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let unix: OwnedFd = std::os::unix::net::UnixListener::bind(&path).unwrap().into();
    assert_eq!(address_of(&unix), Some(Address::Unix(path)));
    assert_eq!(ids(&adopt(vec![unix], 2).unwrap()), 1);
    let connected: OwnedFd = std::net::TcpStream::connect(bound_address(&shared[0]).unwrap()).unwrap().into();
    assert!(adopt(vec![connected], 1).is_err());
}

#[test]
fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("s"));
    drop(open(&address, 2).unwrap());
    let live = open(&address, 1).unwrap();
    assert_eq!(open(&address, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(live);
    // A socket with a full backlog is alive, too, and the probe does not block.
    let narrow = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
    let path = dir.path().join("narrow");
    bind(&narrow, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&narrow, 0).unwrap();
    let _waiting = std::os::unix::net::UnixStream::connect(&path).unwrap();
    assert_eq!(open(&Address::Unix(path), 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn a_live_socket_of_another_type_stays_and_a_stale_one_goes() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [SocketType::DGRAM, SocketType::SEQPACKET, SocketType::STREAM] {
        let path = dir.path().join("log");
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let address = Address::Unix(path.clone());
        assert_eq!(open(&address, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let client = socket_with(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK, None).unwrap();
        if kind == SocketType::DGRAM {
            connect(&client, &SocketAddrUnix::new(&path).unwrap()).expect("it can still be reached");
        }
        drop((socket, client));
        drop(open(&address, 1).unwrap());
        unlink(&path).unwrap();
    }
}

#[test]
fn files_that_are_no_sockets_are_never_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (file, folder) = (dir.path().join("file"), dir.path().join("folder"));
    fs::write(&file, "x").unwrap();
    fs::create_dir(&folder).unwrap();
    let live = dir.path().join("live");
    let _live = open(&Address::Unix(live.clone()), 1).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&live, &link).unwrap();
    for path in [&file, &folder, &link] {
        let kind = |outcome: io::Result<()>| outcome.unwrap_err().kind();
        assert_eq!(kind(open(&Address::Unix(path.clone()), 1).map(drop)), io::ErrorKind::AlreadyExists);
        assert_eq!(kind(unlink(path)), io::ErrorKind::AlreadyExists);
        assert!(fs::symlink_metadata(path).is_ok());
    }
    assert_eq!(fs::read(file).unwrap(), b"x");
    unlink(&dir.path().join("absent")).unwrap();
}

#[test]
fn denied_accepts_are_retried_and_broken_sockets_are_not() {
    for denied in [Errno::PERM, Errno::ACCESS, Errno::OPNOTSUPP, Errno::NOSYS] {
        assert!(matches!(fault(denied), AcceptError::Denied(_)), "{denied}");
    }
    for broken in [Errno::BADF, Errno::NOTSOCK, Errno::INVAL] {
        assert!(matches!(fault(broken), AcceptError::Broken(_)), "{broken}");
    }
    assert!(matches!(fault(Errno::CONNABORTED), AcceptError::Gone));
    assert!(matches!(fault(Errno::MFILE), AcceptError::Descriptors));
    assert!(matches!(fault(Errno::NOBUFS), AcceptError::Memory));
}

#[tokio::test]
async fn accept_connect_and_a_short_read_needs_no_second_call() {
    for address in [free(), Address::Unix(tempfile::tempdir().unwrap().keep().join("s"))] {
        let fd = open(&address, 1).unwrap().remove(0);
        let address = bound_address(&fd).map_or(address, Address::Tcp);
        let acceptor = Acceptor::new(fd).unwrap();
        let client = crate::connect::connect_to(&address).await.unwrap();
        let (fd, _) = acceptor.accept().await.unwrap();
        let server = match &address {
            Address::Tcp(_) => Socket::tcp(fd).unwrap(),
            Address::Unix(_) => Socket::unix(fd).unwrap(),
        };
        client.write_all(b"hello").await.unwrap();
        client.shutdown_write().unwrap();
        let mut buffer = [0; 64];
        assert_eq!(server.read(&mut buffer).await.unwrap(), 5);
        assert_eq!(server.read(&mut buffer).await.unwrap(), 0);
        server.write_all(b"bye").await.unwrap();
        drop(server);
        assert_eq!(client.read(&mut buffer).await.unwrap(), 3);
        assert_eq!(client.read(&mut buffer).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_refused_connect_is_an_error() {
    let fd = open(&free(), 1).unwrap().remove(0);
    let address = Address::Tcp(bound_address(&fd).unwrap());
    drop(fd);
    let error = crate::connect::connect_to(&address).await.err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}
