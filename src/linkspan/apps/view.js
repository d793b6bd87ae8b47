// The page's part of a view: a frame at an origin of its own, and its messages, which the host's bridge reads elsewhere.
//
// show(place, url, allow, send): `url` is http://NAME.localhost:PORT/, `send(text)` resolves to the messages to post back. One
// message is sent at a time, in the order in which the view posts them: a request must not overtake the `initialized` before it.
// Returns { post(message), close() }.

export function show(place, url, allow, send) {
  const frame = document.createElement("iframe");
  const origin = new URL(url).origin;
  frame.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
  frame.setAttribute("allow", allow);
  frame.setAttribute("referrerpolicy", "no-referrer");
  frame.title = "View of a tool";
  const post = (message) => frame.contentWindow && frame.contentWindow.postMessage(message, origin);
  let line = Promise.resolve();
  const heard = (event) => {
    if (event.source !== frame.contentWindow || event.origin !== origin) return;
    const data = event.data;
    if (!data || data.jsonrpc !== "2.0") return;
    if (data.method === "ui/notifications/sandbox-proxy-ready") return;
    if (data.method === "ui/notifications/size-changed" && data.params) {
      const { height } = data.params;
      if (typeof height === "number" && height > 0) frame.style.height = `${Math.min(height, 2000)}px`;
    }
    const text = JSON.stringify(data);
    line = line.then(() => send(text)).then((messages) => messages.forEach(post), () => {});
  };
  addEventListener("message", heard);
  frame.src = url;
  place.replaceChildren(frame);
  return {
    post,
    close() {
      removeEventListener("message", heard);
      frame.remove();
    },
  };
}
