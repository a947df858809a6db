//! Arguments of `offramp why`.

use std::net::IpAddr;

use clap::Args;

use super::ctl::CtlOptions;

/// Arguments of `offramp why`.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// A URL, the address of a client, the id of a request, the name of a cause, one of the questions not-routed, 502,
    /// slow and no-certificate, or with --as the HOST:PORT that a TLS client connects to
    #[arg(value_name = "QUESTION")]
    pub(crate) question: String,
    /// The URL for not-routed; the backend, or a URL, for 502; the host for slow and no-certificate
    #[arg(value_name = "ABOUT")]
    pub(crate) about: Option<String>,
    /// For slow, a client, a URL and a request: only requests from this time on, such as 10m ago, or 2026-11-22T10:00 in UTC [default: 1h]
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// A TLS client: a well-known one such as "openssl 1.0.2" or chrome, or a file with its ClientHello
    ///
    /// Tells what the client offers, what is configured, which route and certificate it gets, the first rule that refuses it, and what
    /// would have to change. The file is a capture (pcap, pcapng), the bytes of a ClientHello, or their digits in hexadecimal or
    /// base64; `-` is standard input. Of a capture, the hello that asks for the host is taken.
    #[arg(long = "as", value_name = "CLIENT", conflicts_with = "about")]
    pub(crate) client: Option<String>,
    /// With --as: the address that the client comes from, for rules by network [default: that of a capture]
    #[arg(long, value_name = "IP", requires = "client")]
    pub(crate) from: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) reach: CtlOptions,
}
