//! The PROXY protocol towards servers: every field of the header, and receivers that others wrote.

use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use offramp_testkit::ca::{Leaf, Name};
use offramp_testkit::process::{Process, Ready, Source, free_port, require};
use offramp_testkit::server::{Listen, Recording, Server, apps};
use offramp_testkit::tls_client::{Client, Options, Suite, Version as TlsVersion};
use offramp_wire::ParseStep;
use offramp_wire::proxy::{
    CLIENT_CERT_CONN, CLIENT_CERT_SESS, CLIENT_SSL, Header, ProxyAddresses, ProxyHeaderVersion, kind, parse,
};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

use crate::support::crowd::{
    Tls, close, connect, echo, get, offering, secure, tcp, trusting, with_certificate,
};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, PATIENCE, text};

/// A server that records, and Offramp before it with this in its only route.
fn recorded(home: Home, route: &str) -> (Server, Recording, Instance) {
    let (server, recording) = Recording::start(&Listen::Ipv4).unwrap();
    let instance =
        home.run(&format!("{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{}\"\n{route}\n", server.address()));
    (server, recording, instance)
}

/// Connects, waits until the header has come back (the server echoes it), and gives the client's address.
fn visit(instance: &Instance, config: &Arc<ClientConfig>) -> (Tls, SocketAddr) {
    let stream = tcp(instance.address()).unwrap();
    let client = stream.local_addr().unwrap();
    let mut tls = secure(config, stream, "app.example.org").unwrap();
    assert!(tls.read(&mut [0; 4096]).unwrap() > 0);
    (tls, client)
}

/// The bytes of the UUID in an event's `id`.
fn id(event: &Value) -> Vec<u8> {
    let digits: Vec<u8> = text(event, "id").bytes().filter(|&byte| byte != b'-').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[track_caller]
fn parsed(bytes: &[u8]) -> Header<'_> {
    match parse(bytes) {
        ParseStep::Done { value, consumed } if consumed == bytes.len() => value,
        other => panic!("{other:?} of {}", bytes.escape_ascii()),
    }
}

#[test]
fn version_2_tells_everything() {
    let home = Home::new();
    let names = [Name::Dns("backup.example.org".into())];
    let own = home.ca.issue("client", &Leaf::client("backup", &names)).unwrap();
    let route = "send_proxy = { version = \"v2\", crc32c = true, client_certificate = true }\n\
                 alpn = [\"redis\"]\nclient_auth = { mode = \"required\", ca = \"ca.pem\" }";
    let (_server, recording, instance) = recorded(home, route);
    let ca = instance.home.ca.certificate();
    let config = offering(&with_certificate(&ca, &own.chain, &own.key), &["other", "redis"]);
    for resumed in [false, true] {
        let (tls, client) = visit(&instance, &config);
        assert_eq!(tls.conn.handshake_kind().unwrap() == rustls::HandshakeKind::Resumed, resumed);
        drop(tls);
        let event = instance.events_of(1 + usize::from(resumed)).pop().unwrap();
        let bytes = recording.snapshot().pop().unwrap();
        let header = parsed(&bytes);
        assert_eq!(header.version, ProxyHeaderVersion::V2);
        let expected = ProxyAddresses::Tcp { source: client, destination: instance.address() };
        assert_eq!(header.addresses, expected);
        let tlvs = header.tlvs;
        assert_eq!((tlvs.alpn(), tlvs.authority()), (Some(&b"redis"[..]), Some("app.example.org")));
        assert_eq!(tlvs.unique_id(), Some(&id(&event)[..]), "{event}");
        // The parser has compared it with its own.
        assert!(tlvs.find(kind::CRC32C).is_some_and(|sum| sum.len() == 4));
        let tls = tlvs.tls().unwrap();
        let shown = if resumed { 0 } else { CLIENT_CERT_CONN };
        assert_eq!(tls.client, CLIENT_SSL | CLIENT_CERT_SESS | shown);
        assert_eq!(tls.verify, 0);
        assert_eq!((tls.version, tls.cipher), (Some("TLSv1.3"), Some("TLS_AES_128_GCM_SHA256")));
        assert_eq!(tls.group, Some("X25519MLKEM768"));
        assert_eq!(tls.group.unwrap(), text(&event, "tls_group"));
        let scheme = (!resumed).then_some("ecdsa_secp256r1_sha256");
        assert_eq!(tls.signature_scheme, scheme);
        assert_eq!(event["tls_scheme"].as_str(), scheme);
        assert_eq!((tls.common_name, text(&event, "client_cn")), (Some("backup"), "backup"));
        assert_eq!((tls.key_algorithm, tls.signature_algorithm), (Some("EC256"), Some("ecdsa-with-SHA256")));
        let certificate = CertificateDer::from_pem_file(&own.cert).unwrap();
        assert_eq!(tls.client_certificate, Some(certificate.as_ref()));
    }
    instance.stop();
}

#[test]
fn version_2_leaves_out_what_there_is_not() {
    let (_server, recording, instance) = recorded(Home::new(), "send_proxy = \"v2\"");
    let (tls, client) = visit(&instance, &trusting(&instance.home.ca.certificate()));
    drop(tls);
    instance.events_of(1);
    let bytes = recording.snapshot().pop().unwrap();
    let header = parsed(&bytes);
    assert_eq!(header.addresses, ProxyAddresses::Tcp { source: client, destination: instance.address() });
    assert_eq!((header.tlvs.alpn(), header.tlvs.find(kind::CRC32C)), (None, None));
    let tls = header.tlvs.tls().unwrap();
    assert_eq!((tls.client, tls.common_name, tls.client_certificate), (CLIENT_SSL, None, None));
    // Not zero: no certificate was verified.
    assert_ne!(tls.verify, 0);
    instance.stop();
}

/// The client's TLS follows the header as it came, and the header tells what of it is in clear.
#[test]
fn a_passthrough_server_gets_a_header_too() {
    for (version, v2) in [("\"v1\"", false), ("\"v2\"", true), ("{ version = \"v2\", crc32c = true }", true)]
    {
        let (server, recording) = Recording::start(&Listen::Ipv4).unwrap();
        let instance = Home::new().run(&format!(
            "{CERTIFICATE}{LISTENER}[[route]]\npassthrough = \"{}\"\nsend_proxy = {version}\n",
            server.address()
        ));
        let stream = tcp(instance.address()).unwrap();
        let client = stream.local_addr().unwrap();
        // What comes back is no TLS: the server echoes.
        assert!(secure(&trusting(&instance.home.ca.certificate()), stream, "app.example.org").is_err());
        let event = instance.events_of(1).remove(0);
        let bytes = recording.snapshot().pop().unwrap();
        let ParseStep::Done { value: header, consumed } = parse(&bytes) else {
            panic!("{}", bytes.escape_ascii())
        };
        assert_eq!(header.version, if v2 { ProxyHeaderVersion::V2 } else { ProxyHeaderVersion::V1 });
        assert_eq!(header.addresses, ProxyAddresses::Tcp { source: client, destination: instance.address() });
        assert!(bytes[consumed..].starts_with(b"\x16\x03"), "the ClientHello follows");
        // The header is not the client's.
        assert!(event["bytes_from_client"].as_u64() < Some(bytes.len() as u64), "{event}");
        if v2 {
            let tlvs = header.tlvs;
            assert_eq!((tlvs.authority(), tlvs.alpn()), (Some("app.example.org"), None));
            assert_eq!(tlvs.unique_id(), Some(&id(&event)[..]), "{event}");
            // TLS does not end here, so that there is nothing to say of it.
            assert!(tlvs.tls().is_none());
        }
        instance.stop();
    }
}

#[test]
fn version_1_is_one_line() {
    let (_server, recording, instance) = recorded(Home::new(), "send_proxy = \"v1\"");
    let (tls, client) = visit(&instance, &trusting(&instance.home.ca.certificate()));
    drop(tls);
    let (from, to) = (client.port(), instance.address().port());
    let line = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {from} {to}\r\n");
    let all = recording.wait_until(PATIENCE, |all| all.iter().any(|bytes| !bytes.is_empty())).unwrap();
    assert_eq!(String::from_utf8_lossy(&all[0]), line);
    instance.stop();
}

#[test]
fn every_kind_of_address_has_its_form() {
    let (server, recording) = Recording::start(&Listen::Ipv4).unwrap();
    let instance = Home::new().run(&format!(
        "{CERTIFICATE}[[listener]]\naddress = [\"[::1]:0\", \"unix:tls.sock\"]\n\
         [[route]]\nserver = \"{}\"\nsend_proxy = \"v2\"\n",
        server.address()
    ));
    let listener = instance.until("the address", || {
        let lines = instance.process.lines(Source::Stderr);
        let mut addresses = lines.iter().filter_map(|line| line.split("address=").nth(1));
        addresses.find(|at| at.contains("[::1]"))?.trim_matches('"').parse().ok()
    });
    let stream = tcp(listener).unwrap();
    let client = stream.local_addr().unwrap();
    drop(secure(&trusting(&instance.home.ca.certificate()), stream, "localhost").unwrap());
    instance.events_of(1);

    // TLS 1.2 has names of its own for suites.
    let suite = Suite::ALL.into_iter().find(|suite| suite.version == TlsVersion::Tls12).unwrap();
    let stream = UnixStream::connect(instance.home.file("tls.sock")).unwrap();
    let mut old = Client::new(stream, Options::new(suite)).unwrap();
    old.handshake().unwrap();
    drop(old);
    let event = instance.events_of(2).pop().unwrap();

    let whole = |all: &[Vec<u8>]| all.iter().filter(|one| !one.is_empty()).count() == 2;
    let all = recording.wait_until(PATIENCE, whole).unwrap();
    let (inet, unix) = (parsed(&all[0]), parsed(&all[1]));
    assert_eq!(inet.addresses, ProxyAddresses::Tcp { source: client, destination: listener });
    assert_eq!(unix.addresses, ProxyAddresses::Unix { source: b"", destination: b"" });
    let tls = unix.tlvs.tls().unwrap();
    assert_eq!((tls.version, text(&event, "tls_version")), (Some("TLSv1.2"), "TLSv1.2"));
    assert!(tls.cipher.unwrap().starts_with("ECDHE-ECDSA-"), "{tls:?}");
    assert!(text(&event, "tls_suite").starts_with("TLS_ECDHE_ECDSA_WITH_"), "{event}");
    assert_eq!(text(&event, "client"), "unix");
    instance.stop();
}

/// Sends each of our headers to a receiver of another make, which answers what it has read: `expected` of
/// the version, the client, the listener and the event. The path that is asked for is the version.
fn agrees(receiver: SocketAddr, expected: impl Fn(&str, SocketAddr, SocketAddr, &Value) -> String) {
    let headers = [("v1", "\"v1\""), ("v2", "\"v2\""), ("v2", "{ version = \"v2\", crc32c = true }")];
    for (version, header) in headers {
        let instance = Home::new().run(&format!(
            "{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{receiver}\"\nsend_proxy = {header}\n"
        ));
        let stream = tcp(instance.address()).unwrap();
        let client = stream.local_addr().unwrap();
        let config = trusting(&instance.home.ca.certificate());
        let mut tls = secure(&config, stream, "app.example.org").unwrap();
        let answer = get(&mut tls, &format!("/{version}")).unwrap();
        drop(tls);
        let event = instance.events_of(1).remove(0);
        assert_eq!(answer.trim_end(), expected(version, client, instance.address(), &event), "{header}");
        instance.stop();
    }
}

#[test]
fn haproxy_reads_them() {
    let haproxy = require("haproxy", "haproxy");
    let home = Home::new();
    let port = free_port();
    let text = format!(
        "global\n  maxconn 100\n\ndefaults\n  mode http\n  timeout client 30s\n  timeout server 30s\n  timeout connect 5s\n\n\
         frontend receiver\n  bind 127.0.0.1:{port} accept-proxy\n\
         \x20 http-request return status 200 content-type text/plain lf-string \"%[src]:%[src_port] %[dst]:%[dst_port] %[fc_pp_authority] %[fc_pp_unique_id,hex]\" if {{ path /v2 }}\n\
         \x20 http-request return status 200 content-type text/plain lf-string \"%[src]:%[src_port] %[dst]:%[dst_port]\"\n"
    );
    std::fs::write(home.file("haproxy.cfg"), text).unwrap();
    let mut command = Command::new(haproxy);
    command.args(["-db", "-f"]).arg(home.file("haproxy.cfg"));
    let receiver = Process::start(command, Duration::from_secs(60)).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    receiver.wait_for(&Ready::Tcp(address), PATIENCE).unwrap();
    agrees(address, |version, client, listener, event| {
        if version == "v1" {
            return format!("{client} {listener}");
        }
        let id: String = id(event).iter().map(|byte| format!("{byte:02X}")).collect();
        format!("{client} {listener} app.example.org {id}")
    });
}

#[test]
fn nginx_reads_them() {
    let nginx = require("nginx", "nginx-light");
    let home = Home::new();
    let port = free_port();
    let place = home.path().display();
    let text = format!(
        "daemon off;\nmaster_process off;\npid {place}/nginx.pid;\nerror_log stderr;\nevents {{ worker_connections 64; }}\n\
         http {{\n  access_log off;\n  client_body_temp_path {place}/a;\n  proxy_temp_path {place}/b;\n  fastcgi_temp_path {place}/c;\n  uwsgi_temp_path {place}/d;\n  scgi_temp_path {place}/e;\n\
         server {{\n    listen 127.0.0.1:{port} proxy_protocol;\n    default_type text/plain;\n\
         return 200 \"$proxy_protocol_addr:$proxy_protocol_port $proxy_protocol_server_addr:$proxy_protocol_server_port\";\n  }}\n}}\n"
    );
    std::fs::write(home.file("nginx.conf"), text).unwrap();
    let mut command = Command::new(nginx);
    command.arg("-p").arg(home.path()).arg("-c").arg(home.file("nginx.conf"));
    let receiver = Process::start(command, Duration::from_secs(60)).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    receiver.wait_for(&Ready::Tcp(address), PATIENCE).unwrap();
    agrees(address, |_, client, listener, _| format!("{client} {listener}"));
}

/// The server of a route with `send_proxy` takes what comes first for the header. It must not be the client's own
/// bytes, whatever a header that we believe says: here an abstract Unix address of any bytes, and one that
/// fills its field.
#[test]
fn a_header_never_vanishes() {
    let (server, recording) = Recording::start(&Listen::Ipv4).unwrap();
    let instance = Home::new().run(&format!(
        "{CERTIFICATE}[[listener]]\naddress = \"127.0.0.1:0\"\naccept_proxy = [\"127.0.0.0/24\"]\n\
         [[route]]\nserver = \"{}\"\nsend_proxy = \"v2\"\n",
        server.address()
    ));
    let config = trusting(&instance.home.ca.certificate());
    let forged = b"PROXY TCP4 6.6.6.6 6.6.6.6 6 6\r\n";
    for (number, source) in [[&b"\0"[..], &[0xff; 107]].concat(), vec![b'x'; 108]].into_iter().enumerate() {
        let mut stream = tcp(instance.address()).unwrap();
        let block = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x31\0\xd8"[..], &source, b"/run/it", &[0; 101]].concat();
        std::io::Write::write_all(&mut stream, &block).unwrap();
        let mut tls = secure(&config, stream, "app.example.org").unwrap();
        std::io::Write::write_all(&mut tls, forged).unwrap();
        let whole = |all: &[Vec<u8>]| all.get(number).is_some_and(|bytes| bytes.ends_with(forged));
        let all = recording.wait_until(PATIENCE, whole).unwrap();
        let header = parsed(all[number].strip_suffix(forged).unwrap());
        assert_eq!(header.addresses, ProxyAddresses::Unix { source: &source, destination: b"/run/it" });
        drop(tls);
        let event = instance.events_of(number + 1).pop().unwrap();
        assert!(text(&event, "client").starts_with("unix:"), "{event}");
    }
    instance.stop();
}

#[test]
fn headers_from_those_who_are_believed_go_on() {
    let (server, recording) = Recording::start(&Listen::Ipv4).unwrap();
    let plain = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = Home::new().run(&format!(
        "{CERTIFICATE}[[listener]]\naddress = \"127.0.0.1:0\"\naccept_proxy = [\"127.0.0.0/24\"]\n\
         [[route]]\nhost = \"localhost\"\nserver = \"{}\"\n\
         [[route]]\nserver = \"{}\"\nsend_proxy = \"v1\"\n",
        plain.address(),
        server.address()
    ));
    let config = trusting(&instance.home.ca.certificate());
    let block =
        [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &[192, 0, 2, 9, 198, 51, 100, 1, 0x12, 0x34, 1, 187]];
    let line = b"PROXY TCP4 192.0.2.9 198.51.100.1 4660 443\r\n";
    for (number, header) in [&line[..], &block.concat()].into_iter().enumerate() {
        let mut stream = tcp(instance.address()).unwrap();
        let peer = stream.local_addr().unwrap();
        std::io::Write::write_all(&mut stream, header).unwrap();
        let mut tls = secure(&config, stream, "app.example.org").unwrap();
        let mut told = [0; 200];
        let length = tls.read(&mut told).unwrap();
        let told = String::from_utf8_lossy(&told[..length]);
        // The destination too is that of the first header, not the address of this proxy.
        assert_eq!(told.as_bytes(), line);
        drop(tls);
        let event = instance.events_of(number + 1).pop().unwrap();
        assert_eq!((text(&event, "client"), &event["client_port"]), ("192.0.2.9", &4660.into()), "{event}");
        assert_eq!(
            (text(&event, "peer"), &event["peer_port"]),
            ("127.0.0.1", &peer.port().into()),
            "{event}"
        );
    }
    assert_eq!(recording.snapshot().len(), 2);

    // Of its own accord, as a health check: the client is who it is.
    let mut stream = tcp(instance.address()).unwrap();
    let peer = stream.local_addr().unwrap();
    std::io::Write::write_all(&mut stream, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").unwrap();
    let mut tls = secure(&config, stream, "localhost").unwrap();
    echo(&mut tls, "hello").unwrap();
    close(tls).unwrap();
    let event = instance.events_of(3).pop().unwrap();
    assert_eq!(
        (text(&event, "client"), &event["client_port"]),
        ("127.0.0.1", &peer.port().into()),
        "{event}"
    );
    // Without a header there is no way in.
    assert!(connect(&config, instance.address(), "localhost").is_err());
    instance.stop();
}
