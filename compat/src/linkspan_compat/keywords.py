"""Keywords of the SDKs that are not read here: each is refused with the line to write, or logged as one without effect."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from linkspan_compat.errors import NotServed

__all__ = ["check", "refusal", "without_effect"]

logger = logging.getLogger("linkspan.compat")

_REFUSED: Final[Mapping[str, str]] = {
    "additional_client_metadata": "linkspan.auth.OAuth(client_name=..., scopes=[...])",
    "app": "Apps, as the page on apps shows it",
    "assertion_provider": "linkspan.auth.ClientCredentials(client_id, key=private_key)",
    "auth": "@server.tool(scopes=['name']) with Server(auth=Protected(...))",
    "cache": "Client(target, max_cached_bytes=...)",
    "challenge_scopes": "Protected(url, scopes=[...])",
    "credential_provider": "Server(store='redis://user:password@host'), with a password in the URL",
    "cookies": "Client(url, headers={'cookie': ...})",
    "event_hooks": "Client(url, on_http=function)",
    "extensions": "Server(extensions=[...]) or Client(target, extensions=[...])",
    "get_tool_input_schema": "@server.tool(schema=...)",
    "http_client": "Protected(url, verify=Jwt(issuer)), which fetches keys by itself",
    "input_responses": "Client(target, elicitation=function), which answers and calls again",
    "meta": "client.call_tool(name, arguments, meta=...)",
    "metadata": "client.request(method, params)",
    "mounts": "Client(url)",
    "params": "Client(url + '?name=value')",
    "prior_discover": "Client(target, era='modern')",
    "proxy": "Client(url), with a tunnel or a gateway in front of the server",
    "request_state": "Client(target, elicitation=function), which answers and calls again",
    "request_state_security": "Server(request_state_keys=[...])",
    "resource_security": "nothing: a variable of a template that leads out of a folder is refused",
    "routes": "server.asgi(otherwise=app), where `app` is the application that has the routes",
    "security": "nothing: a variable of a template that leads out of a folder is refused",
    "httpx_client_factory": "linkspan.auth.OAuth(...), whose requests the client sends by itself",
    "ssrf_safe": "Jwt(issuer), which fetches keys from the issuer alone",
    "task": "@server.tool(task=True)",
    "task_meta": "client.tasks.call_tool(name, arguments)",
    "tool_transformations": "server.edit(name, Edit(...))",
    "transport": "Client(server), for a server in this process",
    "token_storage": "linkspan.auth.OAuth(logins=...)",
    "transforms": "server.edit(name, Edit(...))",
    "version": "server.tool(name='name_v2')",
}
"""The line to write instead of a keyword."""

_OWN: Final = "see the pages on coming from mcp and from FastMCP"

_UNHEARD: Final = "what a client announces is not passed on to handlers"

_NEEDLESS: Final[Mapping[str, str]] = {
    "as_proxy": "requests always pass through the middleware of a mounted server",
    "auto_initialize": "a client connects when it is entered",
    "debug": "errors are logged with their tracebacks",
    "dependencies": "the environment that the server runs in has them",
    "description": "version 1 sends no description",
    "enable_rich_tracebacks": "tracebacks are plain",
    "encoding": "JSON is UTF-8",
    "encoding_error_handler": "JSON is UTF-8",
    "host_origin_protection": "hosts and origins are always checked on loopback; elsewhere `allowed_hosts` says which",
    "http2": "one connection carries one request at a time",
    "include_in_schema": "no schema of the routes is made",
    "jwks_refresh_interval": "keys are fetched again when a token names one that is not known",
    "json_response": "a result is JSON unless something is sent before it",
    "keep_alive": "a process ends with its client",
    "list_page_size": "a list comes in one page",
    "limits": "connections are kept by the client itself",
    "max_sse_event_size": "Limits(max_line_bytes=...) bounds what a server sends",
    "minimum_check_interval": "a task begins as soon as there is room",
    "name": "tasks are kept under the name of their server",
    "reconnection_delay": "the store decides when it is tried again",
    "redelivery_timeout": "the lease of a process that is gone ends by itself",
    "worker_name": "each process that serves also runs tasks",
    "message_path": "the stream of events names the path to post to",
    "mount_path": "the path comes with each request",
    "name_as_prefix": "one server needs no prefix",
    "raise_exceptions": "what a handler raises is answered and logged",
    "related_request_id": "what a handler sends belongs to its request",
    "serializable": "values are kept in this process as they are",
    "show_banner": "there is no banner",
    "sse_read_timeout": "each call has a deadline of its own, and a stream may be silent",
    "stateless": "each request says by itself what it needs",
    "subscriptions": "subscriptions are kept by the server itself",
    "terminate_on_close": "a session is ended when its client closes",
    "token_endpoint_auth_method": "the way that the authorization server lists is used",
    "trust_env": "variables of the environment are read as always",
    "validate_output": "tools of an API have no output schemas",
    "websocket_path": "there are no websockets",
}
"""Keywords that have no effect, and why none is missing."""

_LOST: Final[Mapping[str, str]] = {
    **dict.fromkeys(("cache_hints", "cache_scope", "cache_ttl"), "results do not say for how long they hold"),
    "client_log_level": "log messages of all levels are sent until the client chooses one",
    "dereference_schemas": "references in schemas are resolved",
    "include_fastmcp_meta": "lists have the tags of FastMCP in their `_meta`",
    "sampling_handler": "a question for a model goes to the client alone",
    "sampling_handler_behavior": "a question for a model goes to the client alone",
    "session_state_store": "values are kept in this process",
    "storage": "the token of a program is kept in memory, and asked for again by the next one",
    "event_store": "events are kept in this process, and the store of the program is not asked",
    "on_notification": _UNHEARD,
    "on_progress": _UNHEARD,
    "on_roots_list_changed": _UNHEARD,
    "on_subscriptions_listen": "subscriptions are kept by the server itself",
}
"""Keywords that have no effect, and something is missing: said at WARNING."""

_USUAL: Final[Mapping[str, Any]] = {
    "auto_initialize": True,
    "dereference_schemas": True,
    "include_fastmcp_meta": True,
    "include_in_schema": True,
    "keep_alive": True,
    "sampling_handler_behavior": "fallback",
    "sse_read_timeout": 300,
    "terminate_on_close": True,
    "token_endpoint_auth_method": "client_secret_basic",
    "validate_output": True,
    "validate_resource_url": True,
}
"""What a keyword is where nobody passes it, other than None, false or empty."""

_said: Final[set[tuple[str, str]]] = set()


def check(owner: str, given: Mapping[str, Any], known: str) -> None:
    """Refuse, or log once that it has no effect, what `owner` was given and does not read; `known` are its keywords.

    Raises: TypeError for a keyword that the SDK does not have either, NotServed.
    """
    names = known.split()
    for name, value in given.items():
        if name not in names:
            raise TypeError(f"{owner}() got an unexpected keyword argument {name!r}")
        if _is_usual(name, value):
            continue
        reason = _LOST.get(name) or _NEEDLESS.get(name)
        if reason is None:
            raise refusal(owner, name)
        without_effect(owner, name, reason, logging.WARNING if name in _LOST else logging.INFO)


def without_effect(owner: str, name: str, reason: str, level: int = logging.WARNING) -> None:
    """Log once that a keyword has no effect, and why, or what is missing."""
    if (owner, name) not in _said:
        _said.add((owner, name))
        logger.log(level, "%s(%s=...) has no effect: %s", owner, name, reason)


def refusal(owner: str, name: str) -> NotServed:
    """Return the error for a keyword that is not served."""
    line = _REFUSED.get(name, _OWN)
    return NotServed(f"{owner}({name}=...) is not served by linkspan-compat; write for Linkspan: {line}")


def _is_usual(name: str, value: Any) -> bool:
    if value is None or type(value).__name__ == "NotSetT":
        return True
    return bool(value == _USUAL[name]) if name in _USUAL else value is False or value in ((), [], {}, "")
