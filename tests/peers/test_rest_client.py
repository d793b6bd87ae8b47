"""A TypeScript client, typed by what openapi-typescript makes of the document of `rest_app`, calls a tool that asks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Annotated

from npm_servers import INSTALLING, node_modules

from linkspan import Ask, Server
from linkspan.openapi import rest_app
from over_http import serving

pytestmark = INSTALLING

SCRIPT = Path(__file__).with_name("rest_client.mts")
STRICT = ("--strict", "--noEmitOnError", "--skipLibCheck", "--module", "nodenext", "--target", "es2022")


def test_a_generated_typescript_client_answers_a_question(tmp_path: Path) -> None:
    server = Server("shop")

    @server.tool
    def book(date: str, seats: Annotated[int, Ask("How many seats?")]) -> str:
        return f"{seats} seats on {date}"

    packages = tmp_path / "node_modules"
    packages.symlink_to(node_modules())
    (tmp_path / SCRIPT.name).write_bytes(SCRIPT.read_bytes())

    def run(script: str, *arguments: str) -> str:
        command = ["node", script, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with serving(rest_app(server)) as url:
        base = url.removesuffix("/mcp") + "/api"
        run("node_modules/openapi-typescript/bin/cli.js", f"{base}/openapi.json", "-o", "api.d.ts")
        run("node_modules/typescript/bin/tsc", *STRICT, SCRIPT.name)
        assert json.loads(run("rest_client.mjs", base)) == [[409, ["seats"]], [200, "4 seats on Monday"]]
