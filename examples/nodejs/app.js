const http = require("node:http");

http.createServer((request, response) => {
  const { host, "x-forwarded-for": client, "x-forwarded-proto": scheme } = request.headers;
  response.setHeader("Content-Type", "text/plain");
  response.end(`Hello ${client}, this is ${scheme}://${host}${request.url}\n`);
}).listen(3000, "127.0.0.1");
