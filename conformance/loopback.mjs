// The suite's mock servers listen on every interface of the machine. Preloaded with --import, this keeps them on 127.0.0.1.
// `_listen2` is where node creates the socket: at that depth listen() still needs no lookup of a name, and stays synchronous,
// which the suite relies on when it asks for the port right afterwards.
import { Server } from "node:net";

const create = Server.prototype._listen2;

Server.prototype._listen2 = function (address, port, family, ...rest) {
  const everywhere = !address && typeof port === "number" && port >= 0;
  return everywhere ? create.call(this, "127.0.0.1", port, 4, ...rest) : create.call(this, address, port, family, ...rest);
};
