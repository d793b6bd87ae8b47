//! Rust's rmcp: `bench` over stdio, `bench PORT` over HTTP, stateless and in JSON; `bench PORT sse` in streams of events.
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::{Json, Parameters};
use rmcp::model::{Meta, ProgressNotificationParam, ServerCapabilities, ServerInfo};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{Peer, RoleServer, ServerHandler, ServiceExt, schemars, tool, tool_handler, tool_router};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Numbers {
    a: i64,
    b: i64,
}

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Sum {
    result: i64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Words {
    text: String,
}

#[derive(Clone)]
struct Bench {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Bench {
    fn new() -> Self {
        Self { tool_router: Self::tool_router() }
    }

    #[tool(description = "Add two numbers.")]
    async fn add_async(&self, Parameters(Numbers { a, b }): Parameters<Numbers>) -> Json<Sum> {
        Json(Sum { result: a + b })
    }

    #[tool(description = "Add two numbers, with one notice of progress.")]
    async fn progress(
        &self,
        Parameters(Numbers { a, b }): Parameters<Numbers>,
        meta: Meta,
        client: Peer<RoleServer>,
    ) -> Json<Sum> {
        if let Some(token) = meta.get_progress_token() {
            let notice = ProgressNotificationParam::new(token, 1.0).with_total(2.0);
            let _ = client.notify_progress(notice).await;
        }
        Json(Sum { result: a + b })
    }

    #[tool(description = "Return a text.")]
    async fn echo(&self, Parameters(Words { text }): Parameters<Words>) -> String {
        text
    }
}

#[tool_handler]
impl ServerHandler for Bench {
    fn get_info(&self) -> ServerInfo {
        let mut info = ServerInfo::default();
        info.capabilities = ServerCapabilities::builder().enable_tools().build();
        info
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(port) = std::env::args().nth(1) else {
        Bench::new().serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    };
    let mut config = StreamableHttpServerConfig::default();
    config.stateful_mode = false;
    config.json_response = std::env::args().nth(2).is_none();
    let sessions = std::sync::Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(|| Ok(Bench::new()), sessions, config);
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}
