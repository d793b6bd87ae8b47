"""The client that the official conformance suite talks to: one program, told by the environment what to do.

    MCP_CONFORMANCE_SCENARIO=tools_call python conformance/client.py http://localhost:3000/mcp

With `--asyncio` before the URL, it is the client for event loops; with `--bridge`, it talks to `linkspan bridge URL --stdio`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any
from urllib.request import urlopen

from linkspan import Client, ClientError, SyncClient
from linkspan.auth import ClientCredentials, Enterprise, OAuth, WorkloadIdentity
from linkspan.skills import ClientSkills, SyncClientSkills

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "tools_call")
REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


def initialize(client: SyncClient) -> None:
    client.list_tools()


def tools_call(client: SyncClient) -> None:
    client.list_tools()
    client.call_tool("add_numbers", {"a": 5, "b": 3})


def elicitation_defaults(client: SyncClient) -> None:
    client.call_tool("test_client_elicitation_defaults", {})


def reconnect(client: SyncClient) -> None:
    client.call_tool("test_reconnection", {})


def request_metadata(client: SyncClient) -> None:
    for tool in client.list_tools():
        client.call_tool(tool.name, {})


def standard_headers(client: SyncClient) -> None:
    client.list_tools()
    client.call_tool("test_headers", {})
    client.call_tool("my-hyphenated-tool", {})
    for resource in client.list_resources():
        client.read_resource(resource.uri)
    client.list_prompts()
    client.get_prompt("test_prompt")


def custom_headers(client: SyncClient) -> None:
    client.list_tools()
    for call in CONTEXT["toolCalls"]:
        client.call_tool(call["name"], call["arguments"])


def every_tool(client: SyncClient) -> None:
    for tool in client.list_tools():
        try:
            client.call_tool(tool.name, {})
        except ClientError as error:  # some of them are there to be refused
            print(error, file=sys.stderr)


def list_only(client: SyncClient) -> None:
    client.list_tools()


def preserve_schema(client: SyncClient) -> None:
    (schema,) = (tool.input_schema for tool in client.list_tools() if tool.name == "json_schema_2020_12_tool")
    client.call_tool("json_schema_echo", {"schema": schema})


def rounds(client: SyncClient) -> None:
    for name in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"):
        client.call_tool(name, {})


def visit(url: str) -> str | None:
    """Log in as a browser would: the suite's server has no page, and redirects at once."""
    connection = HTTPConnection(url.split("/")[2])
    connection.request("GET", url)
    return connection.getresponse().headers["location"]


def browse(url: str) -> int:
    """Be the browser of a bridge: follow the redirect to it."""
    location = visit(url)
    if location is not None:
        urlopen(location).close()
    return 0


def bridged(url: str) -> tuple[list[str], dict[str, str]]:
    """Return the command of a bridge to a URL, and its environment; log in before where the client is registered already."""
    program = [sys.executable, "-m", "linkspan"]
    browser = f"{sys.executable} {os.path.abspath(__file__)} --browse %s &"
    env = {"BROWSER": browser} | {f"XDG_{each}_HOME": tempfile.mkdtemp() for each in ("DATA", "STATE")}
    if "client_id" in CONTEXT and SCENARIO.startswith("auth/"):
        secret = {"LINKSPAN_CLIENT_SECRET": CONTEXT["client_secret"]} if "client_secret" in CONTEXT else {}
        login = [*program, "login", url, "--client-id", CONTEXT["client_id"], *(["--client-secret"] if secret else [])]
        subprocess.run(login, env=os.environ | env | secret, stdout=sys.stderr)
    return [*program, "bridge", url, "--stdio"], env


def identity() -> Any:
    """Return who asks, by what the suite gives us."""
    given = {name: CONTEXT[name] for name in ("client_id", "client_secret") if name in CONTEXT}
    if "idp_id_token" in CONTEXT:
        idp = {name: CONTEXT[name] for name in ("idp_client_id", "idp_token_endpoint")}
        return Enterprise(idp=CONTEXT["idp_issuer"], subject=lambda *_: CONTEXT["idp_id_token"], **idp, **given)
    if "valid_jwt" in CONTEXT:
        return WorkloadIdentity(lambda *_: CONTEXT["valid_jwt"])
    if SCENARIO.startswith("auth/client-credentials"):
        return ClientCredentials(given["client_id"], given.get("client_secret"), key=CONTEXT.get("private_key_pem"))
    return OAuth(open_url=visit, client_metadata_url="https://conformance-test.local/client-metadata.json", **given)


class OnLoop:
    """The client for event loops, with the methods of the other one."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._runner, self.client = asyncio.Runner(), Client(*arguments, **options)
        self.run = self._runner.run

    def __enter__(self) -> Any:
        self._runner.run(self.client.connect())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self.client.close())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self._runner.run(getattr(self.client, name)(*arguments, **options))


def list_skills(client: Any) -> None:
    skills_of(client).list()


def use_skill(client: Any) -> None:
    """Load the skill, then read a file of it: what is not as its entry says is refused, and nothing else is asked for."""
    (skill,) = skills_of(client).list()
    skill.load()
    skill.read_text("references/FORMS.md")


def use_unlisted(client: Any) -> None:
    (skill,) = skills_of(client).list()
    skill.load()
    skill.read_text("scripts/extract.py")


def skills_of(client: Any) -> Any:
    return SkillsOnLoop(client) if isinstance(client, OnLoop) else SyncClientSkills(client)


class SkillsOnLoop:
    """The skills for event loops, with the methods of the others."""

    def __init__(self, client: OnLoop) -> None:
        self._run, self._skills = client.run, ClientSkills(client.client)

    def list(self) -> list[Any]:
        return [SkillOnLoop(self._run, each) for each in self._run(self._skills.list())]


class SkillOnLoop:
    def __init__(self, run: Callable[[Any], Any], skill: Any) -> None:
        self._run, self._skill = run, skill

    def load(self) -> Any:
        return self._run(self._skill.load())

    def read_text(self, path: str) -> Any:
        return self._run(self._skill.read_text(path))


SCENARIOS: dict[str, Callable[[SyncClient], None]] = {
    "initialize": initialize,
    "tools_call": tools_call,
    "elicitation-sep1034-client-defaults": elicitation_defaults,
    "sse-retry": reconnect,
    "request-metadata": request_metadata,
    "http-standard-headers": standard_headers,
    "http-custom-headers": custom_headers,
    "http-invalid-tool-headers": every_tool,
    "json-schema-ref-no-deref": list_only,
    "json-schema-2020-12-preservation": preserve_schema,
    "sep-2322-client-request-state": rounds,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": use_skill,
    "sep-2640-client-verify-size": use_skill,
    "sep-2640-client-verify-frontmatter": use_skill,
    "sep-2640-client-verify-unlisted": use_unlisted,
}


def main() -> int:
    if "--browse" in sys.argv:
        return browse(sys.argv[-1])
    scenario = request_metadata if SCENARIO.startswith("auth/") else SCENARIOS.get(SCENARIO)
    if scenario is None:
        print(f"no such scenario here: {SCENARIO}", file=sys.stderr)
        return 2
    os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp()
    confirm = {"confirmed": True} if SCENARIO == "sep-2322-client-request-state" else {}
    auth = identity() if scenario is request_metadata and SCENARIO.startswith("auth/") else None
    face: Any = OnLoop if "--asyncio" in sys.argv else SyncClient
    target: Any = sys.argv[-1]
    options: dict[str, Any] = {"auth": auth}
    if "--bridge" in sys.argv:
        target, env = bridged(target)
        options = {"env": env, "on_stderr": sys.stderr.write}
    with face(target, protocol_version=REVISION, elicitation=lambda asked: confirm, **options) as client:
        scenario(client)
    return 0


if __name__ == "__main__":
    sys.exit(main())
