"""The models and aliases of `mcp.types`, one a line, by the names of the wire.

`Name(Base, ...) field:type field?:type field=constant`: a `?` may be left out, a `=` has that value by default, `meta` is
`_meta` of the wire. `1:` and `2:` in front are for that flavour only. Types are expressions over the names of this table.
Source: the schemas of the revisions 2025-11-25 and 2026-07-28.
"""

from typing import Final

__all__ = ["ALIASES", "CONSTANTS", "MODELS", "ROOTS"]

MODELS: Final = """
RequestParams() meta?:dict
PaginatedRequestParams(RequestParams) cursor?:str
NotificationParams() meta?:dict
Result() meta?:dict
PaginatedResult(Result) nextCursor?:str
2:CacheableResult(Result) ttlMs=0 cacheScope='private'
1:EmptyResult(Result)
2:EmptyResult(Result) resultType?:str
BaseMetadata() name:str title?:str
Icon() src:str mimeType?:str sizes?:list[str] theme?:str
Implementation(BaseMetadata) version:str description?:str websiteUrl?:str icons?:list[Icon]
RootsCapability() listChanged?:bool
SamplingContextCapability()
SamplingToolsCapability()
FormElicitationCapability()
UrlElicitationCapability()
ElicitationCapability() form?:FormElicitationCapability url?:UrlElicitationCapability
SamplingCapability() context?:SamplingContextCapability tools?:SamplingToolsCapability
TasksListCapability()
TasksCancelCapability()
TasksCreateMessageCapability()
TasksSamplingCapability() createMessage?:TasksCreateMessageCapability
TasksCreateElicitationCapability()
TasksElicitationCapability() create?:TasksCreateElicitationCapability
ClientTasksRequestsCapability() sampling?:TasksSamplingCapability elicitation?:TasksElicitationCapability
ClientTasksCapability() list?:TasksListCapability cancel?:TasksCancelCapability requests?:ClientTasksRequestsCapability
1:ClientCapabilities() experimental?:dict[str,dict[str,Any]] sampling?:SamplingCapability elicitation?:ElicitationCapability roots?:RootsCapability tasks?:ClientTasksCapability
2:ClientCapabilities() experimental?:dict[str,dict[str,Any]] sampling?:SamplingCapability elicitation?:ElicitationCapability roots?:RootsCapability extensions?:dict[str,dict[str,Any]] tasks?:ClientTasksCapability
PromptsCapability() listChanged?:bool
ResourcesCapability() subscribe?:bool listChanged?:bool
ToolsCapability() listChanged?:bool
LoggingCapability()
CompletionsCapability()
TasksCallCapability()
TasksToolsCapability() call?:TasksCallCapability
ServerTasksRequestsCapability() tools?:TasksToolsCapability
ServerTasksCapability() list?:TasksListCapability cancel?:TasksCancelCapability requests?:ServerTasksRequestsCapability
1:ServerCapabilities() experimental?:dict[str,dict[str,Any]] logging?:LoggingCapability prompts?:PromptsCapability resources?:ResourcesCapability tools?:ToolsCapability completions?:CompletionsCapability tasks?:ServerTasksCapability
2:ServerCapabilities() experimental?:dict[str,dict[str,Any]] logging?:LoggingCapability prompts?:PromptsCapability resources?:ResourcesCapability tools?:ToolsCapability completions?:CompletionsCapability extensions?:dict[str,dict[str,Any]] tasks?:ServerTasksCapability
InitializeRequestParams(RequestParams) protocolVersion:str|int capabilities:ClientCapabilities clientInfo:Implementation
InitializeResult(Result) protocolVersion:str|int capabilities:ServerCapabilities serverInfo:Implementation instructions?:str
2:DiscoverResult(CacheableResult) supportedVersions:list[str] capabilities:ServerCapabilities instructions?:str resultType='complete'
ToolExecution() taskSupport?:str
TaskMetadata() ttl?:int
RelatedTaskMetadata() taskId:str
Task() taskId:str status:str statusMessage?:str createdAt:Any lastUpdatedAt:Any ttl:int|None pollInterval?:int
CreateTaskResult(Result) task:Task
GetTaskRequestParams(RequestParams) taskId:str
GetTaskResult(Result,Task)
CancelTaskRequestParams(RequestParams) taskId:str
CancelTaskResult(Result,Task)
TaskStatusNotificationParams(NotificationParams,Task)
GetTaskPayloadRequestParams(RequestParams) taskId:str
GetTaskPayloadResult(Result)
ListTasksResult(PaginatedResult) tasks:list[Task]
ProgressNotificationParams(NotificationParams) progressToken:ProgressToken progress:float total?:float message?:str
1:Annotations() audience?:list[Role] priority?:Share
2:Annotations() audience?:list[Role] priority?:Share lastModified?:str
1:Resource(BaseMetadata) uri:Url description?:str mimeType?:str size?:int icons?:list[Icon] annotations?:Annotations meta?:dict
2:Resource(BaseMetadata) uri:str description?:str mimeType?:str size?:int icons?:list[Icon] annotations?:Annotations meta?:dict
ResourceTemplate(BaseMetadata) uriTemplate:str description?:str mimeType?:str icons?:list[Icon] annotations?:Annotations meta?:dict
1:ListResourcesResult(PaginatedResult) resources:list[Resource]
2:ListResourcesResult(PaginatedResult,CacheableResult) resources:list[Resource] resultType='complete'
1:ListResourceTemplatesResult(PaginatedResult) resourceTemplates:list[ResourceTemplate]
2:ListResourceTemplatesResult(PaginatedResult,CacheableResult) resourceTemplates:list[ResourceTemplate] resultType='complete'
2:InputResponseRequestParams(RequestParams) inputResponses?:dict[str,Any] requestState?:str
1:ReadResourceRequestParams(RequestParams) uri:Url
2:ReadResourceRequestParams(InputResponseRequestParams) uri:str
ResourceContents() uri:Url mimeType?:str meta?:dict
TextResourceContents(ResourceContents) text:str
BlobResourceContents(ResourceContents) blob:str
1:ReadResourceResult(Result) contents:list[TextResourceContents|BlobResourceContents]
2:ReadResourceResult(CacheableResult) contents:list[TextResourceContents|BlobResourceContents] resultType='complete'
SubscribeRequestParams(RequestParams) uri:Url
UnsubscribeRequestParams(RequestParams) uri:Url
ResourceUpdatedNotificationParams(NotificationParams) uri:Url
2:SubscriptionFilter() toolsListChanged?:bool promptsListChanged?:bool resourcesListChanged?:bool resourceSubscriptions?:list[str]
2:SubscriptionsListenRequestParams(RequestParams) notifications:SubscriptionFilter
2:SubscriptionsAcknowledgedNotificationParams(NotificationParams) notifications:SubscriptionFilter
2:SubscriptionsListenResult(Result) resultType='complete'
1:PromptArgument() name:str description?:str required?:bool
2:PromptArgument(BaseMetadata) description?:str required?:bool
Prompt(BaseMetadata) description?:str arguments?:list[PromptArgument] icons?:list[Icon] meta?:dict
1:ListPromptsResult(PaginatedResult) prompts:list[Prompt]
2:ListPromptsResult(PaginatedResult,CacheableResult) prompts:list[Prompt] resultType='complete'
1:GetPromptRequestParams(RequestParams) name:str arguments?:dict[str,str]
2:GetPromptRequestParams(InputResponseRequestParams) name:str arguments?:dict[str,str]
TextContent() type='text' text:str annotations?:Annotations meta?:dict
ImageContent() type='image' data:str mimeType:str annotations?:Annotations meta?:dict
AudioContent() type='audio' data:str mimeType:str annotations?:Annotations meta?:dict
ToolUseContent() type='tool_use' name:str id:str input:dict[str,Any] meta?:dict
ToolResultContent() type='tool_result' toolUseId:str content=[]:list[ContentBlock] structuredContent?:Any isError?:bool meta?:dict
SamplingMessage() role:Role content:SamplingMessageContentBlock|list[SamplingMessageContentBlock] meta?:dict
EmbeddedResource() type='resource' resource:TextResourceContents|BlobResourceContents annotations?:Annotations meta?:dict
ResourceLink(Resource) type='resource_link'
PromptMessage() role:Role content:ContentBlock
1:GetPromptResult(Result) description?:str messages:list[PromptMessage]
2:GetPromptResult(Result) description?:str messages:list[PromptMessage] resultType='complete'
ToolAnnotations() title?:str readOnlyHint?:bool destructiveHint?:bool idempotentHint?:bool openWorldHint?:bool
Tool(BaseMetadata) description?:str inputSchema:dict[str,Any] outputSchema?:dict[str,Any] icons?:list[Icon] annotations?:ToolAnnotations meta?:dict execution?:ToolExecution
1:ListToolsResult(PaginatedResult) tools:list[Tool]
2:ListToolsResult(PaginatedResult,CacheableResult) tools:list[Tool] resultType='complete'
1:CallToolRequestParams(RequestParams) name:str arguments?:dict[str,Any] task?:TaskMetadata
2:CallToolRequestParams(InputResponseRequestParams) name:str arguments?:dict[str,Any] task?:TaskMetadata
1:CallToolResult(Result) content:list[ContentBlock] structuredContent?:dict[str,Any] isError=False
2:CallToolResult(Result) content:list[ContentBlock] structuredContent?:Any isError=False resultType='complete'
SetLevelRequestParams(RequestParams) level:LoggingLevel
LoggingMessageNotificationParams(NotificationParams) level:LoggingLevel logger?:str data:Any
ModelHint() name?:str
ModelPreferences() hints?:list[ModelHint] costPriority?:float speedPriority?:float intelligencePriority?:float
ToolChoice() mode?:str
CreateMessageRequestParams(RequestParams) messages:list[SamplingMessage] modelPreferences?:ModelPreferences systemPrompt?:str includeContext?:IncludeContext temperature?:float maxTokens:int stopSequences?:list[str] metadata?:dict[str,Any] tools?:list[Tool] toolChoice?:ToolChoice task?:TaskMetadata
CreateMessageResult(Result) role:Role content:SamplingContent model:str stopReason?:StopReason
CreateMessageResultWithTools(Result) role:Role content:SamplingMessageContentBlock|list[SamplingMessageContentBlock] model:str stopReason?:StopReason
ResourceTemplateReference() type='ref/resource' uri:str
1:ResourceReference(ResourceTemplateReference)
1:PromptReference() type='ref/prompt' name:str
2:PromptReference() type='ref/prompt' name:str title?:str
CompletionArgument() name:str value:str
CompletionContext() arguments?:dict[str,str]
CompleteRequestParams(RequestParams) ref:ResourceTemplateReference|PromptReference argument:CompletionArgument context?:CompletionContext
Completion() values:list[str] total?:int hasMore?:bool
1:CompleteResult(Result) completion:Completion
2:CompleteResult(Result) completion:Completion resultType='complete'
Root() uri:FileUrl name?:str meta?:dict
ListRootsResult(Result) roots:list[Root]
CancelledNotificationParams(NotificationParams) requestId?:RequestId reason?:str
ElicitCompleteNotificationParams(NotificationParams) elicitationId:str
ElicitRequestFormParams(RequestParams) mode='form' message:str requestedSchema:dict[str,Any] task?:TaskMetadata
1:ElicitRequestURLParams(RequestParams) mode='url' message:str url:str elicitationId:str task?:TaskMetadata
2:ElicitRequestURLParams(RequestParams) mode='url' message:str url:str elicitationId?:str task?:TaskMetadata
ElicitResult(Result) action:ElicitAction content?:dict[str,str|int|float|bool|list[str]|None]
ElicitationRequiredErrorData() elicitations:list[ElicitRequestURLParams]
2:InputRequiredResult(Result) resultType='input_required' inputRequests?:dict[str,Any] requestState?:str
2:UnsupportedProtocolVersionErrorData() supported:list[str] requested:str
2:MissingRequiredClientCapabilityErrorData() requiredCapabilities:ClientCapabilities
ErrorData() code:int message:str data?:Any
JSONRPCRequest() jsonrpc='2.0' id:RequestId method:str params?:dict[str,Any]
JSONRPCNotification() jsonrpc='2.0' method:str params?:dict[str,Any]
JSONRPCResponse() jsonrpc='2.0' id:RequestId result:dict[str,Any]
JSONRPCError() jsonrpc='2.0' id:RequestId|None error:ErrorData
InitializeRequest(Request) method='initialize' params:InitializeRequestParams
PingRequest(Request) method='ping' params?:RequestParams
2:DiscoverRequest(Request) method='server/discover' params?:RequestParams
GetTaskRequest(Request) method='tasks/get' params:GetTaskRequestParams
CancelTaskRequest(Request) method='tasks/cancel' params:CancelTaskRequestParams
GetTaskPayloadRequest(Request) method='tasks/result' params:GetTaskPayloadRequestParams
ListTasksRequest(PaginatedRequest) method='tasks/list' params?:PaginatedRequestParams
ListResourcesRequest(PaginatedRequest) method='resources/list' params?:PaginatedRequestParams
ListResourceTemplatesRequest(PaginatedRequest) method='resources/templates/list' params?:PaginatedRequestParams
ReadResourceRequest(Request) method='resources/read' params:ReadResourceRequestParams
SubscribeRequest(Request) method='resources/subscribe' params:SubscribeRequestParams
UnsubscribeRequest(Request) method='resources/unsubscribe' params:UnsubscribeRequestParams
2:SubscriptionsListenRequest(Request) method='subscriptions/listen' params:SubscriptionsListenRequestParams
ListPromptsRequest(PaginatedRequest) method='prompts/list' params?:PaginatedRequestParams
GetPromptRequest(Request) method='prompts/get' params:GetPromptRequestParams
ListToolsRequest(PaginatedRequest) method='tools/list' params?:PaginatedRequestParams
CallToolRequest(Request) method='tools/call' params:CallToolRequestParams
SetLevelRequest(Request) method='logging/setLevel' params:SetLevelRequestParams
CreateMessageRequest(Request) method='sampling/createMessage' params:CreateMessageRequestParams
CompleteRequest(Request) method='completion/complete' params:CompleteRequestParams
ListRootsRequest(Request) method='roots/list' params?:RequestParams
ElicitRequest(Request) method='elicitation/create' params:ElicitRequestParams
InitializedNotification(Notification) method='notifications/initialized' params?:NotificationParams
ProgressNotification(Notification) method='notifications/progress' params:ProgressNotificationParams
ResourceListChangedNotification(Notification) method='notifications/resources/list_changed' params?:NotificationParams
ResourceUpdatedNotification(Notification) method='notifications/resources/updated' params:ResourceUpdatedNotificationParams
PromptListChangedNotification(Notification) method='notifications/prompts/list_changed' params?:NotificationParams
ToolListChangedNotification(Notification) method='notifications/tools/list_changed' params?:NotificationParams
LoggingMessageNotification(Notification) method='notifications/message' params:LoggingMessageNotificationParams
RootsListChangedNotification(Notification) method='notifications/roots/list_changed' params?:NotificationParams
CancelledNotification(Notification) method='notifications/cancelled' params:CancelledNotificationParams
ElicitCompleteNotification(Notification) method='notifications/elicitation/complete' params:ElicitCompleteNotificationParams
TaskStatusNotification(Notification) method='notifications/tasks/status' params:TaskStatusNotificationParams
2:SubscriptionsAcknowledgedNotification(Notification) method='notifications/subscriptions/acknowledged' params:SubscriptionsAcknowledgedNotificationParams
"""
"""One model a line."""

ALIASES: Final = """
ProgressToken = str|int
Cursor = str
Role = Literal['user','assistant']
IconTheme = Literal['light','dark']
TaskStatus = Literal['working','input_required','completed','failed','cancelled']
TaskExecutionMode = Literal['forbidden','optional','required']
LoggingLevel = Literal['debug','info','notice','warning','error','critical','alert','emergency']
IncludeContext = Literal['none','thisServer','allServers']
StopReason = Literal['endTurn','stopSequence','maxTokens','toolUse']|str
ElicitAction = Literal['accept','decline','cancel']
ResultType = Literal['complete','input_required']|str
ContentBlock = TextContent|ImageContent|AudioContent|ResourceLink|EmbeddedResource
Content = ContentBlock
SamplingContent = TextContent|ImageContent|AudioContent
SamplingMessageContentBlock = TextContent|ImageContent|AudioContent|ToolUseContent|ToolResultContent
ElicitRequestedSchema = dict[str,Any]
ElicitRequestParams = ElicitRequestURLParams|ElicitRequestFormParams
InputRequest = CreateMessageRequest|ListRootsRequest|ElicitRequest
InputResponse = CreateMessageResult|CreateMessageResultWithTools|ListRootsResult|ElicitResult
InputRequests = dict[str,InputRequest]
InputResponses = dict[str,InputResponse]
ClientRequestType = PingRequest|InitializeRequest|CompleteRequest|SetLevelRequest|GetPromptRequest|ListPromptsRequest|ListResourcesRequest|ListResourceTemplatesRequest|ReadResourceRequest|SubscribeRequest|UnsubscribeRequest|CallToolRequest|ListToolsRequest|GetTaskRequest|GetTaskPayloadRequest|ListTasksRequest|CancelTaskRequest
ClientNotificationType = CancelledNotification|ProgressNotification|InitializedNotification|RootsListChangedNotification|TaskStatusNotification
ClientResultType = EmptyResult|CreateMessageResult|CreateMessageResultWithTools|ListRootsResult|ElicitResult|GetTaskResult|ListTasksResult|CancelTaskResult|CreateTaskResult
ServerRequestType = PingRequest|CreateMessageRequest|ListRootsRequest|ElicitRequest|GetTaskRequest|GetTaskPayloadRequest|ListTasksRequest|CancelTaskRequest
ServerNotificationType = CancelledNotification|ProgressNotification|LoggingMessageNotification|ResourceUpdatedNotification|ResourceListChangedNotification|ToolListChangedNotification|PromptListChangedNotification|ElicitCompleteNotification|TaskStatusNotification
ServerResultType = EmptyResult|InitializeResult|CompleteResult|GetPromptResult|ListPromptsResult|ListResourcesResult|ListResourceTemplatesResult|ReadResourceResult|CallToolResult|ListToolsResult|GetTaskResult|ListTasksResult|CancelTaskResult|CreateTaskResult
JSONRPCMessageType = JSONRPCRequest|JSONRPCNotification|JSONRPCResponse|JSONRPCError
"""
"""Unions and other aliases."""

ROOTS: Final = {
    "ClientRequest": "ClientRequestType",
    "ClientNotification": "ClientNotificationType",
    "ClientResult": "ClientResultType",
    "ServerRequest": "ServerRequestType",
    "ServerNotification": "ServerNotificationType",
    "ServerResult": "ServerResultType",
    "JSONRPCMessage": "JSONRPCMessageType",
}
"""Root models of version 1, which are plain unions in version 2."""

CONSTANTS: Final[dict[str, object]] = {
    "JSONRPC_VERSION": "2.0",
    "PROTOCOL_VERSION_META_KEY": "io.modelcontextprotocol/protocolVersion",
    "CLIENT_INFO_META_KEY": "io.modelcontextprotocol/clientInfo",
    "CLIENT_CAPABILITIES_META_KEY": "io.modelcontextprotocol/clientCapabilities",
    "LOG_LEVEL_META_KEY": "io.modelcontextprotocol/logLevel",
    "SERVER_INFO_META_KEY": "io.modelcontextprotocol/serverInfo",
    "PARSE_ERROR": -32700,
    "INVALID_REQUEST": -32600,
    "METHOD_NOT_FOUND": -32601,
    "INVALID_PARAMS": -32602,
    "INTERNAL_ERROR": -32603,
    "CONNECTION_CLOSED": -32000,
    "REQUEST_TIMEOUT": -32001,
    "RESOURCE_NOT_FOUND": -32002,
    "HEADER_MISMATCH": -32020,
    "MISSING_REQUIRED_CLIENT_CAPABILITY": -32021,
    "UNSUPPORTED_PROTOCOL_VERSION": -32022,
    "URL_ELICITATION_REQUIRED": -32042,
    "TASK_FORBIDDEN": "forbidden",
    "TASK_OPTIONAL": "optional",
    "TASK_REQUIRED": "required",
    "TASK_STATUS_WORKING": "working",
    "TASK_STATUS_INPUT_REQUIRED": "input_required",
    "TASK_STATUS_COMPLETED": "completed",
    "TASK_STATUS_FAILED": "failed",
    "TASK_STATUS_CANCELLED": "cancelled",
}
"""Codes of errors and other constants, which need no pydantic."""
