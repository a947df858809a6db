//! The table of proxies, and how their versions are read.

use crate::contestant::{Library, Peer};
use crate::error::{Error, Result};

/// Every proxy, Offramp first, in the order in which each round measures them.
pub(crate) const PEERS: &[Peer] = &[
    OFFRAMP,
    NGINX,
    HAPROXY,
    HITCH,
    Peer {
        name: "stunnel",
        what: "stunnel, a thread per connection",
        program: "stunnel",
        package: "stunnel4",
        version_args: &["-version"],
        library: Library::Said(&["Running  with ", "Compiled/running with "]),
        file: "stunnel.conf",
        stream: Some(include_str!("../../peers/stunnel.conf")),
        both_sides: None,
        passthrough: None,
        http: None,
        grpc: None,
        files: None,
        args: &["{{config}}"],
        post_quantum: false,
        scales: false,
        aside: true,
        next: false,
    },
    Peer {
        name: "caddy",
        what: "Caddy, reverse_proxy",
        program: "caddy",
        package: "caddy",
        version_args: &["version"],
        library: Library::Is("crypto/tls of Go"),
        file: "Caddyfile",
        stream: None,
        both_sides: None,
        passthrough: None,
        http: Some(include_str!("../../peers/Caddyfile")),
        grpc: None,
        files: None,
        args: &["run", "--adapter", "caddyfile", "--config", "{{config}}"],
        post_quantum: false,
        scales: false,
        aside: true,
        next: false,
    },
    Peer {
        name: "sozu",
        what: "Sōzu, HTTPS listener",
        program: "sozu",
        package: "cargo install sozu (needs protobuf-compiler)",
        version_args: &["--version"],
        library: Library::Is("rustls on ring"),
        file: "sozu.toml",
        stream: None,
        both_sides: None,
        passthrough: None,
        http: Some(include_str!("../../peers/sozu.toml")),
        grpc: None,
        files: None,
        args: &["start", "-c", "{{config}}"],
        post_quantum: false,
        scales: true,
        aside: false,
        next: false,
    },
    Peer {
        name: "h2o",
        what: "h2o, a server of files",
        program: "h2o",
        package: "h2o",
        version_args: &["--version"],
        library: Library::Said(&["OpenSSL: "]),
        file: "h2o.conf",
        stream: None,
        both_sides: None,
        passthrough: None,
        http: None,
        grpc: None,
        files: Some(include_str!("../../peers/h2o-files.conf")),
        args: &["-c", "{{config}}"],
        post_quantum: false,
        scales: true,
        aside: false,
        next: false,
    },
    Peer {
        name: "lighttpd",
        what: "lighttpd, a server of files",
        program: "lighttpd",
        package: "lighttpd, lighttpd-mod-openssl",
        version_args: &["-V"],
        library: Library::Is("the system's OpenSSL"),
        file: "lighttpd.conf",
        stream: None,
        both_sides: None,
        passthrough: None,
        http: None,
        grpc: None,
        files: Some(include_str!("../../peers/lighttpd-files.conf")),
        args: &["-D", "-f", "{{config}}"],
        post_quantum: false,
        scales: false,
        aside: false,
        next: false,
    },
    // Those of the next Debian, on OpenSSL 3.5, which knows X25519MLKEM768.
    Peer {
        name: "nginx-next",
        what: "nginx of the next Debian",
        next: true,
        aside: true,
        post_quantum: true,
        ..NGINX
    },
    Peer {
        name: "haproxy-next",
        what: "HAProxy of the next Debian",
        next: true,
        aside: true,
        post_quantum: true,
        ..HAPROXY
    },
    Peer {
        name: "hitch-next",
        what: "hitch of the next Debian",
        next: true,
        aside: true,
        post_quantum: true,
        ..HITCH
    },
];

const OFFRAMP: Peer = Peer {
    name: "offramp",
    what: "this project",
    program: "offramp",
    package: "this repository: cargo build --release -p offramp",
    version_args: &["version"],
    library: Library::Is("rustls on aws-lc-rs, records on ring or aws-lc-rs"),
    file: "offramp.toml",
    stream: Some(include_str!("../../peers/offramp.toml")),
    both_sides: Some(include_str!("../../peers/offramp-both.toml")),
    passthrough: Some(include_str!("../../peers/offramp-passthrough.toml")),
    http: Some(include_str!("../../peers/offramp-http.toml")),
    grpc: Some(include_str!("../../peers/offramp-grpc.toml")),
    files: Some(include_str!("../../peers/offramp-files.toml")),
    args: &["run", "-c", "{{config}}"],
    post_quantum: true,
    scales: true,
    aside: false,
    next: false,
};

const NGINX: Peer = Peer {
    name: "nginx",
    what: "nginx: its stream module, or its http module",
    program: "nginx",
    package: "nginx, libnginx-mod-stream",
    version_args: &["-V"],
    library: Library::Said(&["running with ", "built with "]),
    file: "nginx.conf",
    stream: Some(include_str!("../../peers/nginx-stream.conf")),
    both_sides: Some(include_str!("../../peers/nginx-both.conf")),
    passthrough: Some(include_str!("../../peers/nginx-passthrough.conf")),
    http: Some(include_str!("../../peers/nginx-http.conf")),
    grpc: Some(include_str!("../../peers/nginx-grpc.conf")),
    files: Some(include_str!("../../peers/nginx-files.conf")),
    args: &["-p", "{{dir}}", "-e", "{{dir}}/error.log", "-c", "{{config}}"],
    post_quantum: false,
    scales: true,
    aside: false,
    next: false,
};

const HAPROXY: Peer = Peer {
    name: "haproxy",
    what: "HAProxy: mode tcp, or mode http",
    program: "haproxy",
    package: "haproxy",
    version_args: &["-vv"],
    library: Library::Said(&["Running on OpenSSL version : ", "Running on SSL library version : "]),
    file: "haproxy.cfg",
    stream: Some(include_str!("../../peers/haproxy-tcp.cfg")),
    both_sides: Some(include_str!("../../peers/haproxy-both.cfg")),
    passthrough: Some(include_str!("../../peers/haproxy-passthrough.cfg")),
    http: Some(include_str!("../../peers/haproxy-http.cfg")),
    grpc: Some(include_str!("../../peers/haproxy-grpc.cfg")),
    files: None,
    args: &["-db", "-f", "{{config}}"],
    post_quantum: false,
    scales: true,
    aside: false,
    next: false,
};

const HITCH: Peer = Peer {
    name: "hitch",
    what: "hitch",
    program: "hitch",
    package: "hitch",
    version_args: &["--version"],
    library: Library::Is("the system's OpenSSL"),
    file: "hitch.conf",
    stream: Some(include_str!("../../peers/hitch.conf")),
    both_sides: None,
    passthrough: None,
    http: None,
    grpc: None,
    files: None,
    args: &["--config={{config}}"],
    post_quantum: false,
    scales: true,
    aside: false,
    next: false,
};

/// The peer of a name.
pub(crate) fn peer(name: &str) -> Option<&'static Peer> {
    PEERS.iter().find(|p| p.name == name)
}

/// Another build of Offramp, for the rest of this process.
///
/// # Errors
/// The name is that of a peer.
pub(crate) fn another_build(name: &str) -> Result<&'static Peer> {
    if peer(name).is_some() {
        return Err(Error::Usage(format!("--beside {name}: a contestant has this name; choose another one")));
    }
    let name = String::from(name).leak();
    Ok(Box::leak(Box::new(Peer { name, what: "another build of this project", ..OFFRAMP })))
}

/// One line from what a program prints about itself: the first line that has a version number, and the
/// TLS library where it is named.
pub(crate) fn version_line(said: &str, library: Library) -> String {
    let first = said
        .lines()
        .find(|line| line.chars().any(|c| c.is_ascii_digit()) && line.contains('.'))
        .unwrap_or("version unknown")
        .trim();
    // HAProxy and others go on with dates and addresses, which no table needs.
    let first = first.split(" - http").next().unwrap_or(first);
    let named = match library {
        Library::Is(name) => Some(name),
        Library::Said(marks) => marks.iter().find_map(|mark| {
            let rest = said.split_once(mark)?.1.lines().next()?;
            Some(rest.split([')', '(']).next().unwrap_or(rest).trim())
        }),
    };
    match named {
        Some(name) if !first.contains(name) => format!("{first}, {name}"),
        _ => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_programs_say() {
        let nginx = "nginx version: nginx/1.22.1\nbuilt with OpenSSL 3.0.22 25 Aug 2026 (running with OpenSSL 3.0.19 27 Jan 2026)\n";
        assert_eq!(
            version_line(nginx, peer("nginx").unwrap().library),
            "nginx version: nginx/1.22.1, OpenSSL 3.0.19 27 Jan 2026"
        );
        assert_eq!(version_line("hitch 1.7.2\n", Library::Is("OpenSSL")), "hitch 1.7.2, OpenSSL");
        assert_eq!(version_line("", Library::Said(&["built with "])), "version unknown");
    }

    #[test]
    fn another_build_is_configured_as_the_first() {
        let build = another_build("static").unwrap();
        assert_eq!((build.name, build.stream), ("static", peer("offramp").unwrap().stream));
        assert!(another_build("nginx").is_err());
    }

    #[test]
    fn names_are_unique() {
        for (index, one) in PEERS.iter().enumerate() {
            assert!(PEERS[..index].iter().all(|other| other.name != one.name));
        }
    }
}
