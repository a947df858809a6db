// The echo application on Node.js: sends each request's body back.
//   node echo.mjs --listen 127.0.0.1:PORT|unix:PATH [--cert FILE --key FILE] [--manner buffer|pipe|readable]
import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { parseArgs } from 'node:util';

const { values: options } = parseArgs({
  options: {
    listen: { type: 'string' },
    cert: { type: 'string' },
    key: { type: 'string' },
    manner: { type: 'string', default: 'buffer' },
  },
});

const manners = {
  // Collects the body, then answers in one piece.
  buffer(request, response) {
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks);
      response.writeHead(200, { 'Content-Length': body.length });
      response.end(body);
    });
  },
  // Lets the streams be joined by Node itself.
  pipe(request, response) {
    response.writeHead(200);
    request.pipe(response);
  },
  // Reads what is there whenever there is something.
  readable(request, response) {
    response.writeHead(200);
    request.on('readable', () => {
      for (let chunk = request.read(); chunk !== null; chunk = request.read()) response.write(chunk);
    });
    request.on('end', () => response.end());
  },
};

const echo = manners[options.manner];
if (!echo || !options.listen) throw new Error('usage: see the head of this file');
const server = options.cert
  ? https.createServer(
      {
        cert: readFileSync(options.cert),
        key: readFileSync(options.key),
        minVersion: 'TLSv1.3',
        ciphers: 'TLS_AES_128_GCM_SHA256',
        ecdhCurve: 'X25519',
      },
      echo,
    )
  : http.createServer(echo);
if (options.listen.startsWith('unix:')) {
  server.listen({ path: options.listen.slice(5), backlog: 4096 });
} else {
  const [host, port] = options.listen.split(':');
  server.listen({ host, port: Number(port), backlog: 4096 });
}
