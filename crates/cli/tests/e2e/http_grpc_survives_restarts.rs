//! gRPC servers that are restarted in turn under load lose no call (RFC 9113 §8.7): a server that stops says which
//! requests it has not seen, all of them POST, and the other one gets them.
//!
//! The servers are those of grpc-js, whose GOAWAY tells the last request that they have seen. Those of the C core, on
//! which grpcio stands, answer some calls with CANCELLED while they stop, which no proxy can know not to be meant.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::require;

use crate::support::http_curl::HTTP;
use crate::support::instance::{CERTIFICATE, Home, ask};

/// What the script below was written for.
const VERSION: &str = "1.13.4";

/// Eight clients that do not retry, and two servers that are stopped gracefully and started again in turn. Arguments:
/// where the package is, the port, the CA, where the sockets are, how often a server is restarted. Prints how the
/// calls ended.
const ROLL: &str = r#"
const grpc = require(process.argv[2] + "/node_modules/@grpc/grpc-js");
const fs = require("fs"), path = require("path");
const [port, ca, place, rounds] = process.argv.slice(3);
const plain = { requestSerialize: (x) => x, requestDeserialize: (x) => x, responseSerialize: (x) => x, responseDeserialize: (x) => x };
const service = { unary: { path: "/test.Roll/unary", requestStream: false, responseStream: false, ...plain } };
const paths = ["one.sock", "two.sock"].map((name) => path.join(place, name));
const start = (at) => new Promise((resolve, reject) => {
  const server = new grpc.Server();
  server.addService(service, { unary: (call, answer) => setImmediate(() => answer(null, Buffer.from(call.request).reverse())) });
  server.bindAsync("unix:" + at, grpc.ServerCredentials.createInsecure(), (error) => error ? reject(error) : resolve(server));
});
const stop = (server) => new Promise((resolve, reject) => server.tryShutdown((error) => error ? reject(error) : resolve()));
let over = false, done = 0;
const failed = new Map();
const Client = grpc.makeGenericClientConstructor(service, "test.Roll");
const credentials = grpc.credentials.createSsl(fs.readFileSync(ca));
async function ask() {
  const options = { "grpc.enable_retries": 0, "grpc.enable_http_proxy": 0, "grpc.use_local_subchannel_pool": 1 };
  const client = new Client("localhost:" + port, credentials, options);
  while (!over) {
    await new Promise((resolve) => client.unary(Buffer.from("abc"), { deadline: Date.now() + 20000 }, (error, answer) => {
      const bad = error ? error.code + " " + error.details : answer.toString() === "cba" ? null : "another answer";
      if (bad) failed.set(bad, (failed.get(bad) || 0) + 1); else done += 1;
      resolve();
    }));
  }
  client.close();
}
const pause = () => new Promise((resolve) => setImmediate(resolve));
async function busy() {
  const before = done;
  while (done < before + 200 && failed.size === 0) await pause();
}
(async () => {
  const servers = await Promise.all(paths.map(start));
  const asking = Array.from({ length: 8 }, ask);
  await busy();
  for (let round = 0; round < rounds; round += 1) {
    await stop(servers[round % 2]);
    await busy();
    servers[round % 2] = await start(paths[round % 2]);
    await busy();
  }
  over = true;
  await Promise.all(asking);
  console.log(`${done} calls, ${failed.size} ways to fail`, Object.fromEntries(failed));
  process.exit(0);
})();
"#;

/// A folder with the package in it, beside the build: made once, used again by later runs.
fn package() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("grpc-js-{VERSION}"));
    if !place.join("complete").exists() {
        // What an interrupted run may have left is of no use.
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        let mut npm = Command::new(require("npm", "npm"));
        npm.args(["install", "--silent", "--no-fund", "--no-audit", "--prefix"]).arg(&place);
        npm.arg(format!("@grpc/grpc-js@{VERSION}"));
        let output = ask(npm, b"", Duration::from_secs(300));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "npm must be reachable once: {said}");
        fs::write(place.join("complete"), VERSION).unwrap();
    }
    place
}

#[test]
fn a_rolling_restart_loses_no_call() {
    let package = package();
    let instance = Home::new().run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nbackend = \"grpc\"\n\
         [backend.grpc]\nservers = [\"unix:one.sock\", \"unix:two.sock\"]\nprotocol = \"h2\"\n"
    ));
    fs::write(instance.home.file("roll.js"), ROLL).unwrap();
    let mut client = Command::new(require("node", "nodejs"));
    client.arg(instance.home.file("roll.js")).arg(package).arg(instance.address().port().to_string());
    client.arg(instance.home.ca.certificate()).arg(instance.home.path()).arg("12");
    let output = ask(client, b"", Duration::from_secs(120));
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("calls, 0 ways to fail"), "{said}{complaint}");
    // Without a call that was sent again nothing was shown.
    let events = instance.stop();
    assert!(events.iter().any(|event| event["tries"] == 2), "{} calls, none of them twice", events.len());
}
