"""Skills with FastMCP: `server FOLDER` offers them over stdio, `client COMMAND...` reads and verifies those of a server."""

import asyncio
import base64
import json
import sys


async def read(command: list[str]) -> None:
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport
    from fastmcp.skills import SkillsClientExtension

    async with Client(StdioTransport(command[0], command[1:]), extensions=[SkillsClientExtension()]) as client:
        skills = await client.list_skills()
        files = {}
        for each in skills:
            if each.resources == "dynamic":
                continue
            root = each.uri.removesuffix("SKILL.md")
            skill = await client.read_skill(each.uri)
            for path, data in skill.files.items():
                files[root + path] = base64.b64encode(data if isinstance(data, bytes) else data.content).decode()
        print(json.dumps({"skills": [each.model_dump(mode="json", by_alias=True) for each in skills], "files": files}))


def serve(folder: str) -> None:
    from fastmcp import FastMCP
    from fastmcp.skills.provider import SkillsDirectoryProvider

    server = FastMCP("fastmcp")
    server.add_provider(SkillsDirectoryProvider(folder))
    server.run(show_banner=False)


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "client":
        asyncio.run(read(rest))
    else:
        serve(rest[0])
