//! gRPC clients that do nothing but call, as fast as they can: not one call fails.
//!
//! The libraries measure their connections while they use them, with PING and WINDOW_UPDATE for what they send and
//! get, and a proxy that counts such frames must not take that for an attack.

use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::{Process, Ready, require};

use crate::support::http_curl::HTTP;
use crate::support::instance::{CERTIFICATE, Home, Instance, LIFE, PATIENCE, ask, cause};
use crate::support::{npm, venv};

/// What the scripts below were written for.
const GRPCIO: &str = "1.85.1";
const GRPC_JS: &str = "1.14.7";
/// For how long each way of calling is tried, in seconds.
const SECONDS: &str = "2";
/// How many calls are under way at a time.
const AT_A_TIME: [&str; 4] = ["1", "16", "64", "256"];

/// `unary` sends back what it gets, `stream` as many messages as it is asked for, `talk` each message as it comes.
const SERVER: &str = r#"
import grpc
from concurrent import futures

handlers = {
    "unary": grpc.unary_unary_rpc_method_handler(lambda request, context: request),
    "stream": grpc.unary_stream_rpc_method_handler(
        lambda request, context: (b"%d" % number for number in range(int(request)))),
    "talk": grpc.stream_stream_rpc_method_handler(lambda requests, context: (request for request in requests)),
}
server = grpc.server(futures.ThreadPoolExecutor(16))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Speed", handlers),))
assert server.add_insecure_port("unix:grpc.sock")
server.start()
print("serving", flush=True)
server.wait_for_termination()
"#;

/// Arguments: port, CA, how many at a time, seconds. Prints how many calls went well, and the failures.
const PYTHON: &str = r#"
import grpc, sys, threading, time

credentials = grpc.ssl_channel_credentials(open(sys.argv[2], "rb").read())
channel = grpc.secure_channel("localhost:" + sys.argv[1], credentials, [("grpc.enable_http_proxy", 0)])
unary = channel.unary_unary("/test.Speed/unary")
stream = channel.unary_stream("/test.Speed/stream")
talk = channel.stream_stream("/test.Speed/talk")
ten = [b"%d" % number for number in range(10)]
kinds = {
    "unary": lambda: unary(b"hello", timeout=60) == b"hello",
    "streaming": lambda: list(stream(b"10", timeout=60)) == ten and list(talk(iter(ten), timeout=60)) == ten,
}
def lane(call, end, well, failures):
    while time.monotonic() < end:
        try:
            well.append(1) if call() else failures.append("another answer")
        except grpc.RpcError as error:
            failures.append(repr(error))
for kind, call in kinds.items():
    well, failures, end = [], [], time.monotonic() + float(sys.argv[4])
    lanes = [threading.Thread(target=lane, args=(call, end, well, failures)) for _ in range(int(sys.argv[3]))]
    for thread in lanes: thread.start()
    for thread in lanes: thread.join()
    print(kind, len(well), "well", len(failures), "failed", *failures[:1], flush=True)
channel.close()
"#;

/// The same.
const NODE: &str = r#"
const grpc = require("@grpc/grpc-js"), fs = require("fs");
const [port, ca, lanes, seconds] = process.argv.slice(2);
const same = (bytes) => bytes;
const client = new grpc.Client("localhost:" + port, grpc.credentials.createSsl(fs.readFileSync(ca)));
const collect = (call, done) => {
    const all = [];
    call.on("data", (data) => all.push(data.toString()));
    call.on("error", done);
    call.on("end", () => done(null, all.join()));
};
const unary = () => new Promise((well, ill) => client.makeUnaryRequest("/test.Speed/unary", same, same,
    Buffer.from("hello"), (error, data) => error || data.toString() !== "hello" ? ill(error) : well()));
const ten = [...Array(10).keys()].join();
const expect = (call) => new Promise((well, ill) =>
    collect(call, (error, all) => error || all !== ten ? ill(error || all) : well()));
const streaming = async () => {
    await expect(client.makeServerStreamRequest("/test.Speed/stream", same, same, Buffer.from("10")));
    const call = client.makeBidiStreamRequest("/test.Speed/talk", same, same);
    const answer = expect(call);
    for (let at = 0; at < 10; at++) call.write(Buffer.from("" + at));
    call.end();
    await answer;
};
(async () => {
    for (const [name, call] of Object.entries({ unary, streaming })) {
        let well = 0, failures = [];
        const end = Date.now() + 1000 * seconds;
        await Promise.all([...Array(+lanes)].map(async () => {
            while (Date.now() < end) await call().then(() => well++, (error) => failures.push(error));
        }));
        console.log(name, well, "well", failures.length, "failed", failures.slice(0, 1).join());
    }
    client.close();
})();
"#;

/// Has a client call in both ways, with so many calls at a time: none may fail.
fn call(instance: &Instance, mut client: Command, lanes: &str) {
    let who = format!("{:?}", client.get_program());
    client
        .arg(instance.address().port().to_string())
        .arg(instance.home.ca.certificate())
        .args([lanes, SECONDS]);
    let output = ask(client, b"", Duration::from_secs(120));
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    println!("{who}, {lanes} at a time:\n{said}");
    let rows: Vec<Vec<_>> = said.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(rows.len(), 2, "{who} {lanes}: {said}{complaint}");
    for row in rows {
        let good = matches!(row[..], [_, calls, "well", "0", "failed", ..] if calls != "0");
        assert!(good, "{who} {lanes}: {said}{complaint}{}", instance.process.transcript());
    }
}

#[test]
fn not_one_call_fails() {
    let python = venv::python("grpcio", GRPCIO);
    let modules = npm::modules("@grpc/grpc-js", GRPC_JS);
    let home = Home::new();
    let mut server = Command::new(&python);
    server.args(["-c", SERVER]).current_dir(home.path());
    let server = Process::start(server, LIFE).unwrap();
    server.wait_for(&Ready::Line("serving".to_owned()), PATIENCE).unwrap();
    std::fs::write(home.file("client.cjs"), NODE).unwrap();
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nbackend = \"grpc\"\nlog_one_in = 1000000\n\
         [backend.grpc]\nservers = \"unix:grpc.sock\"\nprotocol = \"h2\"\n"
    ));
    for lanes in AT_A_TIME {
        let mut client = Command::new(&python);
        client.args(["-c", PYTHON]);
        call(&instance, client, lanes);
        let mut client = Command::new(require("node", "nodejs"));
        client.arg(instance.home.file("client.cjs")).env("NODE_PATH", &modules);
        call(&instance, client, lanes);
    }
    let events = instance.stop();
    assert!(events.iter().all(|event| cause(event) != "h2_flood"), "{events:?}");
}
