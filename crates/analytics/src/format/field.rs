//! The meaning of the parts of log lines, and the names under which logs write them.
//!
//! One table serves nginx variables (without `$`), the named groups of regular expressions, and the keys of
//! JSON.

/// The meaning of a part of a line for the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineField {
    /// A part without a meaning, which is skipped.
    Skip,
    /// The time, in any notation that [`super::time`] reads.
    Time,
    /// The time in seconds with a fraction, more precise than [`LineField::Time`].
    Instant,
    /// The requested host, with its rank among the sources of a host.
    Host(u8),
    /// The client's address, with its rank among the sources of an address.
    Client(u8),
    /// The identity of RFC 1413, Apache's `%l`: always a dash today.
    Ident,
    User,
    /// The whole request line.
    Request,
    /// Path and query as received.
    Target,
    /// The path, normalised by the server.
    Uri,
    /// The query without its question mark.
    Args,
    Method,
    /// The protocol with its version.
    Protocol,
    /// The status of the response.
    Status,
    /// Bytes sent, with their rank: bodies before whole responses.
    Bytes(u8),
    /// Bytes received from the client.
    Received,
    /// The duration; without a unit in the log, in units of 10^-n seconds.
    Duration(u8),
    /// A list of times of upstream servers; used only if no duration is known.
    UpstreamTime,
    Referer,
    Agent,
    /// The name of the route.
    Route,
    /// The server that answered.
    Server,
    Tls,
    Id,
    /// The cause of the request's end.
    Cause,
    /// The party at fault: `nobody` marks an ordinary end.
    Fault,
}

impl LineField {
    /// The meaning of a name; `None` for unknown names.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"time" | b"time_local" | b"time_iso8601" | b"timestamp" | b"@timestamp" | b"datetime"
            | b"date" | b"StartUTC" => Self::Time,
            b"msec" | b"ts" => Self::Instant,
            b"host" | b"request_host" | b"RequestHost" | b"authority" | b":authority" | b"domain" => {
                Self::Host(3)
            }
            b"http_host" | b"vhost" => Self::Host(2),
            b"server_name" | b"sni" | b"ssl_server_name" => Self::Host(1),
            b"client"
            | b"client_ip"
            | b"remote_addr"
            | b"ip"
            | b"clientip"
            | b"client_addr"
            | b"ClientHost"
            | b"proxy_protocol_addr" => Self::Client(2),
            b"remote_ip" | b"remote_host" => Self::Client(1),
            b"http_x_forwarded_for" | b"http_x_real_ip" | b"x_forwarded_for" => Self::Client(3),
            _ => return Self::of_request(name).or_else(|| Self::of_response(name)),
        })
    }

    fn of_request(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"remote_ident" => Self::Ident,
            b"remote_user" | b"user" | b"user_id" | b"ClientUsername" => Self::User,
            b"request" => Self::Request,
            b"request_uri" | b"target" | b"RequestPath" | b"url" => Self::Target,
            b"uri" | b"path" | b"document_uri" | b"request_path" => Self::Uri,
            b"args" | b"query_string" | b"query" => Self::Args,
            b"method" | b"request_method" | b"RequestMethod" => Self::Method,
            b"server_protocol" | b"protocol" | b"proto" | b"version" | b"http_version"
            | b"RequestProtocol" => Self::Protocol,
            b"request_length" | b"bytes_from_client" | b"bytes_received" | b"bytes_read" | b"received" => {
                Self::Received
            }
            b"http_referer" | b"referer" | b"referrer" | b"http_referrer" | b"request_Referer" => {
                Self::Referer
            }
            b"http_user_agent" | b"user_agent" | b"agent" | b"useragent" | b"request_User-Agent" => {
                Self::Agent
            }
            b"request_id" | b"id" => Self::Id,
            b"ssl_protocol" | b"tls_version" | b"tls" | b"TLSVersion" => Self::Tls,
            _ => return None,
        })
    }

    fn of_response(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"status" | b"status_code" | b"code" | b"DownstreamStatus" => Self::Status,
            b"body_bytes_sent" | b"bytes" | b"size" | b"bytes_to_client" | b"DownstreamContentSize" => {
                Self::Bytes(2)
            }
            b"bytes_sent" => Self::Bytes(1),
            b"request_time" | b"duration" | b"duration_s" | b"latency" | b"response_time" | b"took" => {
                Self::Duration(0)
            }
            b"duration_ms" | b"total_ms" | b"time_ms" | b"latency_ms" | b"response_time_ms" => {
                Self::Duration(3)
            }
            b"duration_us" | b"total_us" => Self::Duration(6),
            b"duration_ns" | b"Duration" => Self::Duration(9),
            b"upstream_response_time" => Self::UpstreamTime,
            b"route" | b"RouterName" => Self::Route,
            b"server" | b"upstream_addr" | b"ServiceAddr" => Self::Server,
            b"cause" => Self::Cause,
            b"fault" => Self::Fault,
            _ => return None,
        })
    }

    /// Returns `true` if nginx writes several values there, separated by `, ` and ` : `.
    pub(super) fn is_list(name: &[u8]) -> bool {
        name.starts_with(b"upstream_")
            || name == b"http_x_forwarded_for"
            || name == b"proxy_add_x_forwarded_for"
    }

    /// Returns `true` for fields with the time.
    pub(super) const fn is_time(self) -> bool {
        matches!(self, Self::Time | Self::Instant)
    }

    /// Returns `true` if values always start with a slash.
    pub(super) const fn begins_with_slash(self) -> bool {
        matches!(self, Self::Target | Self::Uri)
    }

    /// Returns `true` if values have a few bytes only.
    pub(super) const fn is_short(self) -> bool {
        matches!(
            self,
            Self::Skip
                | Self::Ident
                | Self::User
                | Self::Method
                | Self::Status
                | Self::Bytes(_)
                | Self::Received
                | Self::Duration(_)
        )
    }
}
