"""Linkspan: the Model Context Protocol for Python, in every revision, sync and async.

    from linkspan import Client, Server, SyncClient

    server = Server("dice")

    @server.tool
    def roll(sides: int = 6) -> int: ...

    server.run()

Names are loaded when they are first used, so importing this package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkspan._version import __version__
from linkspan.loading import lazy_names

if TYPE_CHECKING:
    from linkspan.auth.protection import Protected as Protected
    from linkspan.client.client import Client as Client
    from linkspan.client.sync_client import SyncClient as SyncClient
    from linkspan.client.tasks import ClientTask as ClientTask
    from linkspan.client.tasks import SyncClientTask as SyncClientTask
    from linkspan.core.extension import Extension as Extension
    from linkspan.core.extension import ExtensionMethod as ExtensionMethod
    from linkspan.core.extension import ListenMember as ListenMember
    from linkspan.core.flow import Sleep as Sleep
    from linkspan.core.flow import Stopper as Stopper
    from linkspan.core.http_checks import HttpPolicy as HttpPolicy
    from linkspan.errors import Declined as Declined
    from linkspan.errors import DuplicateNameError as DuplicateNameError
    from linkspan.errors import ExchangeError as ExchangeError
    from linkspan.errors import Forbidden as Forbidden
    from linkspan.errors import LinkspanError as LinkspanError
    from linkspan.errors import MethodAlreadyDefinedError as MethodAlreadyDefinedError
    from linkspan.errors import QuestionRefused as QuestionRefused
    from linkspan.errors import RegistrationError as RegistrationError
    from linkspan.errors import RemoteProtocolError as RemoteProtocolError
    from linkspan.errors import RequestCancelled as RequestCancelled
    from linkspan.errors import ResourceNotFoundError as ResourceNotFoundError
    from linkspan.errors import ToolError as ToolError
    from linkspan.errors import UnsupportedProtocolVersion as UnsupportedProtocolVersion
    from linkspan.flows.answers import Refused as Refused
    from linkspan.flows.client_errors import AuthorizationError as AuthorizationError
    from linkspan.flows.client_errors import CallStopped as CallStopped
    from linkspan.flows.client_errors import CallTimeout as CallTimeout
    from linkspan.flows.client_errors import Change as Change
    from linkspan.flows.client_errors import ClientClosed as ClientClosed
    from linkspan.flows.client_errors import ClientError as ClientError
    from linkspan.flows.client_errors import Connected as Connected
    from linkspan.flows.client_errors import ConnectError as ConnectError
    from linkspan.flows.client_errors import ConnectionLost as ConnectionLost
    from linkspan.flows.client_errors import Disconnected as Disconnected
    from linkspan.flows.client_errors import HttpError as HttpError
    from linkspan.flows.client_errors import InputUnavailable as InputUnavailable
    from linkspan.flows.client_errors import InsufficientScope as InsufficientScope
    from linkspan.flows.client_errors import InvalidResponse as InvalidResponse
    from linkspan.flows.client_errors import LoginRequired as LoginRequired
    from linkspan.flows.client_errors import LoginTimeout as LoginTimeout
    from linkspan.flows.client_errors import ServerError as ServerError
    from linkspan.flows.client_errors import StateLost as StateLost
    from linkspan.flows.client_errors import StreamRestored as StreamRestored
    from linkspan.flows.client_errors import TaskCancelled as TaskCancelled
    from linkspan.flows.client_errors import ToolFailed as ToolFailed
    from linkspan.flows.http_messages import HttpHop as HttpHop
    from linkspan.flows.state import ClientCall as ClientCall
    from linkspan.flows.state import Timeouts as Timeouts
    from linkspan.flows.tasks import Tasks as Tasks
    from linkspan.flows.tasks import TaskStatus as TaskStatus
    from linkspan.flows.tool_results import ToolResult as ToolResult
    from linkspan.host.consent import Policy as Policy
    from linkspan.host.conversation import Conversation as Conversation
    from linkspan.host.group import ClientGroup as ClientGroup
    from linkspan.host.group import SyncClientGroup as SyncClientGroup
    from linkspan.host.host import Host as Host
    from linkspan.host.models import open_model as open_model
    from linkspan.revisions.neutral import Grant as Grant
    from linkspan.revisions.neutral import InputRequired as InputRequired
    from linkspan.schema.annotations import Ask as Ask
    from linkspan.schema.annotations import Depends as Depends
    from linkspan.schema.annotations import Format as Format
    from linkspan.schema.annotations import Header as Header
    from linkspan.serve.event_loop import AsyncMemoryTransport as AsyncMemoryTransport
    from linkspan.serve.media import Audio as Audio
    from linkspan.serve.media import File as File
    from linkspan.serve.media import Image as Image
    from linkspan.serve.memory import MemoryTransport as MemoryTransport
    from linkspan.serve.policies import Audit as Audit
    from linkspan.serve.policies import ErrorMap as ErrorMap
    from linkspan.serve.policies import RateLimit as RateLimit
    from linkspan.serve.policies import ResultLimit as ResultLimit
    from linkspan.serve.server import Server as Server
    from linkspan.serve.stdio import StdioTransport as StdioTransport
    from linkspan.server.ambient import current_context as current_context
    from linkspan.server.asking import ask_form as ask_form
    from linkspan.server.asking import ask_question as ask_question
    from linkspan.server.asking import ask_roots as ask_roots
    from linkspan.server.asking import ask_sampling as ask_sampling
    from linkspan.server.asking import ask_url as ask_url
    from linkspan.server.configuration import Configuration as Configuration
    from linkspan.server.configuration import configuration as configuration
    from linkspan.server.configuration import configure as configure
    from linkspan.server.configuration import reset_configuration as reset_configuration
    from linkspan.server.content_blocks import Content as Content
    from linkspan.server.content_blocks import audio as audio
    from linkspan.server.content_blocks import image as image
    from linkspan.server.context import Context as Context
    from linkspan.server.context import HeldContext as HeldContext
    from linkspan.server.decorators import prompt as prompt
    from linkspan.server.decorators import resource as resource
    from linkspan.server.decorators import tool as tool
    from linkspan.server.editing import Edit as Edit
    from linkspan.server.middleware import Call as Call
    from linkspan.server.mounting import Mounted as Mounted
    from linkspan.server.prompts import Prompt as Prompt
    from linkspan.server.prompts import PromptResult as PromptResult
    from linkspan.server.resources import Resource as Resource
    from linkspan.server.resources import ResourceTemplate as ResourceTemplate
    from linkspan.server.task_settings import Task as Task
    from linkspan.server.tools import Tool as Tool
    from linkspan.server.tools import ToolResponse as ToolResponse
    from linkspan.types.base import Annotations as Annotations
    from linkspan.types.base import AudioContent as AudioContent
    from linkspan.types.base import BlobResourceContents as BlobResourceContents
    from linkspan.types.base import EmbeddedResource as EmbeddedResource
    from linkspan.types.base import Icon as Icon
    from linkspan.types.base import ImageContent as ImageContent
    from linkspan.types.base import ResourceLink as ResourceLink
    from linkspan.types.base import TextContent as TextContent
    from linkspan.types.base import TextResourceContents as TextResourceContents
    from linkspan.types.base import Wire as Wire
    from linkspan.types.messages import CallToolResult as CallToolResult
    from linkspan.types.messages import Params as Params
    from linkspan.types.messages import PromptArgument as PromptArgument
    from linkspan.types.messages import PromptMessage as PromptMessage
    from linkspan.types.messages import ToolAnnotations as ToolAnnotations
    from linkspan.types.methods import ListSpec as ListSpec
    from linkspan.wire.reports import Report as Report
    from linkspan.wire.values import Limits as Limits


__all__ = [
    "Annotations",
    "Ask",
    "AsyncMemoryTransport",
    "Audio",
    "AudioContent",
    "Audit",
    "AuthorizationError",
    "BlobResourceContents",
    "Call",
    "CallStopped",
    "CallTimeout",
    "CallToolResult",
    "Change",
    "Client",
    "ClientCall",
    "ClientClosed",
    "ClientError",
    "ClientGroup",
    "ClientTask",
    "Configuration",
    "ConnectError",
    "Connected",
    "ConnectionLost",
    "Content",
    "Context",
    "Conversation",
    "Declined",
    "Depends",
    "Disconnected",
    "DuplicateNameError",
    "Edit",
    "EmbeddedResource",
    "ErrorMap",
    "ExchangeError",
    "Extension",
    "ExtensionMethod",
    "File",
    "Forbidden",
    "Format",
    "Grant",
    "Header",
    "HeldContext",
    "Host",
    "HttpError",
    "HttpHop",
    "HttpPolicy",
    "Icon",
    "Image",
    "ImageContent",
    "InputRequired",
    "InputUnavailable",
    "InsufficientScope",
    "InvalidResponse",
    "Limits",
    "LinkspanError",
    "ListSpec",
    "ListenMember",
    "LoginRequired",
    "LoginTimeout",
    "MemoryTransport",
    "MethodAlreadyDefinedError",
    "Mounted",
    "Params",
    "Policy",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptResult",
    "Protected",
    "QuestionRefused",
    "RateLimit",
    "Refused",
    "RegistrationError",
    "RemoteProtocolError",
    "Report",
    "RequestCancelled",
    "Resource",
    "ResourceLink",
    "ResourceNotFoundError",
    "ResourceTemplate",
    "ResultLimit",
    "Server",
    "ServerError",
    "Sleep",
    "StateLost",
    "StdioTransport",
    "Stopper",
    "StreamRestored",
    "SyncClient",
    "SyncClientGroup",
    "SyncClientTask",
    "Task",
    "TaskCancelled",
    "TaskStatus",
    "Tasks",
    "TextContent",
    "TextResourceContents",
    "Timeouts",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "ToolFailed",
    "ToolResponse",
    "ToolResult",
    "UnsupportedProtocolVersion",
    "Wire",
    "__version__",
    "ask_form",
    "ask_question",
    "ask_roots",
    "ask_sampling",
    "ask_url",
    "audio",
    "configuration",
    "configure",
    "current_context",
    "image",
    "open_model",
    "prompt",
    "reset_configuration",
    "resource",
    "tool",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "auth.protection": ("Protected",),
        "client.client": ("Client",),
        "client.sync_client": ("SyncClient",),
        "client.tasks": ("ClientTask", "SyncClientTask"),
        "core.extension": ("Extension", "ExtensionMethod", "ListenMember"),
        "core.flow": ("Sleep", "Stopper"),
        "core.http_checks": ("HttpPolicy",),
        "errors": (
            "Declined",
            "DuplicateNameError",
            "ExchangeError",
            "Forbidden",
            "LinkspanError",
            "MethodAlreadyDefinedError",
            "QuestionRefused",
            "RegistrationError",
            "RemoteProtocolError",
            "RequestCancelled",
            "ResourceNotFoundError",
            "ToolError",
            "UnsupportedProtocolVersion",
        ),
        "flows.answers": ("Refused",),
        "flows.client_errors": (
            "AuthorizationError",
            "CallStopped",
            "CallTimeout",
            "ClientClosed",
            "ClientError",
            "ConnectError",
            "ConnectionLost",
            "HttpError",
            "InputUnavailable",
            "InsufficientScope",
            "InvalidResponse",
            "LoginRequired",
            "LoginTimeout",
            "ServerError",
            "TaskCancelled",
            "ToolFailed",
            "Change",
            "Connected",
            "Disconnected",
            "StateLost",
            "StreamRestored",
        ),
        "flows.http_messages": ("HttpHop",),
        "flows.state": ("ClientCall", "Timeouts"),
        "flows.tasks": ("Tasks", "TaskStatus"),
        "flows.tool_results": ("ToolResult",),
        "host.consent": ("Policy",),
        "host.conversation": ("Conversation",),
        "host.group": ("ClientGroup", "SyncClientGroup"),
        "host.host": ("Host",),
        "host.models": ("open_model",),
        "revisions.neutral": ("Grant", "InputRequired"),
        "schema.annotations": ("Ask", "Depends", "Format", "Header"),
        "serve.event_loop": ("AsyncMemoryTransport",),
        "serve.media": ("Audio", "File", "Image"),
        "serve.memory": ("MemoryTransport",),
        "serve.policies": ("Audit", "ErrorMap", "RateLimit", "ResultLimit"),
        "serve.server": ("Server",),
        "serve.stdio": ("StdioTransport",),
        "server.ambient": ("current_context",),
        "server.asking": ("ask_form", "ask_question", "ask_roots", "ask_sampling", "ask_url"),
        "server.configuration": ("Configuration", "configuration", "configure", "reset_configuration"),
        "server.content_blocks": ("Content", "audio", "image"),
        "server.context": ("Context", "HeldContext"),
        "server.decorators": ("prompt", "resource", "tool"),
        "server.editing": ("Edit",),
        "server.middleware": ("Call",),
        "server.mounting": ("Mounted",),
        "server.prompts": ("Prompt", "PromptResult"),
        "server.resources": ("Resource", "ResourceTemplate"),
        "server.task_settings": ("Task",),
        "server.tools": ("Tool", "ToolResponse"),
        "types.base": (
            "Annotations",
            "Icon",
            "AudioContent",
            "BlobResourceContents",
            "EmbeddedResource",
            "ImageContent",
            "ResourceLink",
            "TextContent",
            "TextResourceContents",
            "Wire",
        ),
        "types.messages": ("CallToolResult", "PromptArgument", "PromptMessage", "ToolAnnotations", "Params"),
        "types.methods": ("ListSpec",),
        "wire.reports": ("Report",),
        "wire.values": ("Limits",),
    },
)
