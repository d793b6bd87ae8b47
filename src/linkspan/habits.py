"""What other SDKs have under other names, and the line to write here instead. Loaded when a name is not found.

The pages docs/coming-from-fastmcp.md and docs/coming-from-mcp.md show the same names with the reasons.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Final

_PROXY: Final = (
    "server.define_tool with a function that returns client.call_tool(name, arguments), as examples/gateway.py does"
)

SERVER: Final[Mapping[str, str]] = {
    "add_completion_handler": "server.completion_handler(function)",
    "add_middleware": "server.middleware(function)",
    "add_prompt": "server.prompt(function)",
    "add_resource": "server.define_resource(uri, text=...) or @server.resource(uri)",
    "add_template": "server.define_resource_template(uri_template, read=function)",
    "add_tool": "server.tool(function)",
    "add_tool_transformation": "server.edit(name, Edit(...))",
    "add_transform": "server.edit(name, Edit(...)), or server.mount(other, edits=..., hide=...)",
    "as_proxy": _PROXY,
    "call_tool": "client.call_tool(name, arguments), with `SyncClient(server) as client`",
    "custom_route": "server.asgi(otherwise=app), where `app` is the application that has the route",
    "get_context": "linkspan.current_context()",
    "get_prompt": "client.get_prompt(name, arguments), with `SyncClient(server) as client`",
    "http_app": "server.asgi(path='/mcp')",
    "import_server": "server.mount(other, prefix)",
    "list_prompts": "client.list_prompts(), with `SyncClient(server) as client`",
    "list_resource_templates": "client.list_resource_templates(), with `SyncClient(server) as client`",
    "list_resources": "client.list_resources(), with `SyncClient(server) as client`",
    "list_tools": "client.list_tools(), with `SyncClient(server) as client`",
    "read_resource": "client.read_resource(uri), with `SyncClient(server) as client`",
    "run_async": "await server.serve()",
    "run_http_async": "await server.serve('http', port=...)",
    "run_sse_async": "await server.serve('http', http_sse='/sse')",
    "run_stdio_async": "await server.serve()",
    "run_streamable_http_async": "await server.serve('http', port=...)",
    "session_manager": "leave it out: server.asgi() has no session manager",
    "sse_app": "server.asgi(http_sse='/sse')",
    "streamable_http_app": "server.asgi(path='/mcp')",
}
"""What servers of other SDKs have."""

CONTEXT: Final[Mapping[str, str]] = {
    "call_tool": "the function of the tool itself",
    "client_capabilities": "ctx.peer.capabilities",
    "client_id": "ctx.principal",
    "close_sse_stream": "ctx.close_stream()",
    "close_standalone_sse_stream": "ctx.close_stream()",
    "elicit": "answer = ctx.ask('key', Type, 'message')",
    "elicit_url": "ctx.ask_url('key', url, 'message')",
    "fastmcp": "the name of the server variable",
    "get_state": "a variable of the handler, or between calls a database, with ctx.principal in the key",
    "lifespan_context": "ctx.lifespan",
    "mcp_server": "the name of the server variable",
    "notify_prompts_changed": "server.notify_prompts_list_changed()",
    "notify_resource_updated": "server.notify_resource_updated(uri)",
    "notify_resources_changed": "server.notify_resources_list_changed()",
    "notify_tools_changed": "server.notify_tools_list_changed()",
    "request_context": "ctx.lifespan, ctx.meta, ctx.headers or ctx.request_id",
    "send_notification": "ctx.notify(method, params)",
    "session": "ctx.ask, ctx.sample and ctx.roots for questions, ctx.log and ctx.progress for notifications",
    "session_id": "ctx.principal for who calls; modern clients have no session",
    "set_state": "a variable of the handler, or between calls a database, with ctx.principal in the key",
}
"""What contexts of other SDKs have."""

PACKAGE: Final[Mapping[str, str]] = {
    "ClientSession": "linkspan.Client",
    "ClientSessionGroup": "linkspan.ClientGroup",
    "FastMCP": "linkspan.Server",
    "create_proxy": _PROXY,
    "get_context": "linkspan.current_context",
    "MCPServer": "linkspan.Server",
    "Middleware": "@server.middleware",
    "StdioServerParameters": "Client(['python', 'server.py'])",
    "stdio_client": "Client(['python', 'server.py'])",
    "stdio_server": "server.run()",
    "streamablehttp_client": "Client('https://host/mcp')",
}
"""What packages of other SDKs have."""

_FUNCTION = "Protected(url, verify=function), where the function takes a token and returns a Grant or None"
_ELSEWHERE = (
    "Protected(url, issuer=...) with an authorization server that exists: this package has none, and no proxy for one"
)
_PLAIN = "Protected(url, issuer=...), with the issuer of the provider"

AUTH: Final[Mapping[str, str]] = {
    **dict.fromkeys(("AuthProvider", "RemoteAuthProvider"), "Protected(url, issuer=...)"),
    "AuthSettings": "Protected(resource_server_url, issuer=issuer_url, scopes=required_scopes)",
    **dict.fromkeys(
        ("BearerAuthProvider", "JWTVerifier"),
        "Protected(url, verify=Jwt(issuer, keys=public_key)), without keys= where the issuer publishes them",
    ),
    "IntrospectionTokenVerifier": "Protected(url, verify=Introspection(issuer, client_id, client_secret))",
    "StaticTokenVerifier": "Protected(url, verify=ApiKeys({sha256_of_a_key: Grant(...)}))",
    "RSAKeyPair": "Jwt(issuer, keys=public_key) for tokens that a program of yours makes",
    "MultiAuth": "Protected(url, verify=[...])",
    **dict.fromkeys(
        (
            "DebugTokenVerifier",
            "DiscordProvider",
            "DiscordTokenVerifier",
            "HuggingFaceProvider",
            "HuggingFaceTokenVerifier",
            "TokenVerifier",
        ),
        _FUNCTION,
    ),
    **dict.fromkeys(
        (
            "InMemoryOAuthProvider",
            "OAuthAuthorizationServerProvider",
            "OAuthProvider",
            "OAuthProxy",
            "OIDCProxy",
            "ProviderTokenVerifier",
            "create_auth_routes",
        ),
        _ELSEWHERE,
    ),
    **dict.fromkeys(("GoogleProvider", "GoogleTokenVerifier"), "Protected.google(client_id, resource=url)"),
    **dict.fromkeys(("GitHubProvider", "GitHubTokenVerifier"), "Protected.github(client_id, secret, resource=url)"),
    **dict.fromkeys(("AzureProvider", "AzureJWTVerifier"), "Protected.entra(tenant, app_id, resource=url)"),
    **dict.fromkeys(("Auth0Provider", "Auth0JWTVerifier", "Auth0MCPProvider"), "Protected.auth0(domain, resource=url)"),
    **dict.fromkeys(
        ("AWSCognitoProvider", "AWSCognitoTokenVerifier"), "Protected.cognito(pool, client_ids, resource=url)"
    ),
    "KeycloakAuthProvider": "Protected.keycloak(realm_url, resource=url)",
    **dict.fromkeys(
        (
            "AuthKitProvider",
            "ClerkProvider",
            "ClerkTokenVerifier",
            "DescopeProvider",
            "OCIProvider",
            "PropelAuthProvider",
            "ScalekitProvider",
            "SupabaseProvider",
            "WorkOSProvider",
            "WorkOSTokenVerifier",
        ),
        _PLAIN,
    ),
    **dict.fromkeys(("BearerAuthBackend", "RequireAuthMiddleware"), "Server(name, auth=Protected(url, issuer=...))"),
    **dict.fromkeys(
        ("ClientRegistrationOptions", "RevocationOptions"),
        "leave it out: the authorization server has it, not this one",
    ),
    "require_scopes": "scopes=[...] of the tool, prompt or resource",
    "require_roles": "when=lambda ctx: ctx.grant is not None and 'admin' in ctx.grant.roles",
    **dict.fromkeys(("AuthCheck", "AuthContext", "restrict_tag", "run_auth_checks"), "when=lambda ctx: ..."),
    "AccessToken": "linkspan.Grant",
    "get_access_token": "ctx.grant, or linkspan.current_context().grant",
    "BearerAuth": "Client(url, auth='token')",
    "OAuthClientProvider": "Client(url, auth=OAuth())",
    "TokenStorage": "leave it out: logins are kept by themselves, for all programs of the user",
    "ClientCredentialsOAuthProvider": "Client(url, auth=ClientCredentials(client_id, secret=...))",
    "PrivateKeyJWTOAuthProvider": "Client(url, auth=ClientCredentials(client_id, key=...))",
}
"""What other SDKs have for logins and tokens. On loopback `resource=` may be left out."""

RESULT: Final[Mapping[str, str]] = {
    "data": "result.structured, or result.decode(Type) for a value of a type",
    "isError": "result.is_error",
    "structuredContent": "result.structured",
    "structured_content": "result.structured",
}
"""What results of tools of other SDKs have."""

KEYWORDS: Final[Mapping[str, str]] = {
    "as_proxy": "leave it out: a mounted server keeps its own lifespan and middleware",
    "auth": "scopes=[...] or when=... for an item, Server(auth=Protected(url, issuer=...)) for all",
    "auth_server_provider": _ELSEWHERE,
    "cache_ttl": "Server(ttl_ms=...), in milliseconds",
    "dependencies": "leave it out: the environment that runs the server has them",
    "debug": "leave it out: logging shows what happens, logger 'linkspan'",
    "enabled": "server.disable(name)",
    "exclude_tags": "server.disable(tag)",
    "host": "server.run('http', host=...)",
    "json_response": "leave it out: a response is JSON unless something is sent before it",
    "list_page_size": "Server(page_size=...)",
    "log_level": "logging.basicConfig(level=...)",
    "mask_error_details": "leave it out: exceptions are masked; Configuration(tool_error_mode='message') shows them",
    "middleware": "server.middleware(function)",
    "mount_path": "server.asgi(path=...)",
    "namespace": "server.mount(other, prefix)",
    "on_duplicate": "leave it out: a name that is taken is refused; server.remove_tool(name) makes room",
    "port": "server.run('http', port=...)",
    "run_in_thread": "leave it out: a plain function runs in a thread; inline=True runs it where the transport is",
    "stateless_http": "server.run('http', sessions=False), or server.asgi(sessions=False)",
    "strict_input_validation": "leave it out: arguments are checked; Server(coerce=True) reads texts where numbers are wanted",
    "streamable_http_path": "server.run('http', path=...)",
    "structured_output": "structured=True or structured=False",
    "task": "leave it out here: tools run as tasks, with @server.tool(task=True)",
    "token_verifier": "Server(auth=Protected(url, verify=function))",
    "tool_names": "server.mount(other, rename={...})",
}
"""Keywords of servers and decorators of other SDKs."""


def missing(owner: str, name: str, known: Mapping[str, str]) -> str:
    """Return the text of the error for a name that `owner` does not have, with what to use instead if another SDK has it."""
    instead = known.get(name)
    return f"{owner} has no {name!r}" + (f": {_imperative(instead)}" if instead is not None else "")


def missing_import(module: str, name: str) -> Exception:
    """Return the error for a name that a package of ours does not have: `from ... import` hides the text of an AttributeError."""
    known = {**AUTH, **PACKAGE}
    if name in known:
        return ImportError(missing(module, name, known), name=module)
    near = get_close_matches(name, dir(sys.modules[module]), 1)
    in_import = sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap"  # pyright: ignore[reportPrivateUsage]
    if near and in_import and find_spec(f"{module}.{name}") is None:
        return ImportError(f"{module} has no {name!r}: did you mean {near[0]!r}?", name=module)
    return AttributeError(f"module {module!r} has no attribute {name!r}")


def instead_of_auth(given: object) -> str:
    """Return what to write where a server was given something else than a `Protected`; without its value, a secret perhaps."""
    kind = type(given)
    line = next((AUTH[each.__name__] for each in kind.__mro__ if each.__name__ in AUTH), None)
    return _imperative(_line_for(given) if line is None or kind.__module__.startswith("linkspan.") else line)


def _line_for(given: object) -> str:
    kind = type(given)
    if isinstance(given, str | bytes):
        return f"{AUTH['StaticTokenVerifier']} for keys that you hand out"
    if kind.__name__ in ("ApiKeys", "Introspection", "Jwt"):
        return f"Protected(url, verify={kind.__name__}(...))"
    if kind.__module__ == "linkspan.auth.identities":
        return f"Client(url, auth={kind.__name__}(...)), since it logs a client in"
    return _FUNCTION if callable(given) or hasattr(given, "verify_token") else "Protected(url, issuer=...)"


def _imperative(instead: str) -> str:
    return instead if instead.startswith("leave ") else f"use {instead}"
