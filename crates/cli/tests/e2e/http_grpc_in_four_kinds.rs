//! gRPC as its own library speaks it, in all four kinds of calls, with trailers, errors and deadlines: the
//! server speaks HTTP/2 on a Unix socket, with prior knowledge or within TLS.

use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::{Process, Ready};
use serde_json::Value;

use crate::support::http_curl::HTTP;
use crate::support::instance::{CERTIFICATE, Home, LIFE, PATIENCE, ask, cause, text};
use crate::support::venv;

/// What the scripts below were written for.
const VERSION: &str = "1.85.1";

/// Methods whose messages are plain bytes.
const SERVER: &str = r#"
import grpc, sys
from concurrent import futures

def unary(request, context):
    metadata = dict(context.invocation_metadata())
    if request == b"fail":
        context.set_trailing_metadata((("x-why", "asked"), ("x-why-bin", b"\x00\xff")))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked: \u00e4 100%")
    if request == b"wait":
        while context.is_active():
            context_wait.wait(0.01)
        return b""
    context.send_initial_metadata((("x-heard", metadata.get("x-said", "")),))
    context.set_trailing_metadata((("x-trailer", "behind"),))
    return request[::-1]

def stream(request, context):
    for number in range(int(request)):
        yield b"%d" % number

def collect(requests, context):
    return b",".join(requests)

def talk(requests, context):
    for request in requests:
        yield b"re: " + request

import threading
context_wait = threading.Event()
handlers = {
    "unary": grpc.unary_unary_rpc_method_handler(unary),
    "stream": grpc.unary_stream_rpc_method_handler(stream),
    "collect": grpc.stream_unary_rpc_method_handler(collect),
    "talk": grpc.stream_stream_rpc_method_handler(talk),
}
server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", 1 << 24)])
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Kinds", handlers),))
if len(sys.argv) > 1:
    chain, key = (open(file, "rb").read() for file in sys.argv[1:3])
    assert server.add_secure_port("unix:grpc.sock", grpc.ssl_server_credentials([(key, chain)]))
else:
    assert server.add_insecure_port("unix:grpc.sock")
server.start()
print("serving", flush=True)
server.wait_for_termination()
"#;

/// Prints `all is well` where it is.
const CLIENT: &str = r#"
import grpc, queue, sys

credentials = grpc.ssl_channel_credentials(open(sys.argv[2], "rb").read())
options = [("grpc.max_receive_message_length", 1 << 24), ("grpc.enable_http_proxy", 0)]
channel = grpc.secure_channel("localhost:" + sys.argv[1], credentials, options)
unary = channel.unary_unary("/test.Kinds/unary")
stream = channel.unary_stream("/test.Kinds/stream")
collect = channel.stream_unary("/test.Kinds/collect")
talk = channel.stream_stream("/test.Kinds/talk")

answer, call = unary.with_call(b"abc", metadata=(("x-said", "hello"),), timeout=20)
assert answer == b"cba", answer
assert dict(call.initial_metadata())["x-heard"] == "hello", call.initial_metadata()
assert dict(call.trailing_metadata())["x-trailer"] == "behind", call.trailing_metadata()

large = bytes(range(256)) * 20000
assert unary(large, timeout=20) == large[::-1]

assert list(stream(b"500", timeout=20)) == [b"%d" % number for number in range(500)]
assert list(stream(b"0", timeout=20)) == []
assert collect((b"%d" % number for number in range(300)), timeout=20) == b",".join(b"%d" % n for n in range(300))

# Each message is answered before the next is sent.
said = queue.Queue()
answers = talk(iter(said.get, None), timeout=20)
for number in range(100):
    said.put(b"%d" % number)
    assert next(answers) == b"re: %d" % number
said.put(None)
assert list(answers) == []

def failure(request, timeout):
    try:
        unary(request, timeout=timeout)
    except grpc.RpcError as error:
        return error
failed = failure(b"fail", 20)
assert failed.code() == grpc.StatusCode.FAILED_PRECONDITION, failed
assert failed.details() == "as asked: \u00e4 100%", failed.details()
trailers = dict(failed.trailing_metadata())
assert trailers["x-why"] == "asked" and trailers["x-why-bin"] == b"\x00\xff", trailers
assert failure(b"wait", 0.3).code() == grpc.StatusCode.DEADLINE_EXCEEDED

calls = [unary.future(b"%d" % number, timeout=20) for number in range(200)]
assert [call.result() for call in calls] == [(b"%d" % number)[::-1] for number in range(200)]
channel.close()
print("all is well")
"#;

#[test]
fn grpc_works_in_all_four_kinds_of_calls() {
    all_four_kinds("protocol = \"h2\"\n", false);
}

/// The server speaks HTTP/2 within TLS alone, as it is told to, and as ALPN has it.
#[test]
fn grpc_works_over_tls_to_the_server() {
    for protocol in ["h2", "auto"] {
        let tls = "tls = { verify = \"ca.pem\", name = \"localhost\" }";
        all_four_kinds(&format!("protocol = \"{protocol}\"\n{tls}\n"), true);
    }
}

/// Makes every kind of call through a backend with these lines, to a server that may speak TLS.
fn all_four_kinds(lines: &str, tls: bool) {
    let python = venv::python("grpcio", VERSION);
    let home = Home::new();
    let mut server = Command::new(&python);
    server.args(["-c", SERVER]).current_dir(home.path());
    if tls {
        server.args([&home.server.chain, &home.server.key]);
    }
    let server = Process::start(server, LIFE).unwrap();
    server.wait_for(&Ready::Line("serving".to_owned()), PATIENCE).unwrap();
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nbackend = \"grpc\"\n\
         [backend.grpc]\nservers = \"unix:grpc.sock\"\n{lines}"
    ));
    let mut client = Command::new(&python);
    client.args(["-c", CLIENT, &instance.address().port().to_string()]).arg(instance.home.ca.certificate());
    let output = ask(client, b"", Duration::from_secs(60));
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("all is well"), "{said}{complaint}{}", instance.process.transcript());
    let events = instance.events_of(208);
    instance.stop();
    // Where time ran out, client and server end the call, and either may be first.
    let well = |event: &Value| event["status"] == 200 && cause(event) == "completed";
    let late: Vec<_> = events.iter().filter(|event| !well(event)).collect();
    assert!(
        matches!(late[..], []) || matches!(late[..], [one] if cause(one) == "client_aborted"),
        "{late:?}"
    );
    assert!(events.len() == 208 && events.iter().all(|event| text(event, "protocol") == "HTTP/2.0"));
}
