// How hits of the search are ordered: pages that explain come first, of equal ones those that people ask for in these words, those
// whose titles have all the words, and those that most people need; then single names, tutorials and the reference, what is inside,
// and the list of all names.
var First = /^(tools|asking|resources|client|http)$/;
var Tutorial = /^tutorial-/;
var Reference = /^(errors|limits|protocol|command-line-reference|security|versions|roadmap)/;
var Inside = /^(decisions\/|architecture|words|contributing|requirements|figures|error-texts|changelog)/;
var Words = (new URLSearchParams(location.search).get("q") || "").toLowerCase().split(/\s+/).filter(Boolean);
// The words in which people ask for a page, which need not be in it: conf.py adds them to what is searched.
var Asked = {
  "tools": "add register define tool function decorator parentheses runtime dynamic at description docstring annotations",
  "arguments": "required field missing parameter parameters argument enum choices literal default value optional union types nested object list date pydantic dataclass validation",
  "results": "file download base64 markdown return image picture audio file structured output json schema dataframe binary large",
  "tool-errors": "exception raise error message model traceback stack trace fail",
  "asking": "human in the loop approval confirm confirmation elicitation ask user input form question",
  "resources": "parameters resource file files folder directory template uri binary",
  "prompts": "prompt slash command autocomplete completion",
  "context": "access notification request headers header cookies client ip address current user id who calls session progress bar log inside tool metadata streaming partial",
  "dependencies": "inject injection depends singleton shared per request",
  "lifespan": "runs every session startup shutdown hook cleanup on exit start stop database pool connection singleton global state",
  "around-a-call": "middleware interceptor hook before after throttling throttle rate limiting audit logging",
  "tool-limits": "blocking call freezes long running tool timeout time out slow throttling concurrency parallel cpu bound",
  "visibility": "too many tools filter hide per user role permission enable disable",
  "mounting": "forward auth token upstream hide parameter compose combine merge servers sub server namespace prefix gateway proxy",
  "bridge": "stdio to http proxy sse gateway supergateway mcp-remote mcp-proxy aggregate",
  "changes": "send notifications client list changed notification add remove tools at runtime dynamic refresh subscribe",
  "tasks": "long running tool background job async task poll status resume cancel minutes hours",
  "engines": "celery dramatiq background job queue worker redis",
  "http": "scaling access streamable http sse transport stateless port host localhost cors 421 misdirected request invalid header allowed session not found multiple workers gunicorn uvicorn custom routes path expose public bind 0.0.0.0",
  "frameworks": "fastapi flask django starlette mount existing app custom routes endpoint",
  "deployment": "compose horizontal scaling session pods kubernetes k8s docker container helm pod ingress nginx health check readiness liveness production replicas multiple workers sticky session not found cloud scale",
  "serverless": "lambda vercel cloud run cold start azure functions cloudflare",
  "stores": "horizontal scaling sticky redis postgres session state persist sessions shared multiple workers replicas pods cache",
  "protecting-a-server": "trusted proxy identity bearer token api key authentication authorization jwt oauth login current user scopes single sign on azure entra id google github auth0 okta",
  "authorization": "oauth login single sign on token refresh pkce bearer headers client credentials authenticate redirect",
  "logins": "authorization servers tried oauth provider azure entra id google github auth0 okta cognito single sign on dynamic client registration",
  "client": "progress resets custom sync async synchronous without llm failed script failing connect call tool headers header authorization pass timeout retry reconnect caching cache keep alive connection",
  "client-errors": "unhandled errors taskgroup request timed retry failed call failing connection closed lost refused broken pipe server disconnected timeout exception catch",
  "many-servers": "connect to multiple servers several config group",
  "configuration": "mcp.json claude_desktop_config env environment variables spawn npx enoent command not found args",
  "host": "agent loop llm tool calling chat model too many tools consent approval",
  "models": "openai anthropic gemini ollama local llm api key model provider vllm",
  "debugging": "vscode see json messages message print breaks stdio stdout logging stderr server disconnected breakpoint debugger not working log file hangs",
  "doctor": "tool vscode does not work in claude cursor vscode showing up failed to connect server disconnected spawn npx enoent troubleshoot",
  "dev": "playground ui inspector web interface hot reload try test manually debug browser",
  "command-line": "claude code add server call tool without llm cli terminal install claude desktop cursor hot reload auto restart run",
  "testing": "unit test tests my server pytest mock fake integration in memory fixture",
  "transports": "custom stdio print breaks stdout websocket sse transport pipe memory in process choose",
  "telemetry": "opentelemetry tracing metrics prometheus spans logfire datadog observability monitoring",
  "versions": "protocol version negotiation supported unsupported revision backward compatibility python upgrade",
  "coming-from-fastmcp": "migrate migration fastmcp sse transport stateless_http session state",
  "coming-from-mcp": "mcpserver migrate migration official sdk mcp low level server",
  "not-here": "file upload websocket unsupported missing roadmap generate ui",
  "server": "list tools pagination create instructions name version icon decorator server.run main entry point print breaks stdio",
  "limits": "throttling maximum size too large message payload request body limit max",
  "security": "prompt injection dns rebinding attack sandbox safe secrets",
  "tutorial-5-three-files": "split tools across files organize large",
  "tracing": "record replay session",
  "error-texts": "error code ls meaning message"
};
var Small = /^(a|an|the|in|of|to|my|is|for|with|without|how|do|does|i|it|not|on|from|and|get|use|using|when|can|want|need|be|are|what|which|or)$/;
var stem = word => word.replace(/(ing|ed|s)$/, "");
// How many of the words, small ones aside, are among those in which people ask for a page: from 0 to 1.
var asked = page => {
  var known = (Asked[page] || "").split(" ").map(stem);
  var wanted = Words.filter(word => !Small.test(word));
  return wanted.filter(word => known.includes(stem(word))).length / (wanted.length || 1);
};
var named = title => Words.every(word => title.toLowerCase().includes(word));
var place = (page, title) =>
  Inside.test(page)
    ? -12
    : (First.test(page) ? 3 : Tutorial.test(page) || Reference.test(page) ? -6 : 0) + (named(title) ? 10 : 0) + 20 * asked(page) ** 2;
var Scorer = {
  score: ([page, title, anchor, description, score]) => score + (page !== "api" ? place(page, title) : anchor ? 0 : -50),
  objNameMatch: 4,
  objPartialMatch: 1,
  objPrio: { 0: 0, 1: -2, 2: -4 },
  objPrioDefault: 0,
  title: 16,
  partialTitle: 8,
  term: 6,
  partialTerm: 2,
};

// Sphinx finds pages that have each word. People write sentences, so a page counts that has half of what its words weigh: rare words
// weigh more, those of headings more than those of the text, and those of long texts less, since these have nearly any word.
if (typeof Search !== "undefined") {
  Search.performTermsSearch = (wanted, excluded) => {
    const { terms, titleterms, docnames, titles, filenames } = Search._index;
    const listed = (index, word) => (Object.hasOwn(index, word) ? [index[word]].flat() : []);
    const lengths = docnames.map(() => 0);
    for (const files of Object.values(terms)) for (const file of [files].flat()) lengths[file] += 1;
    const usual = lengths.reduce((sum, each) => sum + each, 0) / lengths.length;
    const found = new Map();
    let whole = 0;
    for (const word of wanted) {
      const begun = index => Object.keys(index).filter(each => word.length > 3 && each.startsWith(word)).flatMap(each => listed(index, each));
      const inTitles = new Set([...listed(titleterms, word), ...begun(titleterms)]);
      const inTexts = new Set([...listed(terms, word), ...begun(terms)]);
      const all = new Set([...inTitles, ...inTexts]);
      const weight = all.size ? Math.log(1 + docnames.length / all.size) : 0; // a word that is nowhere says nothing
      whole += weight;
      for (const file of all) {
        const named = titles[file].toLowerCase().includes(word) ? 1.5 : inTitles.has(file) ? 1 : 0;
        const share = Math.max(named, 0.6 / (0.5 + (0.5 * lengths[file]) / usual));
        const [sum, seen] = found.get(file) ?? [0, 0];
        found.set(file, [sum + weight * share, seen + weight]);
      }
    }
    for (const word of excluded) for (const file of [...listed(terms, word), ...listed(titleterms, word)]) found.delete(file);
    return [...found].filter(([, [, seen]]) => seen >= whole / 2).map(([file, [sum]]) =>
      [docnames[file], titles[file], "", null, (30 * sum) / (whole || 1), filenames[file], SearchResultKind.text]);
  };
}
