const { WebSocket } = require("ws");

const [url, message] = process.argv.slice(2);
const socket = new WebSocket(url);
socket.on("open", () => socket.send(message));
socket.on("message", (answer) => {
  console.log(answer.toString());
  socket.close();
});
