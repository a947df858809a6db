//! Starts that are refused, with every reason.

use std::net::TcpListener;

use crate::instance::Folder;

#[test]
fn a_start_that_is_refused_names_sockets_and_keys_together() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = Folder::new();
    folder.write(&format!(
        "[metrics]\naddress = \"unix:absent/metrics.sock\"\n[[listener]]\naddress = [\"{address}\", \"unix:tls.sock\"]\n\
         [[certificate]]\ncert = \"absent.pem\"\n[[route]]\nserver = \"127.0.0.1:1\"\n"
    ));
    let error = folder.start().err().unwrap();
    assert_eq!(error.findings().len(), 3, "{error}");
    assert!(error.findings().iter().all(|finding| finding.at.place().is_some()), "{error}");
    for expected in ["ss -ltnp", "absent.pem", "metrics: cannot listen"] {
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
    assert!(!folder.path().join("tls.sock").exists());
}

#[test]
fn an_access_log_that_cannot_be_written_refuses_the_start() {
    let folder = Folder::new();
    folder.write("[[listener]]\naddress = \"127.0.0.1:0\"\n[[route]]\nserver = \"127.0.0.1:1\"\n");
    std::fs::create_dir(folder.path().join("events")).unwrap();
    let error = folder.start().err().unwrap();
    assert!(error.to_string().contains("access log"), "{error}");
}
