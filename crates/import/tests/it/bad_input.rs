//! Bad input: each mistake ends an import with its place and a remedy, and no secret is shown.

use std::collections::BTreeMap;
use std::path::PathBuf;

use offramp_import::{DiskFiles, Fate, ForeignLanguage, ImportError, Imported, import};

const MAIN: &str = "/etc/nginx/nginx.conf";

fn of(files: &[(&str, &[u8])]) -> Result<Imported, ImportError> {
    let files: BTreeMap<PathBuf, Vec<u8>> =
        files.iter().map(|(path, text)| (PathBuf::from(path), text.to_vec())).collect();
    import(ForeignLanguage::Nginx, &[PathBuf::from(MAIN)], &files)
}

#[test]
fn mistakes_of_syntax_have_file_line_column_and_remedy() {
    for (text, at, message, help) in [
        ("server {\n  listen 80\n}\n", "2:3", "`listen` has no `;`", "add `;`"),
        ("http {\n server {\n listen 80;\n }\n", "1:1", "the block of `http` has no `}`", "add it"),
        ("http { }\n}\n", "2:1", "a `}` without its `{`", "remove it"),
        ("server { listen 80; return 200 \"x; }\n", "1:32", "a quote that is not closed", "same quote"),
        ("{ listen 80; }", "1:1", "a `{` without a name", "name of a block"),
        ("events {}\n;\n", "2:1", "a `;` without a directive", "remove it"),
    ] {
        let error = of(&[(MAIN, text.as_bytes())]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{MAIN}:{at}: ")), "{text}\n{error}");
        assert!(error.contains(message) && error.contains(help), "{text}\n{error}");
    }
}

#[test]
fn a_mistake_in_an_included_file_has_its_place() {
    let error = of(&[
        (MAIN, b"http { include conf.d/*.conf; }"),
        ("/etc/nginx/conf.d/a.conf", b"server {\n listen 80;\n"),
    ]);
    assert!(error.unwrap_err().to_string().starts_with("/etc/nginx/conf.d/a.conf:1:1: "));
}

#[test]
fn files_that_include_each_other_are_refused() {
    let error = of(&[(MAIN, b"include a.conf;"), ("/etc/nginx/a.conf", b"\ninclude nginx.conf;")])
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("/etc/nginx/a.conf:2:1: /etc/nginx/nginx.conf includes itself"), "{error}");
}

#[test]
fn a_missing_include_is_left_out_and_named() {
    let text = b"include gone.conf; server { listen 80; return 204; }";
    let imported = of(&[(MAIN, text)]).unwrap();
    assert_eq!(imported.report.left_out(), 1, "{}", imported.report.text(true));
    assert!(imported.toml.contains("cannot read /etc/nginx/gone.conf"), "{}", imported.toml);
}

#[test]
fn binary_files_are_refused() {
    for bytes in [b"\x7fELF\0\0".as_slice(), b"server {\n\xff\xfe }"] {
        let error = of(&[(MAIN, bytes)]).unwrap_err();
        assert!(error.at.is_some(), "{error}");
    }
    assert!(import(ForeignLanguage::Nginx, &["/nowhere/nginx.conf".into()], &DiskFiles).is_err());
}

#[test]
fn nothing_at_all_is_a_failure() {
    for text in
        ["", "# only a comment\n", "events {}", "server { listen 80; location / { fastcgi_pass x; } }"]
    {
        let error = of(&[(MAIN, text.as_bytes())]).unwrap_err().to_string();
        assert!(error.contains("nothing that clients could reach"), "{text}\n{error}");
    }
}

#[test]
fn blocks_in_each_other_have_a_bound() {
    let text = "a {".repeat(100_000);
    assert!(of(&[(MAIN, text.as_bytes())]).unwrap_err().message.contains("more than 50 blocks"));
}

#[test]
fn secrets_are_in_no_report() {
    let text = b"server { listen 80; location / {
        proxy_pass http://user:hunter2@10.0.0.1;
        proxy_set_header Authorization \"Basic hunter2\"; proxy_set_header X-Api-Key hunter2;
        add_header Set-Cookie \"session=hunter2\"; unknown_token hunter2; nonsense password hunter2; }
        location /b { return 204; } }";
    let imported = of(&[(MAIN, text)]).unwrap();
    assert!(!imported.report.text(true).contains("hunter2"), "{}", imported.report.text(true));
    assert!(!imported.toml.contains("hunter2"), "{}", imported.toml);
}

#[test]
fn a_rule_that_cannot_be_said_closes_its_route() {
    for rule in [
        "auth_request /auth;",
        "auth_basic x; auth_basic_user_file $file;",
        "allow 10.0.0.1; deny 10.0.0.0/8;",
        "deny all;",
        "allow unix:; deny all;",
        "auth_jwt x;",
        "ssl_verify_client on;",
        "if ($http_x != y) { return 403; }",
        "location ~ /secret/ { deny all; }",
    ] {
        let text = format!("server {{ listen 80; {rule} location / {{ proxy_pass http://10.0.0.1; }} }}");
        let imported = of(&[(MAIN, text.as_bytes())]).unwrap();
        assert!(imported.toml.contains("respond = { status = 403 }"), "{rule}\n{}", imported.toml);
        assert!(!imported.toml.contains("10.0.0.1:80"), "{rule}\n{}", imported.toml);
    }
}

/// Imports one file of another language.
fn alone(language: ForeignLanguage, text: &str) -> Result<Imported, ImportError> {
    let path = PathBuf::from("/etc/other.cfg");
    let files = BTreeMap::from([(path.clone(), text.as_bytes().to_vec())]);
    import(language, &[path], &files)
}

#[test]
fn mistakes_of_other_languages_have_their_place() {
    use ForeignLanguage::{Haproxy, Hitch};
    for (language, text, at, message) in [
        (Haproxy, "bind :80\n", "1:1", "`bind` stands before any section"),
        (Haproxy, "frontend a\n  bind \":80\n", "2:8", "a quote that is not closed"),
        (Hitch, "frontend = {\n host = \"*\"\n", "1:12", "a block without its `}`"),
        (Hitch, "backend\n", "1:1", "`backend` has no value"),
        (Hitch, "= x\n", "1:1", "no name of a setting"),
        (Hitch, "pem-file = \"x\n", "1:12", "a quote that is not closed"),
    ] {
        let error = alone(language, text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("/etc/other.cfg:{at}: ")), "{text}\n{error}");
        assert!(error.contains(message), "{text}\n{error}");
    }
    for language in [Haproxy, Hitch] {
        let error = alone(language, "").unwrap_err().to_string();
        assert!(error.contains("nothing that clients could reach"), "{error}");
    }
}

#[test]
fn a_rule_of_haproxy_that_cannot_be_said_closes_its_route() {
    for rule in [
        "http-request deny if { req.hdr(X-Token) -m found }",
        "http-request deny unless { src -f /etc/haproxy/office.lst }",
        "http-request auth unless { http_auth(people) }",
        "http-request return status 403 if !{ req.hdr(X-Token) -m found }",
        "http-request deny if { src 10.0.0.0/8 } { req.hdr(X) -m found }",
        "http-request deny if !{ src 10.0.0.0/8 } || !{ src 10.1.0.0/16 }",
        "http-request deny unless { ssl_c_used }",
        "block if { path_reg ^/a }",
    ] {
        let text = format!("defaults\n mode http\nlisten a\n bind :80\n {rule}\n server s 10.0.0.1:80\n");
        let imported = alone(ForeignLanguage::Haproxy, &text).unwrap();
        assert!(imported.toml.contains("respond = { status = 403 }"), "{rule}\n{}", imported.toml);
        assert!(!imported.toml.contains("backend = "), "{rule}\n{}", imported.toml);
        let is_shown = imported.report.findings.iter().any(|one| matches!(one.fate, Fate::NotTaken { .. }));
        assert!(is_shown || !rule.contains("hdr"), "{rule}\n{}", imported.report.text(true));
    }
}

#[test]
fn secrets_of_haproxy_are_in_no_report() {
    let text = "defaults\n mode http\nuserlist u\n user a insecure-password hunter2\n user b password hunter2\n\
                listen a\n bind :80\n stats auth admin:hunter2\n http-request add-header Authorization hunter2\n\
                 http-request set-header X-Token hunter2 if { path_reg a }\n server s 10.0.0.1:80\n";
    let imported = alone(ForeignLanguage::Haproxy, text).unwrap();
    assert!(!imported.report.text(true).contains("hunter2"), "{}", imported.report.text(true));
}

#[test]
fn each_directive_is_reported_once() {
    let text = b"events {} http { map $a $b { default 1; } server { listen 80; location / { if ($x) { set $y 1; } return 204; } } }";
    let imported = of(&[(MAIN, text)]).unwrap();
    assert_eq!(imported.report.findings.len(), 10, "{}", imported.report.text(true));
    assert!(imported.report.findings.iter().any(|one| matches!(one.fate, Fate::NotTaken { .. })));
}

#[test]
fn sources_of_programs_are_not_served() {
    for location in ["~ \\.php$", "~* \\.(php|phtml)$", "~ [^/]\\.php(/|$)"] {
        let text = format!(
            "server {{ listen 80; root /srv; location / {{ try_files $uri /index.php; }} location {location} {{ fastcgi_pass x; }} }}"
        );
        let imported = of(&[(MAIN, text.as_bytes())]).unwrap();
        assert!(!imported.toml.contains("root ="), "{location}\n{}", imported.toml);
        assert!(imported.toml.contains("respond = { status = 403 }"), "{location}\n{}", imported.toml);
    }
}
