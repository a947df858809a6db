//! `[acme.NAME]` and certificates of authorities: what they can do, and what is refused.

use offramp_config::{Environment, parse};

use crate::mistakes::messages;

#[test]
fn what_no_authority_can_do_is_told() {
    let route = "[[route]]\nhost = \"a.example.org\"\nserver = \"h:1\"\n";
    let certificate = |rest: &str| format!("{route}[[certificate]]\nacme = \"letsencrypt\"\n{rest}\n");
    let plain =
        "[[listener]]\naddress = \"[::]:80\"\nmode = \"http\"\ntls = false\n[[route]]\nserver = \"h:1\"\n";
    let cases = [
        (
            certificate("names = \"localhost\""),
            "no public authority may issue for `localhost`: it has one label only",
        ),
        (
            certificate("names = \"nas.lan\""),
            "no public authority may issue for `nas.lan`: its domain is set aside",
        ),
        (certificate("names = \"*.home.arpa\""), "no public authority may issue for `*.home.arpa`"),
        (
            certificate("names = \"10.0.0.1\""),
            "`10.0.0.1` is an address: certificates of an authority are ordered for names only",
        ),
        (certificate("names = \"*.example.org\""), "the wildcard `*.example.org` needs the challenge dns-01"),
        (certificate("local = true"), "a certificate of an authority has no `local`"),
        (format!("{route}[[certificate]]\nacme = \"nobody\"\n"), "there is no [acme.nobody]"),
        (
            format!("{route}[[certificate]]\nacme = \"zerossl\"\n"),
            "zerossl issues only for accounts that exist there",
        ),
        (
            "[[route]]\nserver = \"h:1\"\n[[certificate]]\nacme = \"letsencrypt\"\n".into(),
            "no route has a host",
        ),
        (format!("{route}[acme.google]\nemail = \"me@example.org\"\n"), "google issues only for accounts"),
        (format!("{route}[acme.x]\nemail = \"me@example.org\"\n"), "[acme.x] has no `directory`"),
        (format!("{route}[acme.letsencrypt]\nemail = \"me\"\n"), "`me` is no e-mail address"),
        (format!("{route}[acme.letsencrypt]\nchallenge = \"dns-01\"\n"), "needs a way to set TXT records"),
        (format!("{route}[acme.letsencrypt]\ndns_wait = \"1s\"\n"), "`dns_wait` has no effect without"),
        (
            format!("{route}[tls]\ncertificates = \"acme\"\n[acme.letsencrypt]\nchallenge = \"http-01\"\n"),
            "the challenge http-01 of letsencrypt needs a listener of plain HTTP on port 80",
        ),
        (format!("{plain}[tls]\ncertificates = \"acme\"\n"), "needs a listener with TLS on port 443"),
        (
            format!(
                "{route}[tls]\ncertificates = \"acme\"\n[acme.letsencrypt]\n[acme.letsencrypt-staging]\n"
            ),
            "there are several authorities",
        ),
        (format!("{route}[tls]\nacme = \"letsencrypt\"\n"), "certificates = \"acme\""),
        (
            format!("{route}[[certificate]]\ncert = \"a.pem\"\nkey_type = \"p256\"\n"),
            "`key_type` has no effect without `acme`",
        ),
        (certificate("on_demand = {}"), "`on_demand` allows no name to get a certificate"),
        (
            certificate("on_demand = { names = \"*.example.org\" }\nnames = \"a.example.org\""),
            "`names` are ordered at once",
        ),
        (certificate("on_demand = { names = \"*.lan\" }"), "no public authority may issue for `*.lan`"),
        (
            certificate("on_demand = { ask = \"https://a.example/\" }"),
            "is no URL to ask: it must begin with http://",
        ),
        (certificate("on_demand = { names = \"a.example.org\", rate = \"0/h\" }"), "`0/h` is not a rate"),
        (
            certificate("on_demand = { names = \"a.example.org\" }\ndefault = true"),
            "a certificate on demand is for its own name only",
        ),
        (
            format!(
                "{route}[[certificate]]\ncert = \"a.pem\"\non_demand = {{ names = \"a.example.org\" }}\n"
            ),
            "`on_demand` has no effect without `acme`",
        ),
        (
            format!("{route}[acme.x]\ndirectory = \"http://a.example/dir\"\n"),
            "is no directory of an authority: ACME is spoken over https",
        ),
    ];
    for (text, expected) in cases {
        let told = messages(&text);
        assert!(told.contains(expected), "{text}\n{told}");
    }
}

#[test]
fn what_authorities_can_do_is_no_mistake() {
    let route = "[[route]]\nhost = [\"a.example.org\", \"*.example.org\"]\nserver = \"h:1\"\n";
    let hook = "[acme.letsencrypt]\nchallenge = \"dns-01\"\ndns_hook = \"hook\"\n";
    let private = "[acme.own]\ndirectory = \"https://ca.lan/dir\"\nca = \"ca.pem\"\n";
    let (config, _) = {
        let text = format!("{route}{hook}{private}[[certificate]]\nacme = \"letsencrypt\"\n");
        parse(&text, "f.toml", &Environment::default()).unwrap()
    };
    assert_eq!(config.authorities.len(), 2);
    let text = format!("{route}{private}[[certificate]]\nacme = \"own\"\nnames = \"nas.lan\"\n");
    parse(&text, "f.toml", &Environment::default()).unwrap();
    // Wildcards on demand are names one by one, for which any challenge will do.
    let text = "[[route]]\nserver = \"h:1\"\n[[certificate]]\nacme = \"letsencrypt\"\n\
                on_demand = { names = \"*.example.org\", ask = \"http://[::1]:3000/ask\" }\n";
    let (config, _) = parse(text, "f.toml", &Environment::default()).unwrap();
    assert!(config.default_certificate().is_none());
    // The smallest file: one line, and the authority is known.
    let text = "[[route]]\nhost = \"a.example.org\"\nserver = \"h:1\"\n[tls]\ncertificates = \"acme\"\n";
    let (config, _) = parse(text, "f.toml", &Environment::default()).unwrap();
    assert_eq!(config.authorities[0].name.as_str(), "letsencrypt");
    assert!(config.certificates.is_empty() && config.authorities[0].email.is_none());
}
