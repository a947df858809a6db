//! Requests of HTTP/1 that two parsers read differently, and near ones that have one reading.
//!
//! Behind each bad one stands a second request, for `/smuggled`: whoever reads the first one wrongly finds it.

/// What hides behind a bad request.
pub(crate) const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A request that is refused.
pub(crate) struct Bad {
    pub(crate) bytes: Vec<u8>,
    pub(crate) status: u16,
    /// The word by which the event's detail names the fault.
    pub(crate) fault: &'static str,
}

fn bad(bytes: impl AsRef<[u8]>, status: u16, fault: &'static str) -> Bad {
    Bad { bytes: bytes.as_ref().to_vec(), status, fault }
}

/// A POST with these fields behind Host, and a body of 5 bytes.
fn post(fields: &str) -> String {
    format!("POST /bad HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n12345")
}

/// The same with the body in chunks.
fn chunked(fields: &str) -> String {
    format!("POST /bad HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n5\r\n12345\r\n0\r\n\r\n")
}

/// Mutations of Content-Length.
pub(crate) fn lengths() -> Vec<Bad> {
    let value = |value: &str, fault| bad(post(&format!("Content-Length: {value}")), 400, fault);
    let fields = |fields: &str, fault| bad(post(fields), 400, fault);
    vec![
        value("", "content_length"),
        value("+5", "content_length"),
        value("-5", "content_length"),
        value("0x5", "content_length"),
        value("5 5", "content_length"),
        value("5x", "content_length"),
        value("5.0", "content_length"),
        value("1e1", "content_length"),
        value("\"5\"", "content_length"),
        value("5;", "content_length"),
        value("\u{665}", "content_length"),
        value("\u{a0}5", "content_length"),
        value("5,", "content_length_list"),
        value(",5", "content_length_list"),
        value("5, 5", "content_length_list"),
        value("5,6", "content_length_list"),
        value("005", "content_length_zeros"),
        value("00", "content_length_zeros"),
        value("9223372036854775808", "content_length_too_large"),
        value("18446744073709551621", "content_length_too_large"),
        value("99999999999999999999999999999999", "content_length_too_large"),
        value("\u{b}5", "control_byte"),
        value("5\u{c}", "control_byte"),
        value("5\0", "control_byte"),
        value("\u{8}5", "control_byte"),
        value("\u{7f}5", "control_byte"),
        value("5\r", "bare_carriage_return"),
        value("5\rX: y", "bare_carriage_return"),
        value("5\nX: y", "bare_line_feed"),
        value("\r\n 5", "content_length"),
        value("5\r\n 6", "obs_fold"),
        fields("Content-Length: 5\r\nContent-Length: 5", "content_length_repeated"),
        fields("Content-Length: 5\r\nContent-Length: 6", "content_length_conflict"),
        fields("Content-Length: 0\r\ncontent-length: 5", "content_length_conflict"),
        fields("Content-Length : 5", "space_before_colon"),
        fields("Content-Length\t: 5", "space_before_colon"),
        fields(" Content-Length: 5", "obs_fold"),
        fields("\tContent-Length: 5", "obs_fold"),
        fields("X: y\r\n Content-Length: 5", "obs_fold"),
        fields("Content_Length: 5", "ambiguous_name"),
        fields("content_length: 5", "ambiguous_name"),
        fields("Content.Length: 5", "ambiguous_name"),
        fields("content~length: 5", "ambiguous_name"),
        fields("Content-Length", "no_colon"),
        fields(": 5\r\nContent-Length: 5", "empty_name"),
        fields("Content Length: 5", "name"),
        fields("\"Content-Length\": 5", "name"),
        fields("Content-Length\0: 5", "control_byte"),
        fields("Content-Length\r: 5", "bare_carriage_return"),
        fields("Content-Length\n: 5", "bare_line_feed"),
        fields("X: y\nContent-Length: 5", "bare_line_feed"),
        fields("X: y\rContent-Length: 5", "bare_carriage_return"),
        fields("X: y\r\rContent-Length: 5", "bare_carriage_return"),
        fields("Connection: close, Content-Length\r\nContent-Length: 5", "connection_option"),
    ]
}

/// Mutations of Transfer-Encoding.
pub(crate) fn codings() -> Vec<Bad> {
    let value =
        |value: &str, status, fault| bad(chunked(&format!("Transfer-Encoding: {value}")), status, fault);
    let fields = |fields: &str, fault| bad(chunked(fields), 400, fault);
    vec![
        value("", 400, "transfer_encoding"),
        value("chunked;q=1", 400, "transfer_encoding"),
        value("\"chunked\"", 400, "transfer_encoding"),
        value("chunked chunked", 400, "transfer_encoding"),
        value("[chunked]", 400, "transfer_encoding"),
        value("chunked\u{a0}", 400, "transfer_encoding"),
        value("identity", 501, "transfer_coding_unknown"),
        value("gzip", 501, "transfer_coding_unknown"),
        value("gzip, chunked", 501, "transfer_coding_unknown"),
        value("identity, chunked", 501, "transfer_coding_unknown"),
        value("xchunked", 501, "transfer_coding_unknown"),
        value("chunkedx", 501, "transfer_coding_unknown"),
        value("chunk", 501, "transfer_coding_unknown"),
        value("chunked, gzip", 400, "chunked_not_last"),
        value("chunked, identity", 400, "chunked_not_last"),
        value("chunked, chunked", 400, "transfer_encoding_repeated"),
        value("\u{b}chunked", 400, "control_byte"),
        value("chunked\0", 400, "control_byte"),
        value("\r\n chunked", 400, "transfer_encoding"),
        value("chunked\r\n x", 400, "obs_fold"),
        value("\nchunked", 400, "bare_line_feed"),
        value("chunked\r", 400, "bare_carriage_return"),
        fields("Transfer-Encoding: chunked\r\nContent-Length: 5", "both_lengths"),
        fields("Content-Length: 5\r\nTransfer-Encoding: chunked", "both_lengths"),
        fields("Content-Length: 0\r\nTransfer-Encoding: chunked", "both_lengths"),
        fields("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "transfer_encoding_repeated"),
        fields("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "transfer_encoding_repeated"),
        fields("Transfer-Encoding : chunked", "space_before_colon"),
        fields("Transfer-Encoding\t: chunked", "space_before_colon"),
        fields(" Transfer-Encoding: chunked", "obs_fold"),
        fields("X: y\r\n\tTransfer-Encoding: chunked", "obs_fold"),
        fields("Transfer_Encoding: chunked", "ambiguous_name"),
        fields("Transfer.Encoding: chunked", "ambiguous_name"),
        fields("X: y\nTransfer-Encoding: chunked", "bare_line_feed"),
        fields("X: y\rTransfer-Encoding: chunked", "bare_carriage_return"),
        fields("Transfer-Encoding\0: chunked", "control_byte"),
        fields("Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked", "connection_option"),
        bad(
            "POST /bad HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "transfer_encoding_in_http10",
        ),
    ]
}

/// Mutations of Host and of the target that names one.
pub(crate) fn hosts() -> Vec<Bad> {
    let fields = |fields: &str, fault| bad(format!("GET /bad HTTP/1.1\r\n{fields}\r\n\r\n"), 400, fault);
    let target =
        |target: &str, fault| bad(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400, fault);
    vec![
        fields("X: y", "host_missing"),
        fields("Host: localhost\r\nHost: localhost", "host_repeated"),
        fields("Host: localhost\r\nHost: a.example.org", "host_repeated"),
        fields("Host: ", "host_malformed"),
        fields("Host: a b", "host_malformed"),
        fields("Host: a,b", "host_malformed"),
        fields("Host: a/b", "host_malformed"),
        fields("Host: a?b", "host_malformed"),
        fields("Host: u@a", "host_malformed"),
        fields("Host: a:b", "host_malformed"),
        fields("Host: a:99999", "host_malformed"),
        fields("Host: [::1", "host_malformed"),
        fields("Host: a\\b", "host_malformed"),
        fields("Host: \u{e4}", "host_malformed"),
        fields("Host : localhost", "space_before_colon"),
        fields(" Host: localhost", "leading_space"),
        fields("Host: localhost\0", "control_byte"),
        fields("Host: localhost\r\n a.example.org", "obs_fold"),
        fields("Host: localhost\nHost: a.example.org", "bare_line_feed"),
        fields("Connection: host\r\nHost: localhost", "connection_option"),
        target("http://a.example.org/", "host_contradicts"),
        target("https://u@localhost/", "target_form"),
        target("https:///", "target_form"),
        target("ftp://localhost/", "target_form"),
        target("localhost", "target_form"),
        target("*", "target_form"),
        target("/a#b", "target_fragment"),
        target("/\u{e4}", "target_byte"),
    ]
}

/// Mutations of the request line and of line ends.
pub(crate) fn lines() -> Vec<Bad> {
    let rest = "Host: localhost\r\n\r\n";
    let line = |line: &str, status, fault| bad(format!("{line}{rest}"), status, fault);
    vec![
        line("GET /bad HTTP/1.1\n", 400, "bare_line_feed"),
        line("GET /bad HTTP/1.1\r", 400, "bare_carriage_return"),
        line("GET /bad HTTP/1.1\r\r\n", 400, "bare_carriage_return"),
        line("GET /bad HTTP/1.1\n\r", 400, "bare_line_feed"),
        line("GET /bad HTTP/1.1 \r\n", 400, "request_line_space"),
        line("GET  /bad HTTP/1.1\r\n", 400, "request_line_space"),
        line("GET /bad  HTTP/1.1\r\n", 400, "request_line_space"),
        line("GET\t/bad HTTP/1.1\r\n", 400, "request_line_space"),
        line(" GET /bad HTTP/1.1\r\n", 400, "request_line_space"),
        line("GET /bad\u{b}HTTP/1.1\r\n", 400, "control_byte"),
        line("GET /bad\r\n", 400, "request_line"),
        line("GET\r\n", 400, "request_line"),
        line("GET /bad HTTP/1.1x\r\n", 400, "version_malformed"),
        line("GET /bad http/1.1\r\n", 400, "version_malformed"),
        line("GET /bad HTTP/1.\r\n", 400, "version_malformed"),
        line("GET /bad HTTP/1.2\r\n", 505, "version"),
        line("GET /bad HTTP/2.0\r\n", 505, "version"),
        line("GET /bad HTTP/0.9\r\n", 505, "version"),
        line("G\u{e4}T /bad HTTP/1.1\r\n", 400, "method"),
        line("GET: /bad HTTP/1.1\r\n", 400, "method"),
        line("AMETHODTHATISLONGERTHANALLTHATAREKNOWN /bad HTTP/1.1\r\n", 501, "method_too_long"),
        line("CONNECT localhost:22 HTTP/1.1\r\n", 501, "connect"),
        line("\r\n\r\nGET /bad HTTP/1.1\r\n", 400, "leading_lines"),
        line("\nGET /bad HTTP/1.1\r\n", 400, "bare_line_feed"),
        line("\0GET /bad HTTP/1.1\r\n", 400, "control_byte"),
        bad("GET /bad HTTP/1.1\nHost: localhost\n\n", 400, "bare_line_feed"),
        bad("GET /bad HTTP/1.1\r\nHost: localhost\r\n\n", 400, "bare_line_feed"),
        bad("GET /bad HTTP/1.1\r\nHost: localhost\r\n\rX", 400, "bare_carriage_return"),
    ]
}

/// Mutations of chunks: the head is good, so that it has passed on before the fault is seen.
pub(crate) fn chunks() -> Vec<Bad> {
    let body = |body: &str, fault| {
        let head = "POST /bad HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
        bad(format!("{head}{body}"), 400, fault)
    };
    let long = format!("5;{}\r\n12345\r\n0\r\n\r\n", "x".repeat(300));
    vec![
        body("x\r\n", "chunk_size"),
        body("\r\n", "chunk_size"),
        body("-5\r\n12345\r\n0\r\n\r\n", "chunk_size"),
        body("+5\r\n12345\r\n0\r\n\r\n", "chunk_size"),
        body("0x5\r\n12345\r\n0\r\n\r\n", "chunk_size"),
        body("5_\r\n12345\r\n0\r\n\r\n", "chunk_size"),
        body(" 5\r\n12345\r\n0\r\n\r\n", "chunk_size_space"),
        body("5 \r\n12345\r\n0\r\n\r\n", "chunk_size_space"),
        body("10000000000000005\r\n12345\r\n0\r\n\r\n", "chunk_size_too_large"),
        body("8000000000000000\r\n12345\r\n0\r\n\r\n", "chunk_size_too_large"),
        body("5\n12345\r\n0\r\n\r\n", "bare_line_feed"),
        body("5\r12345\r\n0\r\n\r\n", "bare_carriage_return"),
        body("5\0\r\n12345\r\n0\r\n\r\n", "chunk_size"),
        body("5\r\n12345\n0\r\n\r\n", "chunk_end"),
        body("5\r\n123456\r\n0\r\n\r\n", "chunk_end"),
        body("5\r\n123450\r\n\r\n", "chunk_end"),
        body("5;a=\"\r\n12345\r\n0\r\n\r\n", "chunk_extension"),
        body("5;\n12345\r\n0\r\n\r\n", "bare_line_feed"),
        body(&long, "chunk_extension_too_long"),
        body("5\r\n12345\r\n0\r\nContent-Length: 5\r\n\r\n", "trailer_forbidden"),
        body("5\r\n12345\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", "trailer_forbidden"),
        body("5\r\n12345\r\n0\r\nHost: a.example.org\r\n\r\n", "trailer_forbidden"),
        body("5\r\n12345\r\n0\r\nX: y\r\n z\r\n\r\n", "obs_fold"),
        body("5\r\n12345\r\n0\r\nX : y\r\n\r\n", "space_before_colon"),
        body("5\r\n12345\r\n0\r\nX: y\n\r\n", "bare_line_feed"),
        body("5\r\n12345\r\n0\r\n\n", "bare_line_feed"),
    ]
}

/// A request that has one reading.
pub(crate) struct Good {
    pub(crate) bytes: &'static str,
    /// What the application gets of it, without what it is told of the client.
    pub(crate) head: &'static str,
    pub(crate) body: &'static str,
}

const fn good(bytes: &'static str, head: &'static str, body: &'static str) -> Good {
    Good { bytes, head, body }
}

/// Near misses, which pass.
pub(crate) const GOOD: &[Good] = &[
    good("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /a HTTP/1.1\r\nhost: localhost\r\n\r\n", ""),
    good("\r\nGET /a HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /a HTTP/1.1\r\nhost: localhost\r\n\r\n", ""),
    good(
        "GET https://localhost/a?b HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /a?b HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "",
    ),
    good(
        "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "",
    ),
    good(
        "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: \t 5 \t\r\n\r\n12345",
        "POST /a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n",
        "12345",
    ),
    good(
        "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
        "POST /a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
        "",
    ),
    good(
        "POST /a HTTP/1.1\r\nHost: localhost\r\ncOnTeNt-LeNgTh:5\r\n\r\n\r\n\r\n0",
        "POST /a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n",
        "\r\n\r\n0",
    ),
    good(
        "POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n",
        "POST /a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n",
        "5\r\n12345\r\n0\r\n\r\n",
    ),
    good(
        "POST /a HTTP/1.1\r\nHost: localhost\r\nTRANSFER-ENCODING:CHUNKED\r\n\r\n05;a=b\r\n12345\r\n000\r\n\r\n",
        "POST /a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n",
        "5\r\n12345\r\n0\r\n\r\n",
    ),
    good(
        "POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0\r\n\r\n01234\r\n0\r\n\r\n",
        "POST /a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n",
        "A\r\n0\r\n\r\n01234\r\n0\r\n\r\n",
    ),
    good(
        "GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: X-Own\r\nX-Own: 1\r\nKeep-Alive: 5\r\nTE: gzip\r\nX: y\r\n\r\n",
        "GET /a HTTP/1.1\r\nhost: localhost\r\nx: y\r\n\r\n",
        "",
    ),
    good(
        "GET /a HTTP/1.1\r\nHost: localhost\r\nX-Tab: a\tb\r\nX-Empty:\r\n\r\n",
        "GET /a HTTP/1.1\r\nhost: localhost\r\nx-tab: a\tb\r\nx-empty: \r\n\r\n",
        "",
    ),
];
