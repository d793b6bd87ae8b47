// Skills with the TypeScript SDK: `server FOLDER` offers them over stdio, `client COMMAND...` reads and verifies those of a server.
const [verb, ...rest] = process.argv.slice(2);

if (verb === "server") {
  const { McpServer } = await import("@modelcontextprotocol/server");
  const { loadSkills } = await import("@modelcontextprotocol/server/ext/skills/node");
  const { serveStdio } = await import("@modelcontextprotocol/server/stdio");
  const skills = await loadSkills(rest[0]);
  serveStdio(() => {
    const server = new McpServer({ name: "typescript", version: "1" });
    skills.attach(server);
    return server;
  });
} else {
  const { Client } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const { SkillsClient } = await import("@modelcontextprotocol/client/ext/skills");
  const [command, ...args] = rest;
  const options = { versionNegotiation: { mode: "auto" } };
  const client = new Client({ name: "typescript", version: "1" }, options);
  await client.connect(new StdioClientTransport({ command, args }));
  const skills = new SkillsClient(client);
  const { skills: listed } = await skills.list();
  const files = {};
  for (const each of listed) {
    const { skill } = await skills.get(each.uri);
    if (skill.resources === "dynamic") {
      files[skill.uri] = Buffer.from((await skills.read(skill)).bytes).toString("base64");
      continue;
    }
    for (const file of skill.resources) {
      const read = await skills.read(skill, file.uri);
      if (!read.verified) throw new Error(`${file.uri} was not verified`);
      files[file.uri] = Buffer.from(read.bytes).toString("base64");
    }
  }
  const directory = (await skills.readDirectory("skill://pdf")).resources;
  console.log(JSON.stringify({ skills: listed, files, directory }));
  await client.close();
}
