//! The metrics endpoint, and that it moves.

use std::io::{Read, Write};

use offramp_net::Address;
use offramp_testkit::server::Address as Place;

use crate::instance::Folder;

fn get(address: &Address, request: &str) -> String {
    let place = match address {
        Address::Tcp(address) => Place::Tcp(*address),
        Address::Unix(path) => Place::Unix(path.clone()),
    };
    let mut stream = place.connect().unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_page_is_served_and_moves_on_reload() {
    let folder = Folder::new();
    let rest = "[[listener]]\naddress = \"127.0.0.1:0\"\n[[route]]\nserver = \"127.0.0.1:1\"\n";
    folder.write(&format!("[metrics]\naddress = \"127.0.0.1:0\"\n{rest}"));
    let instance = folder.start().unwrap();
    let first = instance.metrics.clone().unwrap();
    let page = get(&first, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("offramp_"), "{page}");
    assert!(get(&first, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(get(&first, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").contains("405"));

    let server = "offramp_server_up{backend=\"127.0.0.1:1\",server=\"127.0.0.1:1\"} 1\n";
    assert!(page.contains(server), "{page}");
    let accept = "Accept: application/openmetrics-text";
    let open = get(&first, &format!("GET /metrics?created HTTP/1.1\r\nHost: x\r\n{accept}\r\n\r\n"));
    assert!(open.contains("\nofframp_connections_created ") && open.ends_with("# EOF\n"), "{open}");

    let second = folder.path().join("metrics.sock");
    folder.write(&format!("[metrics]\naddress = \"unix:metrics.sock\"\n{rest}"));
    instance.reload().unwrap();
    let page = get(&Address::Unix(second.clone()), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    drop(instance);
    assert!(!second.exists());
}
