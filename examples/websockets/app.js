const { WebSocketServer } = require("ws");

// Everybody gets what anybody says.
const room = new WebSocketServer({ host: "127.0.0.1", port: 3000 });
room.on("connection", (socket) => {
  socket.on("message", (message) => room.clients.forEach((client) => client.send(`somebody: ${message}`)));
});
