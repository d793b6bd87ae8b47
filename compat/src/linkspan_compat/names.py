"""The table of names: which modules and names of the SDKs are served, by what, and what is written instead of the others.

One source for the finder, the placeholders, `exec --check` and the pages on coming from the other SDKs.

A line without indentation is a module; `@1` or `@2` says that only this version of `mcp` has it, so that importing it decides.
Below it, `home: names` says where names are (in this package; `Name=Other` is called otherwise there), `types:` that they are
types of the protocol, `module:` that they are modules, `same as:` that a module has all that another one has, and `-:` that
names are known and not served. A module whose only line is `-: *` is known, and nothing of it is served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from linkspan.habits import AUTH, PACKAGE

__all__ = ["SDK_VERSIONS", "ServedName", "SourceModule", "line_instead", "modules", "named_line"]

SDK_VERSIONS: Final = {
    "mcp 1": "1.30.0",
    "mcp 2": "2.3.0",
    "fastmcp 2": "2.14.5",
    "fastmcp 3": "3.4.10",
    "fastmcp 4": "4.1.2",
}
"""The versions whose behaviour is served, and which their packages state."""

_TABLE: Final = """
mcp
    module: types
    types: CallToolRequest CallToolResult ClientCapabilities ClientNotification ClientRequest ClientResult CompleteRequest CreateMessageRequest CreateMessageResult CreateMessageResultWithTools ErrorData GetPromptRequest GetPromptResult Implementation IncludeContext InitializedNotification InitializeRequest InitializeResult JSONRPCError JSONRPCRequest JSONRPCResponse ListPromptsRequest ListPromptsResult ListResourcesRequest ListResourcesResult ListToolsResult LoggingLevel LoggingMessageNotification Notification PingRequest ProgressNotification PromptsCapability ReadResourceRequest ReadResourceResult Resource ResourcesCapability ResourceUpdatedNotification RootsCapability SamplingCapability SamplingContent SamplingContextCapability SamplingMessage SamplingMessageContentBlock SamplingToolsCapability ServerCapabilities ServerNotification ServerRequest ServerResult SetLevelRequest StopReason SubscribeRequest Tool ToolChoice ToolResultContent ToolsCapability ToolUseContent UnsubscribeRequest SamplingRole=Role
    client.session: ClientSession
    client.group: ClientSessionGroup
    client.client2: Client
    client.stdio: StdioServerParameters stdio_client
    server.stdio: stdio_server
    server.requests: ServerSession
    errors: McpError MCPError MCPDeprecationWarning UrlElicitationRequiredError
    -: InputRequiredRoundsExceededError InvalidUriTemplate UriTemplate
mcp.types
    types: *
mcp.server
    server.lowlevel: NotificationOptions Server
    server.mcpserver: FastMCP MCPServer
    server.models: InitializationOptions
    server.requests: ServerRequestContext=RequestContext ServerSession
    server.stdio: stdio_server
    placeholders: CacheHint=Record
mcp.server.lowlevel
    server.lowlevel: NotificationOptions Server
mcp.server.lowlevel.server
    server.lowlevel: NotificationOptions Server lifespan request_ctx LifespanResultT RequestT
    placeholders: StructuredContent=AnyValue UnstructuredContent=AnyValue CombinationContent=AnyValue
mcp.server.lowlevel.helper_types
    server.lowlevel: ReadResourceContents
mcp.server.models
    server.models: InitializationOptions
    types: ServerCapabilities Icon
mcp.server.session
    server.requests: ServerSession
    placeholders: InitializationState=AnyValue ServerSessionT=AnyValue
mcp.server.context
    server.requests: ServerRequestContext=RequestContext Context=RequestContext
    placeholders: CallNext=AnyGeneric HandlerResult=AnyValue ServerMiddleware=AnyGeneric LifespanContextT=AnyValue RequestT=AnyValue LifespanT_co=AnyValue
mcp.server.stdio
    server.stdio: stdio_server
mcp.server.elicitation
    server.elicitation: AcceptedElicitation DeclinedElicitation CancelledElicitation ElicitationResult AcceptedUrlElicitation elicit_with_validation elicit_url
    placeholders: ElicitSchemaModelT=AnyValue UrlElicitationResult=AnyValue
mcp.server.fastmcp @1
    server.mcpserver: FastMCP
    server.context: Context
    server.media: Image Audio
    types: Icon
mcp.server.fastmcp.server @1
    server.mcpserver: FastMCP
    server.context: Context
    placeholders: Settings=AnyValue
mcp.server.fastmcp.exceptions @1
    errors: FastMCPError ValidationError ResourceError ToolError InvalidSignature
mcp.server.fastmcp.prompts @1
    server.components: Prompt PromptManager
mcp.server.fastmcp.prompts.base @1
    server.components: Message UserMessage AssistantMessage Prompt PromptArgument
    types: ContentBlock Icon TextContent
    placeholders: SyncPromptResult=AnyValue PromptResult=AnyValue
mcp.server.fastmcp.prompts.manager @1
    server.components: PromptManager
mcp.server.fastmcp.resources @1
    server.components: Resource ResourceManager ResourceTemplate BinaryResource DirectoryResource FileResource FunctionResource TextResource
    -: HttpResource
mcp.server.fastmcp.resources.base @1
    server.components: Resource
mcp.server.fastmcp.resources.resource_manager @1
    server.components: ResourceManager
mcp.server.fastmcp.resources.templates @1
    server.components: ResourceTemplate
mcp.server.fastmcp.resources.types @1
    server.components: TextResource BinaryResource FunctionResource FileResource DirectoryResource
    -: HttpResource
mcp.server.fastmcp.tools @1
    server.components: Tool ToolManager
mcp.server.fastmcp.tools.base @1
    server.components: Tool
mcp.server.fastmcp.tools.tool_manager @1
    server.components: ToolManager
mcp.server.fastmcp.utilities @1
mcp.server.fastmcp.utilities.types @1
    server.media: Image Audio
mcp.server.fastmcp.utilities.func_metadata @1
    server.signatures: ArgModelBase FuncMetadata func_metadata StrictJsonSchema
mcp.server.fastmcp.utilities.context_injection @1
    server.plain_signatures: find_context_parameter
mcp.server.fastmcp.utilities.logging @1
    logs: get_logger configure_logging
mcp.server.mcpserver @2
    server.mcpserver: MCPServer
    server.context: Context
    server.media: Image Audio
    server.components: Message UserMessage AssistantMessage
    server.elicitation: AcceptedElicitation CancelledElicitation DeclinedElicitation ElicitationResult
    types: Icon
    -: Elicit ListRoots Resolve Sample Extension MethodBinding ResourceBinding ToolBinding AESGCMRequestStateCodec InvalidRequestState RequestStateBoundary RequestStateCodec RequestStateSecurity ResourceSecurity DEFAULT_RESOURCE_SECURITY authenticated_principal require_client_extension
mcp.server.mcpserver.context @2
    server.context: Context
mcp.server.mcpserver.server @2
    server.mcpserver: MCPServer
    server.context: Context
    placeholders: Settings=AnyValue
mcp.server.mcpserver.exceptions @2
    errors: MCPServerError ResourceError ResourceNotFoundError UnexpectedResourceError ToolError UnexpectedToolError InvalidSignature ValidationError
mcp.server.mcpserver.prompts @2
    server.components: Prompt PromptManager
mcp.server.mcpserver.prompts.base @2
    server.components: Message UserMessage AssistantMessage Prompt PromptArgument
    types: ContentBlock Icon TextContent
    placeholders: SyncPromptResult=AnyValue PromptResult=AnyValue
mcp.server.mcpserver.prompts.manager @2
    server.components: PromptManager
mcp.server.mcpserver.resources @2
    server.components: Resource ResourceManager ResourceTemplate BinaryResource DirectoryResource FileResource FunctionResource TextResource
    -: HttpResource ResourceSecurity ResourceSecurityError DEFAULT_RESOURCE_SECURITY
mcp.server.mcpserver.resources.base @2
    server.components: Resource
mcp.server.mcpserver.resources.types @2
    server.components: TextResource BinaryResource FunctionResource FileResource DirectoryResource
    -: HttpResource
mcp.server.mcpserver.resources.templates @2
    server.components: ResourceTemplate
mcp.server.mcpserver.resources.resource_manager @2
    server.components: ResourceManager
mcp.server.mcpserver.tools @2
    server.components: Tool ToolManager
mcp.server.mcpserver.tools.base @2
    server.components: Tool
mcp.server.mcpserver.tools.tool_manager @2
    server.components: ToolManager
mcp.server.mcpserver.utilities @2
mcp.server.mcpserver.utilities.types @2
    server.media: Image Audio
mcp.server.mcpserver.utilities.func_metadata @2
    server.signatures: ArgModelBase FuncMetadata func_metadata StrictJsonSchema
mcp.server.mcpserver.utilities.context_injection @2
    server.plain_signatures: find_context_parameter
mcp.server.mcpserver.utilities.logging @2
    logs: get_logger configure_logging
mcp.server.transport_security
    server.http: TransportSecuritySettings
    -: TransportSecurityMiddleware RequestBodyLimitMiddleware
mcp.server.streamable_http_manager
    server.http: StreamableHTTPSessionManager
    -: StreamableHTTPASGIApp
mcp.server.streamable_http
    server.http: EventStore
    -: StreamableHTTPServerTransport EventMessage EventCallback EventId StreamId
mcp.server.sse
    server.http: SseServerTransport
mcp.server.websocket
    -: websocket_server
mcp.server.auth
mcp.server.auth.provider
    auth: AccessToken AuthorizationCode AuthorizationParams RefreshToken TokenVerifier OAuthAuthorizationServerProvider AuthorizeError TokenError RegistrationError ProviderTokenVerifier construct_redirect_uri
mcp.server.auth.settings
    auth: AuthSettings ClientRegistrationOptions RevocationOptions
mcp.server.auth.middleware
mcp.server.auth.middleware.auth_context
    auth: get_access_token
    -: AuthContextMiddleware auth_context_var
mcp.server.auth.middleware.bearer_auth
    -: BearerAuthBackend RequireAuthMiddleware AuthenticatedUser
mcp.server.auth.routes
    -: create_auth_routes create_protected_resource_routes build_metadata build_resource_metadata_url
mcp.server.request_state
    -: *
mcp.server.subscriptions
    -: *
mcp.server.extension
    -: *
mcp.server.apps
    -: *
mcp.server.caching
    -: *
mcp.server.runner
    -: *
mcp.server.connection
    -: *
mcp.server.experimental
    -: *
mcp.shared
mcp.shared.exceptions
    errors: McpError MCPError MCPDeprecationWarning UrlElicitationRequiredError
    -: NoBackChannelError
mcp.shared.context
    server.requests: RequestContext BaseContext=RequestContext
    placeholders: LifespanContextT=AnyValue RequestT=AnyValue SessionT=AnyValue
mcp.shared.message
    server.streams: SessionMessage
    placeholders: ServerMessageMetadata=Record ClientMessageMetadata=Record MessageMetadata=AnyValue
mcp.shared.session
    placeholders: ProgressFnT=AnyValue RequestId=AnyValue BaseSession=Record RequestResponder=Record
mcp.shared.progress
    server.progress: progress ProgressContext Progress
mcp.shared.memory
    client.memory: create_connected_server_and_client_session create_client_server_memory_streams
mcp.shared.auth
    auth: OAuthClientInformationFull OAuthClientMetadata OAuthToken OAuthMetadata ProtectedResourceMetadata
    auth: AuthorizationCodeResult
    -: InvalidScopeError InvalidRedirectUriError
mcp.shared.auth_utils
    -: resource_url_from_server_url check_resource_allowed calculate_token_expiry
mcp.shared._httpx_utils
    client.http: create_mcp_http_client
    placeholders: McpHttpClientFactory=AnyValue
mcp.shared.metadata_utils
    client.session: get_display_name
mcp.shared.version
    server.versions: SUPPORTED_PROTOCOL_VERSIONS LATEST_PROTOCOL_VERSION
mcp.shared.uri_template
    -: *
mcp.shared.dispatcher
    placeholders: ProgressFnT=AnyValue
    -: *
mcp.shared.path_security
    -: *
mcp.shared.inbound
    -: *
mcp.shared.jsonrpc_dispatcher
    -: *
mcp.shared.direct_dispatcher
    -: *
mcp.shared.peer
    -: *
mcp.shared.response_router
    -: *
mcp.shared.tool_name_validation
    -: *
mcp.shared.transport_context
    -: *
mcp.shared.experimental
    -: *
mcp.client
    client.client2: Client
    client.session: ClientSession
    placeholders: ClientRequestContext=AnyValue IncomingMessage=AnyValue
    -: InputRequiredRoundsExceededError Transport CacheConfig ClientExtension advertise
mcp.client.client
    client.client2: Client
mcp.client.session
    client.session: ClientSession
    placeholders: SamplingFnT=AnyValue ElicitationFnT=AnyValue ListRootsFnT=AnyValue LoggingFnT=AnyValue MessageHandlerFnT=AnyValue IncomingMessage=AnyValue ClientResponse=AnyValue ClientRequestContext=AnyValue
mcp.client.session_group
    client.group: ClientSessionGroup SseServerParameters StreamableHttpParameters ClientSessionParameters
    placeholders: ServerParameters=AnyValue
mcp.client.stdio
    client.stdio: StdioServerParameters stdio_client get_default_environment DEFAULT_INHERITED_ENV_VARS
mcp.client.sse
    client.http: sse_client
mcp.client.streamable_http
    client.http: create_mcp_http_client streamable_http_client streamablehttp_client StreamableHTTPTransport
    errors: StreamableHTTPError
    placeholders: GetSessionIdCallback=AnyValue StreamReader=AnyValue StreamWriter=AnyValue
mcp.client.websocket
    -: websocket_client
mcp.client.auth
    client.auth: OAuthClientProvider TokenStorage OAuthFlowError OAuthRegistrationError OAuthTokenError
    auth: AuthorizationCodeResult
    -: PKCEParameters
mcp.client.auth.oauth2
    client.auth: OAuthClientProvider TokenStorage
    -: PKCEParameters OAuthContext
mcp.client.auth.utils
    -: *
mcp.client.auth.exceptions
    client.auth: OAuthFlowError OAuthRegistrationError OAuthTokenError
mcp.client.auth.extensions
mcp.client.auth.extensions.client_credentials
    client.auth: ClientCredentialsOAuthProvider PrivateKeyJWTOAuthProvider
    -: SignedJWTParameters JWTParameters RFC7523OAuthClientProvider static_assertion_provider
mcp.client.experimental
    -: *
mcp.client.caching
    -: *
mcp.client.subscriptions
    -: *
mcp.client.extension
    -: *
mcp_types @2
    types: *
mcp_types.version @2
    server.versions: HANDSHAKE_PROTOCOL_VERSIONS KNOWN_PROTOCOL_VERSIONS LATEST_HANDSHAKE_VERSION LATEST_MODERN_VERSION LATEST_PROTOCOL_VERSION=LATEST_MODERN_VERSION MODERN_PROTOCOL_VERSIONS OLDEST_SUPPORTED_VERSION SUPPORTED_PROTOCOL_VERSIONS=KNOWN_PROTOCOL_VERSIONS is_version_at_least
mcp_types.jsonrpc @2
    types: CONNECTION_CLOSED ErrorData HEADER_MISMATCH INTERNAL_ERROR INVALID_PARAMS INVALID_REQUEST JSONRPCError JSONRPCMessage JSONRPCNotification JSONRPCRequest JSONRPCResponse JSONRPC_VERSION METHOD_NOT_FOUND MISSING_REQUIRED_CLIENT_CAPABILITY PARSE_ERROR REQUEST_TIMEOUT RequestId UNSUPPORTED_PROTOCOL_VERSION URL_ELICITATION_REQUIRED jsonrpc_message_adapter
mcp_types.methods @2
    -: *
mcp.cli
    -: *
mcp.os
    -: *
fastmcp
    fast.server: FastMCP
    fast.context: Context
    fast.client: Client
    fast.settings: settings __version__ FastMCPDeprecationWarning Settings
fastmcp.exceptions
    errors: FastMCPError ValidationError ResourceError ToolError PromptError InvalidSignature ClientError NotFoundError DisabledError AuthorizationError McpError MCPError
    fast.settings: FastMCPDeprecationWarning
    -: ResourceSecurityError InsufficientScopeError
fastmcp.settings
    fast.settings: Settings
fastmcp.types
    -: *
fastmcp.server
    fast.server: FastMCP create_proxy
    fast.context: Context
fastmcp.server.server
    fast.server: FastMCP create_proxy default_lifespan
    placeholders: Transport=AnyValue DuplicateBehavior=AnyValue LifespanCallable=AnyValue
fastmcp.server.context
    fast.context: Context
fastmcp.server.dependencies
    fast.dependencies: get_context get_server get_http_request get_http_headers get_access_token Depends CurrentContext CurrentFastMCP CurrentHeaders CurrentRequest CurrentAccessToken Progress TokenClaim
    -: CurrentDocket CurrentWorker
fastmcp.dependencies
    fast.dependencies: Depends CurrentContext CurrentFastMCP CurrentHeaders CurrentRequest CurrentAccessToken Progress TokenClaim
    -: CurrentDocket CurrentWorker
fastmcp.server.elicitation
    server.elicitation: AcceptedElicitation DeclinedElicitation CancelledElicitation
    -: ElicitConfig get_elicitation_schema
fastmcp.server.lifespan
    fast.lifespans: lifespan Lifespan ComposedLifespan ContextManagerLifespan
fastmcp.server.low_level
    server.lowlevel: LowLevelServer=Server
fastmcp.server.http
    fast.http: create_streamable_http_app create_sse_app
    -: StarletteWithLifespan RequestContextMiddleware HostOriginGuardMiddleware
fastmcp.server.middleware
    fast.middleware: Middleware MiddlewareContext
    placeholders: CallNext=AnyGeneric
    -: AuthMiddleware PingMiddleware
fastmcp.server.middleware.middleware
    fast.middleware: Middleware MiddlewareContext
    placeholders: CallNext=AnyGeneric
fastmcp.server.middleware.error_handling
    fast.middleware: ErrorHandlingMiddleware RetryMiddleware
fastmcp.server.middleware.logging
    fast.middleware: LoggingMiddleware StructuredLoggingMiddleware
fastmcp.server.middleware.timing
    fast.middleware: TimingMiddleware DetailedTimingMiddleware
fastmcp.server.middleware.rate_limiting
    fast.middleware: RateLimitError RateLimitingMiddleware SlidingWindowRateLimitingMiddleware
fastmcp.server.middleware.caching
    -: *
fastmcp.server.middleware.authorization
    -: *
fastmcp.server.middleware.ping
    -: *
fastmcp.server.middleware.response_limiting
    -: *
fastmcp.server.middleware.tool_injection
    -: *
fastmcp.server.middleware.dereference
    -: *
fastmcp.server.event_store
    -: *
fastmcp.server.tasks
    fast.tasks: TaskConfig TaskMeta
    placeholders: TaskMode=AnyValue
    -: *
fastmcp.server.tasks.config
    fast.tasks: TaskConfig TaskMeta
    placeholders: TaskMode=AnyValue
fastmcp.server.sessions
    -: *
fastmcp.server.extensions
    -: *
fastmcp.server.auth
    auth: AccessToken=FastAccessToken AuthProvider TokenVerifier=FastTokenVerifier RemoteAuthProvider JWTVerifier StaticTokenVerifier
    refused: OAuthProvider OAuthProxy OIDCProxy MultiAuth BearerAuthProvider InMemoryOAuthProvider
    -: AuthCheck AuthContext require_scopes require_roles restrict_tag run_auth_checks
fastmcp.server.auth.auth
    auth: AccessToken=FastAccessToken AuthProvider TokenVerifier=FastTokenVerifier RemoteAuthProvider
    refused: OAuthProvider MultiAuth
fastmcp.server.auth.oauth_proxy
    refused: OAuthProxy
fastmcp.server.auth.oidc_proxy
    refused: OIDCProxy
fastmcp.server.auth.providers
fastmcp.server.auth.providers.jwt
    auth: JWTVerifier StaticTokenVerifier RSAKeyPair
fastmcp.server.auth.providers.bearer
    auth: BearerAuthProvider=JWTVerifier
fastmcp.server.auth.providers.introspection
    auth: IntrospectionTokenVerifier
fastmcp.server.auth.providers.in_memory
    refused: InMemoryOAuthProvider
fastmcp.server.auth.providers.debug
    refused: DebugTokenVerifier
fastmcp.server.auth.providers.google
    refused: GoogleProvider GoogleTokenVerifier
fastmcp.server.auth.providers.github
    refused: GitHubProvider GitHubTokenVerifier
fastmcp.server.auth.providers.azure
    refused: AzureProvider AzureJWTVerifier
fastmcp.server.auth.providers.auth0
    refused: Auth0Provider Auth0JWTVerifier Auth0MCPProvider
fastmcp.server.auth.providers.aws
    refused: AWSCognitoProvider AWSCognitoTokenVerifier
fastmcp.server.auth.providers.keycloak
    refused: KeycloakAuthProvider
fastmcp.server.auth.providers.workos
    refused: AuthKitProvider WorkOSProvider WorkOSTokenVerifier
fastmcp.server.auth.providers.descope
    refused: DescopeProvider
fastmcp.server.auth.providers.clerk
    refused: ClerkProvider ClerkTokenVerifier
fastmcp.server.auth.providers.supabase
    refused: SupabaseProvider
fastmcp.server.auth.providers.scalekit
    refused: ScalekitProvider
fastmcp.server.auth.providers.propelauth
    refused: PropelAuthProvider
fastmcp.server.auth.providers.oci
    refused: OCIProvider
fastmcp.server.auth.providers.discord
    refused: DiscordProvider DiscordTokenVerifier
fastmcp.server.auth.providers.huggingface
    refused: HuggingFaceProvider HuggingFaceTokenVerifier
fastmcp.server.openapi
    -: *
fastmcp.server.proxy
    fast.proxy: FastMCPProxy ProxyClient
    -: *
fastmcp.server.providers
    -: *
fastmcp.server.providers.proxy
    fast.proxy: FastMCPProxy ProxyClient
    -: *
fastmcp.server.providers.openapi
    -: *
fastmcp.server.transforms
    -: *
fastmcp.server.sampling
    -: *
fastmcp.tools
    fast.tools: FunctionTool Tool ToolResult tool
    -: InputRequiredToolResult forward forward_raw
fastmcp.tools.base
    fast.tools: Tool ToolResult
fastmcp.tools.tool
    fast.tools: FunctionTool Tool ToolResult
fastmcp.tools.function_tool
    fast.tools: FunctionTool tool
fastmcp.tools.tool_transform
    -: *
fastmcp.prompts
    fast.prompts: FunctionPrompt prompt Message Prompt PromptArgument PromptResult
    types: PromptMessage
fastmcp.prompts.base
    fast.prompts: Message Prompt PromptArgument PromptResult
fastmcp.prompts.prompt
    fast.prompts: FunctionPrompt Message Prompt PromptArgument PromptResult
    types: PromptMessage
fastmcp.prompts.function_prompt
    fast.prompts: FunctionPrompt prompt
fastmcp.resources
    fast.resources: FunctionResource resource Resource ResourceContent ResourceResult ResourceTemplate BinaryResource DirectoryResource FileResource TextResource
    -: HttpResource ResourceSecurity
fastmcp.resources.base
    fast.resources: Resource ResourceContent ResourceResult
fastmcp.resources.resource
    fast.resources: Resource ResourceContent ResourceResult FunctionResource
fastmcp.resources.function_resource
    fast.resources: FunctionResource resource
fastmcp.resources.template
    fast.resources: ResourceTemplate
fastmcp.resources.types
    fast.resources: BinaryResource DirectoryResource FileResource TextResource
    -: HttpResource
fastmcp.utilities
fastmcp.utilities.types
    server.media: Image Audio File
    placeholders: NotSet NotSetT
fastmcp.utilities.logging
    logs: get_logger=get_fastmcp_logger configure_logging temporary_log_level
fastmcp.utilities.lifespan
    fast.lifespans: combine_lifespans
fastmcp.utilities.http
    fast.http: find_available_port
fastmcp.utilities.tests
    fast.testing: caplog_for_fastmcp run_server_async temporary_settings
    -: *
fastmcp.utilities.versions
    -: *
fastmcp.utilities.authorization
    -: *
fastmcp.utilities.json_schema_type
    -: *
fastmcp.utilities.mcp_server_config
    -: *
fastmcp.utilities.tasks
    fast.tasks: TaskConfig TaskMeta TASKS_EXTENSION_ID DEFAULT_POLL_INTERVAL DEFAULT_POLL_INTERVAL_MS DEFAULT_TTL_MS
    placeholders: TaskMode=AnyValue
fastmcp.utilities.inspect
    -: *
fastmcp.utilities.json_schema
    fast.schemas: compress_schema dereference_refs=dereferenced
fastmcp.utilities.openapi
    -: *
fastmcp.utilities.components
    -: *
fastmcp.utilities.mcp_config
    fast.config: MCPConfig
    -: *
fastmcp.mcp_config
    fast.config: MCPConfig StdioMCPServer RemoteMCPServer
    -: *
fastmcp.contrib
fastmcp.contrib.mcp_mixin
    fast.mixin: MCPMixin mcp_tool mcp_resource mcp_prompt
fastmcp.contrib.mcp_mixin.mcp_mixin
    fast.mixin: MCPMixin mcp_tool mcp_resource mcp_prompt
fastmcp.contrib.bulk_tool_caller
    -: *
fastmcp.contrib.component_manager
    -: *
fastmcp.client
    fast.client: Client
    fast.transports: ClientTransport StdioTransport PythonStdioTransport NodeStdioTransport UvxStdioTransport NpxStdioTransport UvStdioTransport StreamableHttpTransport SSETransport FastMCPTransport MCPConfigTransport
    client.auth: BearerAuth OAuth=FastOAuth
    -: ClientGroup
fastmcp.client.client
    fast.client: Client CallToolResult
    -: *
fastmcp.client.transports
    fast.transports: ClientTransport StdioTransport PythonStdioTransport NodeStdioTransport UvxStdioTransport NpxStdioTransport UvStdioTransport StreamableHttpTransport SSETransport FastMCPTransport MCPConfigTransport infer_transport
fastmcp.client.transports.base
    fast.transports: ClientTransport
fastmcp.client.transports.stdio
    fast.transports: StdioTransport PythonStdioTransport NodeStdioTransport UvxStdioTransport NpxStdioTransport UvStdioTransport
fastmcp.client.transports.http
    fast.transports: StreamableHttpTransport
fastmcp.client.transports.sse
    fast.transports: SSETransport
fastmcp.client.transports.memory
    fast.transports: FastMCPTransport
fastmcp.client.transports.config
    fast.transports: MCPConfigTransport
fastmcp.client.auth
    client.auth: BearerAuth OAuth=FastOAuth
fastmcp.client.auth.bearer
    client.auth: BearerAuth
fastmcp.client.auth.oauth
    client.auth: OAuth=FastOAuth
    -: FileTokenStorage
fastmcp.client.elicitation
    types: ElicitRequestParams
    fast.client: ElicitResult
    placeholders: ElicitationHandler=AnyValue
fastmcp.client.logging
    placeholders: LogHandler=AnyValue
    fast.client: LogMessage
fastmcp.client.messages
    placeholders: MessageHandlerT=AnyValue MessageHandler=Record
fastmcp.client.progress
    placeholders: ProgressHandler=AnyValue
fastmcp.client.roots
    placeholders: RootsHandler=AnyValue RootsList=AnyValue
fastmcp.client.sampling
    placeholders: SamplingHandler=AnyValue ClientSamplingHandler=AnyValue
    types: SamplingMessage SamplingParams=CreateMessageRequestParams
    -: *
fastmcp.client.tasks
    fast.client_tasks: Task ToolTask PromptTask ResourceTask
    -: *
fastmcp.apps
    -: *
fastmcp.cli
    -: *
fastmcp.experimental
    -: *
fastmcp.skills
    -: *
fastmcp.telemetry
    -: *
fastmcp.decorators
    -: *
fastmcp_tasks
    fast.tasks: TasksExtension
    fast.client_tasks: ToolTask call_tool_task
    -: *
fastmcp_tasks.extension
    fast.tasks: TasksExtension
fastmcp_tasks.client
    fast.client_tasks: ToolTask call_tool_task
    -: *
fastmcp_tasks.dependencies
    -: *
"""


@dataclass(frozen=True)
class ServedName:
    """Where a name is: the module in this package and the name in it; or what kind of name it is instead."""

    kind: str
    """`served`, `types`, `module`, `refused` or `placeholder`."""
    home: str = ""
    attribute: str = ""


@dataclass
class SourceModule:
    """A module of an SDK."""

    name: str
    version: str = ""
    names: dict[str, ServedName] = field(default_factory=dict[str, ServedName])
    has_all_types: bool = False
    is_open: bool = False
    """Whether any other name is known and not served."""


@cache
def modules() -> Mapping[str, SourceModule]:
    """Return the modules by their names."""
    found: dict[str, SourceModule] = {}
    current = SourceModule("")
    for line in _TABLE.splitlines():
        if not line.strip():
            continue
        if not line.startswith(" "):
            name, _, version = line.partition(" @")
            found[name] = current = SourceModule(name, version)
            continue
        home, _, names = line.strip().partition(": ")
        for each in names.split():
            shown, _, attribute = each.partition("=")
            if home == "-" and each == "*":
                current.is_open = True
            elif home == "types" and each == "*":
                current.has_all_types = True
            elif home in ("-", "refused"):
                kind = "placeholder" if home == "-" else "refused"
                current.names[shown] = ServedName(kind, current.name, shown)
            elif home in ("types", "module"):
                current.names[shown] = ServedName(home, "", attribute or shown)
            else:
                current.names[shown] = ServedName("served", home, attribute or shown)
    return found


_MORE: Final[Mapping[str, str]] = {
    "HttpResource": "@server.resource(uri), with a function that fetches the text",
    "OAuth": "Client(url), which logs in at the browser when the server asks for it",
    "ResourceSecurity": "leave it out: a variable of a template that leads out of a folder is refused",
    "websocket_client": "Client(lambda: websockets.connect(url)), a channel of your own",
    "websocket_server": "await server.attach(websocket)",
    "Resolve": "Annotated[type, Ask('question')], which is asked before the function runs",
    **dict.fromkeys(
        ("RouteMap", "MCPType", "route_maps", "route_map_fn"), "from_openapi(spec, only=['tag:mcp', 'get_*'])"
    ),
    "mcp_component_fn": "from_openapi(spec, edits={'name': Edit(...)})",
    "PKCEParameters": "OAuth(), which proves by itself who began a login",
    "CurrentDocket": "Server(name, tasks=...), with an engine for tasks",
    "ClientGroup": "ClientGroup({'name': target})",
    "ProxyClient": "ClientGroup({'name': target}), and examples/gateway.py",
    "RequireAuthMiddleware": "Server(name, auth=Protected(url, issuer=...))",
    "require_scopes": "@server.tool(scopes=['name'])",
    "PingMiddleware": "leave it out: a connection that is lost is noticed",
    "Sample": "ctx.sample('text')",
    "ListRoots": "ctx.roots()",
    "Extension": "Server(name, extensions=[...])",
    "TransportSecurityMiddleware": "server.asgi(allowed_hosts=[...], allowed_origins=[...])",
    "RequestBodyLimitMiddleware": "server.asgi(max_body_bytes=...)",
    "StreamableHTTPServerTransport": "server.asgi(path='/mcp')",
    "StreamableHTTPASGIApp": "server.asgi(path='/mcp')",
    "UriTemplate": "@server.resource('data://{name}')",
    "InvalidUriTemplate": "@server.resource('data://{name}')",
    "Elicit": "ctx.ask('key', type, 'question')",
    "InputRequiredRoundsExceededError": "linkspan.ClientError",
}


def named_line(name: str) -> str | None:
    """Return the line of Linkspan to write instead of a name that is not served; None where no line stands for it."""
    return _MORE.get(name) or AUTH.get(name) or PACKAGE.get(name)


def line_instead(name: str) -> str:
    """Return what to write instead of a name that is not served: a line, or where to look."""
    return named_line(name) or "see the pages on coming from mcp and from FastMCP"
