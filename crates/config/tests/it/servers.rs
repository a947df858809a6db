//! What backends and routes to servers say against each other.

use offramp_config::{Environment, parse};

use crate::mistakes::errors;

#[test]
fn tls_to_servers_contradicts_itself_nowhere() {
    let backend = "[[route]]\nbackend = \"x\"\n[backend.x]\nservers = \"a:1\"\n";
    let pin = "pin = \"sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\"";
    let cases = [
        (format!("{backend}tls = {{ {pin}, verify = \"system\" }}"), "`verify` cannot go with `pin`"),
        (format!("{backend}tls = {{ {pin}, name = \"a\" }}"), "`name` cannot go with `pin`"),
        (format!("{backend}tls = {{ pin = \"sha256/abc\" }}"), "is not the hash of a public key"),
        (format!("{backend}tls = {{ pin = [] }}"), "`pin` is empty"),
        (format!("{backend}tls = {{ key = \"a.key\" }}"), "`key` has no effect without `cert`"),
        (format!("{backend}tls = {{ sni = \"10.0.0.7\" }}"), "10.0.0.7"),
        (format!("{backend}tls = {{ verfy = \"a.pem\" }}"), "verify"),
        (
            format!("[[listener]]\nmode = \"http\"\n{backend}protocol = \"auto\""),
            "`auto` has no effect without `tls`",
        ),
        (
            "[[route]]\nbackend = \"x\"\n[backend.x]\nservers = \"unix:/a\"\ntls = true".to_owned(),
            "there is no name for the certificate",
        ),
        ("[[route]]\nserver = \"tls://unix:/a\"".to_owned(), "a Unix socket has no host"),
        (
            "[[route]]\nbackend = \"x\"\n[backend.x]\nservers = \"tls://a:1\"".to_owned(),
            "tls = true in the [backend.NAME]",
        ),
    ];
    for (text, part) in cases {
        let errors = errors(&text);
        assert!(errors.count() == 1 && errors.to_string().contains(part), "{text}\n{errors}");
    }
    let text = format!("{backend}protocol = \"auto\"\ntls = {{ {pin}, name = \"a\", key = \"k\" }}");
    assert!(errors(&text).count() >= 2, "all at once");
}

#[test]
fn servers_of_http2_alone_change_to_no_other_protocol() {
    let text = |protocol: &str| {
        format!(
            "[[listener]]\nmode = \"http\"\n[[route]]\nbackend = \"a\"\nupgrade = \"mqtt\"\n\
             [backend.a]\nservers = \"127.0.0.1:1\"\nprotocol = \"{protocol}\"\n"
        )
    };
    let errors = errors(&text("h2"));
    assert!(errors.to_string().contains("the servers of `a` speak HTTP/2"), "{errors}");
    assert_eq!((errors.count(), errors.problems()[0].place().unwrap().line), (1, 5), "{errors}");
    parse(&text("h1"), "a", &Environment::default()).unwrap();
}
