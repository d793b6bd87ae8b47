"""Log in with the client of this package: `python ours.py '{"url": ..., "port": ...}'`; with "dpop" bound to a key.

Prints a line of JSON for each page to open (`open`), and for each step (`step`, with `text` or `failed`).
"""

from __future__ import annotations

import json
import sys
from typing import Any

from linkspan import LinkspanError, SyncClient
from linkspan.auth import OAuth
from linkspan.client import authorizing
from linkspan.client.vault import Vault

given = json.loads(sys.argv[1])


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def tokens(**changed: Any) -> dict[str, Any]:
    """Return the login that is stored, and change it."""
    vault = Vault()
    (place,) = [each for each in vault.all_keys() if each[0] == "grant"]
    found: dict[str, Any] = json.loads(vault.load(place) or b"{}")
    if changed:
        vault.save(place, json.dumps({**found, **changed}).encode())
    return found


def main() -> None:
    auth = OAuth(
        open_url=lambda url: say(open=url),
        client_id=given.get("client_id"),
        client_secret=given.get("client_secret"),
        client_metadata_url=given.get("metadata_url"),
        redirect_port=given["port"],
        scopes=given.get("scopes", ()),
        dpop=True if given.get("dpop") else "auto",
    )
    step = "login"
    try:
        for step, tool in given["steps"]:
            before = tokens() if step != "login" else {}
            if step in ("refresh", "again"):
                tokens(expires=1.0, due=1.0)
            authorizing._accesses.clear()  # begin with what is stored, as another process does
            with SyncClient(given["url"], auth=auth) as client:
                text = client.call_tool(tool, {"text": "hello"}).text
            now = tokens()
            rotated = before.get("refresh_token") != now.get("refresh_token")
            say(step=step, text=text, rotated=rotated, had=bool(now.get("refresh_token")))
    except LinkspanError as problem:
        say(step=step, failed=str(problem))


main()
