"""Make endpoints of servers, and serve one over HTTP with uvicorn: `server.run("http")`."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from linkspan.core.endpoint import Endpoint
from linkspan.core.http_policy import LOOPBACK, HttpPolicy
from linkspan.io.system import SYSTEM

if TYPE_CHECKING:
    from linkspan.server.server import Server

__all__ = ["make_endpoint", "serve_http"]


def make_endpoint(server: Server, policy: HttpPolicy) -> Endpoint:
    """Return the machine behind `server.asgi()` and `server.wsgi()`."""
    return Endpoint(
        server,
        policy,
        limits=server.connect(one_shot=True).limits,
        clock=SYSTEM.clock,
        random=SYSTEM.random,
        lock=threading.RLock,
    )


def loopback_policy(policy: HttpPolicy, host: str) -> HttpPolicy:
    """Return the policy with what a server on loopback needs: nobody may reach it through a browser's DNS (SEC-1)."""
    if host not in ("127.0.0.1", "localhost", "::1"):
        return policy
    hosts = policy.allowed_hosts if policy.allowed_hosts is not None else LOOPBACK
    return msgspec.structs.replace(policy, allowed_hosts=hosts, page=True if policy.page is None else policy.page)


def serve_http(
    server: Server,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    path: str = "/mcp",
    policy: HttpPolicy | None = None,
    health: str = "/health",
    **options: Any,
) -> int:
    """Serve over HTTP until the process is asked to stop; return the exit code. `options` go to uvicorn.

    Raises: RuntimeError with a sentence where uvicorn is not installed.
    """
    try:
        import uvicorn
    except ImportError:
        raise RuntimeError("serving HTTP needs uvicorn: pip install 'linkspan[http]'") from None
    from linkspan.io.asgi import AsgiApp

    app = AsgiApp(make_endpoint(server, loopback_policy(policy or HttpPolicy(), host)), path=path, health=health)
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(f"Serving MCP at http://{shown}:{port}{path}\n")
    settings: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": 5, "lifespan": "on", **options}
    uvicorn.run(app, host=host, port=port, access_log=False, **settings)
    return 0
