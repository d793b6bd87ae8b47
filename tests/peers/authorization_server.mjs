// An OpenID-certified authorization server, for one test: it prints a JSON line with its issuer, and ends with its stdin.
//
//   node authorization_server.mjs NODE_MODULES '{"resource": "http://...", "ttl": 3600, "clients": [...], "documents": {...}}'
//
// Everyone may log in, as the name that is typed. Tokens are opaque, unless `format` is 'jwt', bound to `resource`, and live `ttl` seconds.
// POST /_test counts requests by path since the last one, and sets `ttl`, or `forget`s all tokens.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [modules, given] = process.argv.slice(2);
const options = JSON.parse(given);
const require = createRequire(`${modules}/here.js`);
const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

let ttl = options.ttl ?? 3600;
let counts = {};
const kept = new Map();

// In memory, like the adapter of the package, but one that can forget.
class Memory {
  constructor(name) { this.name = name; }
  key(id) { return `${this.name}:${id}`; }
  async upsert(id, payload) { kept.set(this.key(id), payload); }
  async find(id) { return kept.get(this.key(id)); }
  async findByUserCode(code) { return [...kept.values()].find((each) => each.userCode === code); }
  async findByUid(uid) { return [...kept.values()].find((each) => each.uid === uid); }
  async consume(id) { kept.get(this.key(id)).consumed = Math.floor(Date.now() / 1000); }
  async destroy(id) { kept.delete(this.key(id)); }
  async revokeByGrantId(id) { for (const [key, each] of kept) if (each.grantId === id) kept.delete(key); }
}

const server = createServer();
await new Promise((resolve) => { server.listen(options.port ?? 0, '127.0.0.1', resolve); });
const issuer = `http://127.0.0.1:${server.address().port}`;
const scopes = ['mcp:read', 'mcp:write'];

const provider = new Provider(issuer, {
  adapter: Memory,
  clients: options.clients ?? [],
  scopes: ['openid', 'offline_access', ...scopes],
  cookies: { keys: ['only for tests'] },
  ttl: {
    AccessToken: () => ttl, AuthorizationCode: 60, ClientCredentials: () => ttl,
    DeviceCode: 60, Grant: 3600, IdToken: 3600, Interaction: 300, RefreshToken: 3600, Session: 3600,
  },
  issueRefreshToken: async (ctx, client, code) => client.grantTypeAllowed('refresh_token') && code.scopes.has('offline_access'),
  rotateRefreshToken: true,
  findAccount: async (ctx, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  fetch: async (url, init) => (String(url) in (options.documents ?? {})
    ? new Response(JSON.stringify(options.documents[String(url)]), { headers: { 'content-type': 'application/json' } })
    : fetch(url, init)),
  features: {
    clientCredentials: { enabled: true },
    clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
    deviceFlow: { enabled: true },
    dPoP: { enabled: true, nonceSecret: options.nonces ? Buffer.alloc(32, 7) : undefined, requireNonce: () => Boolean(options.nonces) },
    introspection: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => options.resource,
      useGrantedResource: () => true,
      getResourceServerInfo: async () => ({
        scope: scopes.join(' '), audience: options.resource, accessTokenFormat: options.format ?? 'opaque', accessTokenTTL: ttl,
        ...(options.format === 'jwt' ? { jwt: { sign: { alg: 'RS256' } } } : {}),
      }),
    },
  },
});
provider.on('server_error', (ctx, error) => { process.stderr.write(`${error.stack}\n`); });

const callback = provider.callback();
server.on('request', async (request, response) => {
  const path = new URL(request.url, issuer).pathname;
  if (path !== '/_test') {
    counts[path] = (counts[path] ?? 0) + 1;
    callback(request, response);
    return;
  }
  let body = '';
  for await (const chunk of request) body += chunk;
  const wish = JSON.parse(body || '{}');
  if (wish.ttl !== undefined) ttl = wish.ttl;
  if (wish.forget) for (const key of kept.keys()) if (wish.forget.includes(key.split(':')[0])) kept.delete(key);
  response.end(JSON.stringify(counts));
  counts = {};
});

process.stdin.resume().on('end', () => process.exit(0));
console.log(JSON.stringify({ issuer }));
