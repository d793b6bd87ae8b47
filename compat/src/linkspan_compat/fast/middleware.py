"""Middleware of FastMCP: objects with a method for each kind of request, and those that come with it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from linkspan_compat.errors import MCPError
from linkspan_compat.keywords import check

__all__ = [
    "DetailedTimingMiddleware",
    "ErrorHandlingMiddleware",
    "LoggingMiddleware",
    "Middleware",
    "MiddlewareContext",
    "RateLimitError",
    "RateLimitingMiddleware",
    "RetryMiddleware",
    "SlidingWindowRateLimitingMiddleware",
    "StructuredLoggingMiddleware",
    "TimingMiddleware",
]


@dataclass(frozen=True)
class MiddlewareContext:
    """One message: its method, its params as `message`, and the context."""

    message: Any
    fastmcp_context: Any = None
    source: str = "client"
    type: str = "request"
    method: str | None = None
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __class_getitem__(cls, _: object) -> Any:
        return cls

    def copy(self, **changed: Any) -> MiddlewareContext:
        """Return it with other members."""
        return replace(self, **changed)


_HOOKS = {
    "tools/call": "on_call_tool",
    "resources/read": "on_read_resource",
    "prompts/get": "on_get_prompt",
    "tools/list": "on_list_tools",
    "resources/list": "on_list_resources",
    "resources/templates/list": "on_list_resource_templates",
    "prompts/list": "on_list_prompts",
    "initialize": "on_initialize",
}


class Middleware:
    """Base of middleware: each method gets the message, and what goes on with it."""

    async def __call__(self, context: MiddlewareContext, call_next: Any) -> Any:
        """Pass a message through the methods that it is for, the most general first."""
        call = call_next
        specific = _HOOKS.get(context.method or "")
        for hook in (specific, f"on_{context.type}", "on_message"):
            if hook is not None:
                call = _step(getattr(self, hook), call)
        return await call(context)

    async def on_message(self, context: Any, call_next: Any) -> Any:
        """Surround any message."""
        return await call_next(context)

    async def on_request(self, context: Any, call_next: Any) -> Any:
        """Surround requests."""
        return await call_next(context)

    async def on_notification(self, context: Any, call_next: Any) -> Any:
        """Surround notifications."""
        return await call_next(context)

    async def on_initialize(self, context: Any, call_next: Any) -> Any:
        """Surround the handshake; here that is the library's own, and this is not called."""
        return await call_next(context)

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        """Surround calls of tools."""
        return await call_next(context)

    async def on_read_resource(self, context: Any, call_next: Any) -> Any:
        """Surround reads."""
        return await call_next(context)

    async def on_get_prompt(self, context: Any, call_next: Any) -> Any:
        """Surround prompts."""
        return await call_next(context)

    async def on_list_tools(self, context: Any, call_next: Any) -> Any:
        """Surround the list of tools."""
        return await call_next(context)

    async def on_list_resources(self, context: Any, call_next: Any) -> Any:
        """Surround the list of resources."""
        return await call_next(context)

    async def on_list_resource_templates(self, context: Any, call_next: Any) -> Any:
        """Surround the list of templates."""
        return await call_next(context)

    async def on_list_prompts(self, context: Any, call_next: Any) -> Any:
        """Surround the list of prompts."""
        return await call_next(context)


def _step(method: Any, call: Any) -> Any:
    async def going(context: Any) -> Any:
        return await method(context, call)

    return going


class TimingMiddleware(Middleware):
    """Logs how long requests take."""

    def __init__(self, logger: logging.Logger | None = None, log_level: int = logging.INFO) -> None:
        self.logger = logger or logging.getLogger("fastmcp.timing")
        self.log_level = log_level

    async def on_request(self, context: Any, call_next: Any) -> Any:
        """Measure one."""
        began = time.perf_counter()
        try:
            found = await call_next(context)
        except Exception as error:
            took = (time.perf_counter() - began) * 1000
            self.logger.log(self.log_level, "Request %s failed after %.2fms: %s", context.method, took, error)
            raise
        self.logger.log(
            self.log_level, "Request %s completed in %.2fms", context.method, (time.perf_counter() - began) * 1000
        )
        return found


class DetailedTimingMiddleware(TimingMiddleware):
    """The same."""


class LoggingMiddleware(Middleware):
    """Logs messages."""

    def __init__(
        self,
        logger: logging.Logger | None = None,
        log_level: int = logging.INFO,
        include_payloads: bool = False,
        max_payload_length: int = 1000,
        methods: list[str] | None = None,
        **more: Any,
    ) -> None:
        check(type(self).__name__, more, "include_payload_length estimate_payload_tokens payload_serializer")
        self.logger = logger or logging.getLogger("fastmcp.requests")
        self.log_level = log_level
        self.include_payloads = include_payloads
        self.max_payload_length = max_payload_length
        self.methods = methods

    async def on_message(self, context: Any, call_next: Any) -> Any:
        """Log one."""
        if self.methods is not None and context.method not in self.methods:
            return await call_next(context)
        payload = f" payload={context.message!s}"[: self.max_payload_length] if self.include_payloads else ""
        began = time.perf_counter()
        self.logger.log(
            self.log_level, "event=request_start method=%s source=%s%s", context.method, context.source, payload
        )
        try:
            found = await call_next(context)
        except Exception as error:
            self.logger.log(logging.ERROR, "event=request_error method=%s error=%s", context.method, error)
            raise
        took = (time.perf_counter() - began) * 1000
        self.logger.log(self.log_level, "event=request_success method=%s duration_ms=%.2f", context.method, took)
        return found


class StructuredLoggingMiddleware(LoggingMiddleware):
    """The same."""


class ErrorHandlingMiddleware(Middleware):
    """Logs and counts exceptions, and answers them with codes."""

    def __init__(
        self,
        logger: logging.Logger | None = None,
        include_traceback: bool = False,
        error_callback: Callable[[Exception, Any], None] | None = None,
        transform_errors: bool = True,
    ) -> None:
        self.logger = logger or logging.getLogger("fastmcp.errors")
        self.include_traceback = include_traceback
        self.error_callback = error_callback
        self.transform_errors = transform_errors
        self.error_counts: dict[str, int] = defaultdict(int)

    async def on_message(self, context: Any, call_next: Any) -> Any:
        """Handle what one raises."""
        try:
            return await call_next(context)
        except Exception as error:
            self.error_counts[f"{type(error).__name__}:{context.method or 'unknown'}"] += 1
            self.logger.error(
                "Error in %s: %s: %s", context.method, type(error).__name__, error, exc_info=self.include_traceback
            )
            if self.error_callback is not None:
                self.error_callback(error, context)
            raise self._transformed(error) from error

    def _transformed(self, error: Exception) -> Exception:
        if not self.transform_errors or isinstance(error, MCPError):
            return error
        cause = error.__cause__ or error
        kinds: tuple[tuple[type[Exception] | tuple[type[Exception], ...], int, str], ...] = (
            ((ValueError, TypeError), -32602, "Invalid params"),
            ((FileNotFoundError, KeyError), -32001, "Resource not found"),
            (PermissionError, -32000, "Permission denied"),
            ((TimeoutError, asyncio.TimeoutError), -32000, "Request timeout"),
        )
        for kind, code, text in kinds:
            if isinstance(cause, kind):
                return MCPError(code, f"{text}: {error}")
        return MCPError(-32603, f"Internal error: {error}")

    def get_error_stats(self) -> dict[str, int]:
        """Return how often each error came."""
        return dict(self.error_counts)


class RetryMiddleware(Middleware):
    """Tries again what failed for a moment."""

    def __init__(
        self,
        max_retries: int = 3,
        base_delay: float = 1.0,
        max_delay: float = 60.0,
        backoff_multiplier: float = 2.0,
        retry_exceptions: tuple[type[Exception], ...] = (ConnectionError, TimeoutError),
        logger: logging.Logger | None = None,
    ) -> None:
        self.max_retries, self.base_delay, self.max_delay = max_retries, base_delay, max_delay
        self.backoff_multiplier, self.retry_exceptions = backoff_multiplier, retry_exceptions
        self.logger = logger or logging.getLogger("fastmcp.retry")

    async def on_request(self, context: Any, call_next: Any) -> Any:
        """Try one."""
        for attempt in range(self.max_retries + 1):
            try:
                return await call_next(context)
            except Exception as error:
                retryable = isinstance(error, self.retry_exceptions) or isinstance(
                    error.__cause__, self.retry_exceptions
                )
                if attempt == self.max_retries or not retryable:
                    raise
                await asyncio.sleep(min(self.base_delay * self.backoff_multiplier**attempt, self.max_delay))
        return None


class RateLimitError(MCPError):
    """There were too many requests."""

    def __init__(self, message: str = "Rate limit exceeded") -> None:
        super().__init__(-32000, message)


class RateLimitingMiddleware(Middleware):
    """Refuses requests beyond a rate, for each client or for all."""

    def __init__(
        self,
        max_requests_per_second: float = 10.0,
        burst_capacity: int | None = None,
        get_client_id: Callable[[Any], str] | None = None,
        global_limit: bool = False,
    ) -> None:
        self.rate = max_requests_per_second
        self.capacity = float(burst_capacity or int(max_requests_per_second * 2))
        self.get_client_id = get_client_id
        self.global_limit = global_limit
        self._tokens: dict[str, tuple[float, float]] = {}

    async def on_request(self, context: Any, call_next: Any) -> Any:
        """Count one. Raises: RateLimitError."""
        client = "global" if self.global_limit else self.get_client_id(context) if self.get_client_id else "global"
        now = time.monotonic()
        left, last = self._tokens.get(client, (self.capacity, now))
        left = min(self.capacity, left + (now - last) * self.rate)
        if left < 1:
            self._tokens[client] = (left, now)
            raise RateLimitError(f"Rate limit exceeded for client: {client}")
        self._tokens[client] = (left - 1, now)
        return await call_next(context)


class SlidingWindowRateLimitingMiddleware(Middleware):
    """Refuses requests beyond a number in a time."""

    def __init__(
        self, max_requests: int, window_minutes: int = 1, get_client_id: Callable[[Any], str] | None = None
    ) -> None:
        self.max_requests, self.window = max_requests, window_minutes * 60
        self.get_client_id = get_client_id
        self._seen: dict[str, deque[float]] = defaultdict(deque)

    async def on_request(self, context: Any, call_next: Any) -> Any:
        """Count one. Raises: RateLimitError."""
        client = self.get_client_id(context) if self.get_client_id else "global"
        seen, now = self._seen[client], time.monotonic()
        while seen and seen[0] < now - self.window:
            seen.popleft()
        if len(seen) >= self.max_requests:
            raise RateLimitError(f"Rate limit exceeded: {self.max_requests} requests per {self.window // 60} minutes")
        seen.append(now)
        return await call_next(context)
