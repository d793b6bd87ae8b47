// Log in with the client of the TypeScript SDK, version 1 or 2: `node typescript.mjs NODE_MODULES '{"client": "v1", "url": ..., "port": ...}'`.
//
// Prints a line of JSON for each page to open (`open`), and for each step (`step`, with `text` or `failed`).

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [modules, text] = process.argv.slice(2);
const given = JSON.parse(text);
const require = createRequire(`${modules}/here.js`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const say = (what) => console.log(JSON.stringify(what));
const callback = `http://127.0.0.1:${given.port}/callback`;

const { Client, StreamableHTTPClientTransport } = given.client === 'v1'
  ? { ...await load('@modelcontextprotocol/sdk/client/index.js'), ...await load('@modelcontextprotocol/sdk/client/streamableHttp.js') }
  : await load('@modelcontextprotocol/client');

let client = given.client_id
  ? { client_id: given.client_id, client_secret: given.client_secret, token_endpoint_auth_method: given.method }
  : undefined;
let tokens, verifier, code;

// One redirect; the page is opened when it is waited for.
function redirect(url) {
  return new Promise((resolve, reject) => {
    const server = createServer((request, response) => {
      const query = new URL(request.url, callback).searchParams;
      response.end('done');
      server.close();
      if (query.get('error')) reject(new Error(`${query.get('error')}: ${query.get('error_description') ?? ''}`));
      else resolve(query);
    });
    server.listen(given.port, '127.0.0.1', () => say({ open: String(url) }));
  });
}

const provider = {
  redirectUrl: callback,
  clientMetadataUrl: given.metadata_url,
  clientMetadata: {
    client_name: 'table of logins', redirect_uris: [callback], grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'], token_endpoint_auth_method: 'none',
  },
  clientInformation: () => client,
  saveClientInformation: (found) => { client = found; },
  tokens: () => tokens,
  saveTokens: (found) => { tokens = found; },
  redirectToAuthorization: (url) => { code = redirect(url); code.catch(() => {}); },
  saveCodeVerifier: (found) => { verifier = found; },
  codeVerifier: () => verifier,
};

const connection = () => new StreamableHTTPClientTransport(new URL(given.url), { authProvider: provider });
let transport = connection();
let session = new Client({ name: 'table', version: '1' });

// Do something, and once more after a login if that is what it takes, as the examples of the SDK do.
async function withLogin(work) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await work();
    } catch (problem) {
      if (!code || attempt > 1) throw problem;
      const query = await code;
      code = undefined;
      await transport.finishAuth(given.client === 'v1' ? query.get('code') : query);
    }
  }
}

let step = 'login';
try {
  await withLogin(async () => {
    transport = connection();
    session = new Client({ name: 'table', version: '1' });
    await session.connect(transport);
  });
  for (const [name, tool] of given.steps) {
    step = name;
    const before = tokens?.refresh_token;
    if (name === 'refresh' || name === 'again') tokens = { ...tokens, access_token: 'a-token-that-the-server-refuses' };
    const result = await withLogin(() => session.callTool({ name: tool, arguments: { text: 'hello' } }));
    say({ step, text: result.content[0].text, rotated: before !== tokens?.refresh_token, had: Boolean(tokens?.refresh_token) });
  }
} catch (problem) {
  say({ step, failed: `${problem.name}: ${problem.message}` });
}
process.exit(0);
