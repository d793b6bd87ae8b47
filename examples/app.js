// What a view says to its host, and the other way round: JSON-RPC in messages between two frames. The servers here put this into
// their views, which may load nothing.
//
// request(method, params) resolves to the host's result, notify(method, params) tells the host something, on[method] is called with
// what the host tells, tellModel(text) tells the model something where the host offers that, and begin(name) comes first.

const waiting = new Map();
const on = {};
let offers = {};
const post = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const notify = (method, params = {}) => post({ method, params });
const request = (method, params) =>
  new Promise((resolve, reject) => {
    const id = waiting.size + 1;
    waiting.set(id, { resolve, reject });
    post({ id, method, params });
  });
const tellModel = async (text) => {
  if (offers.updateModelContext) await request("ui/update-model-context", { content: [{ type: "text", text }] });
};
addEventListener("message", ({ source, data }) => {
  if (source !== parent || !data || data.jsonrpc !== "2.0") return;
  if (data.method === "ui/resource-teardown") post({ id: data.id, result: {} });
  else if (data.method) on[data.method]?.(data.params);
  else if (data.error) waiting.get(data.id)?.reject(new Error(data.error.message));
  else waiting.get(data.id)?.resolve(data.result);
});
const wear = ({ theme, styles }) => {
  if (theme) document.documentElement.style.colorScheme = theme;
  for (const [name, value] of Object.entries(styles?.variables ?? {}))
    document.documentElement.style.setProperty(name, value);
};
on["ui/notifications/host-context-changed"] = wear;
async function begin(name) {
  const appInfo = { name, version: "1.0.0" };
  const greeting = await request("ui/initialize", { protocolVersion: "2026-01-26", appInfo, appCapabilities: {} });
  offers = greeting.hostCapabilities ?? {};
  wear(greeting.hostContext ?? {});
  notify("ui/notifications/initialized");
  const grown = () => notify("ui/notifications/size-changed", { height: document.documentElement.offsetHeight });
  new ResizeObserver(grown).observe(document.documentElement);
}
