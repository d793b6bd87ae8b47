//! Skills with rmcp: `server FOLDER` offers them over stdio, `client COMMAND...` reads and verifies those of a server.

use std::{error::Error, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    handler::server::skill_catalog::SkillCatalog,
    model::*,
    service::RequestContext,
    transport::{TokioChildProcess, stdio},
};
use serde_json::json;

struct Server(Arc<SkillCatalog>);

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_resources().enable_skills_with_directory_read().build())
    }

    async fn list_skills(&self, _: Option<PaginatedRequestParams>, _: RequestContext<RoleServer>) -> Result<ListSkillsResult, ErrorData> {
        Ok(self.0.list_skills())
    }

    async fn get_skill(&self, request: GetSkillRequestParams, _: RequestContext<RoleServer>) -> Result<GetSkillResult, ErrorData> {
        self.0.get_skill(&request.uri)
    }

    async fn read_resource_directory(&self, request: ReadResourceDirectoryRequestParams, _: RequestContext<RoleServer>) -> Result<ReadResourceDirectoryResult, ErrorData> {
        self.0.read_resource_directory(&request.uri)
    }

    async fn list_resources(&self, _: Option<PaginatedRequestParams>, _: RequestContext<RoleServer>) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(self.0.resources()))
    }

    async fn read_resource(&self, request: ReadResourceRequestParams, _: RequestContext<RoleServer>) -> Result<ReadResourceResponse, ErrorData> {
        self.0.read_resource(&request.uri).map(Into::into).ok_or_else(|| ErrorData::resource_not_found(request.uri, None))
    }
}

async fn read(command: &[String]) -> Result<(), Box<dyn Error>> {
    let mut child = tokio::process::Command::new(&command[0]);
    child.args(&command[1..]);
    let client = ().serve(TokioChildProcess::new(child)?).await?;
    let mut files = serde_json::Map::new();
    let skills = client.list_all_skills().await?;
    for skill in &skills {
        let entry = client.get_skill(GetSkillRequestParams::new(skill.uri.clone())).await?.skill;
        entry.validate()?;
        if let SkillResources::Files(listed) = &entry.resources {
            for file in listed {
                let result = client.read_resource(ReadResourceRequestParams::new(file.uri.clone())).await?;
                let bytes = match &result.contents[0] {
                    ResourceContents::TextResourceContents { text, .. } => text.clone().into_bytes(),
                    ResourceContents::BlobResourceContents { blob, .. } => BASE64_STANDARD.decode(blob)?,
                    _ => return Err("other contents".into()),
                };
                file.verify(&bytes)?;
                files.insert(file.uri.clone(), json!(BASE64_STANDARD.encode(bytes)));
            }
        }
    }
    let directory = client.read_resource_directory(ReadResourceDirectoryRequestParams::new("skill://pdf")).await?;
    println!("{}", json!({"skills": skills, "files": files, "directory": directory.resources}));
    client.cancel().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((verb, rest)) if verb == "client" => read(rest).await,
        Some((verb, rest)) if verb == "server" => {
            Server(Arc::new(SkillCatalog::from_dir(&rest[0])?)).serve(stdio()).await?.waiting().await?;
            Ok(())
        }
        _ => Err("server FOLDER, or client COMMAND...".into()),
    }
}
