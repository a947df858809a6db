//! A Node.js application on a Unix socket, without packages: a page, an echo, server-sent events, and
//! WebSocket by hand (RFC 6455).

use std::fs;
use std::process::Command;

use offramp_testkit::process::{Process, Ready, Source, require};

use crate::support::instance::{Home, LIFE, PATIENCE};

/// Listens on `app.sock`, and prints what is posted to `/report`.
const APPLICATION: &str = r#"
const http = require('http'), crypto = require('crypto'), fs = require('fs');

const server = http.createServer((request, response) => {
  if (request.url === '/') {
    response.setHeader('content-type', 'text/html; charset=utf-8');
    return response.end(fs.existsSync('page.html') ? fs.readFileSync('page.html') : 'no page');
  }
  if (request.url === '/echo') {
    response.setHeader('x-version', request.httpVersion);
    return request.pipe(response);
  }
  if (request.url === '/events') {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    let sent = 0;
    const timer = setInterval(() => {
      response.write(`id: ${++sent}\nevent: tick\ndata: number ${sent}\n\n`);
    }, 20);
    return request.on('close', () => clearInterval(timer));
  }
  if (request.url === '/report') {
    const parts = [];
    request.on('data', part => parts.push(part));
    return request.on('end', () => {
      console.log('REPORT ' + Buffer.concat(parts).toString());
      response.end('thanks');
    });
  }
  response.end(JSON.stringify({ url: request.url, headers: request.headers }));
});

// Messages are echoed as they come; a close is answered by a close.
server.on('upgrade', (request, socket, early) => {
  const key = request.headers['sec-websocket-key'];
  const accept = crypto.createHash('sha1').update(key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
    `Sec-WebSocket-Accept: ${accept}\r\n\r\n`);
  let held = early;
  const send = (opcode, data) => {
    const head = data.length < 126 ? Buffer.from([0x80 | opcode, data.length])
      : data.length < 65536 ? Buffer.from([0x80 | opcode, 126, data.length >> 8, data.length & 255])
      : Buffer.concat([Buffer.from([0x80 | opcode, 127, 0, 0, 0, 0]), Buffer.from(new Uint32Array([data.length]).buffer).reverse()]);
    socket.write(Buffer.concat([head, data]));
  };
  const take = () => {
    if (held.length < 2) return false;
    let length = held[1] & 127, at = 2;
    if (length === 126) { if (held.length < 4) return false; length = held.readUInt16BE(2); at = 4; }
    if (length === 127) { if (held.length < 10) return false; length = Number(held.readBigUInt64BE(2)); at = 10; }
    if (held.length < at + 4 + length) return false;
    const mask = held.subarray(at, at + 4), data = Buffer.from(held.subarray(at + 4, at + 4 + length));
    for (let i = 0; i < data.length; i++) data[i] ^= mask[i & 3];
    const opcode = held[0] & 15;
    held = held.subarray(at + 4 + length);
    send(opcode, data);
    if (opcode === 8) socket.end();
    return true;
  };
  const more = part => { held = Buffer.concat([held, part]); while (take()); };
  socket.on('data', more).on('error', () => {}).on('end', () => socket.end());
  more(Buffer.alloc(0));
});

server.listen('app.sock');
"#;

/// Starts the application in the home.
pub(crate) fn start(home: &Home) -> Process {
    node(home, APPLICATION)
}

/// Starts one in the home that listens on `app.sock`.
pub(crate) fn node(home: &Home, application: &str) -> Process {
    fs::write(home.file("app.cjs"), application).unwrap();
    let mut node = Command::new(require("node", "nodejs"));
    node.arg("app.cjs").current_dir(home.path());
    let application = Process::start(node, LIFE).unwrap();
    application.wait_for(&Ready::Unix(home.file("app.sock")), PATIENCE).unwrap();
    application
}

/// Waits for what is posted to `/report`; none if nothing is in time.
pub(crate) fn report(application: &Process) -> Option<String> {
    application.wait_for(&Ready::Line("REPORT ".to_owned()), PATIENCE).ok()?;
    let lines = application.lines(Source::Stdout);
    lines.iter().find_map(|line| line.strip_prefix("REPORT ")).map(ToOwned::to_owned)
}
