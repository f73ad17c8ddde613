//! The calls of the plugin protocol.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use prost::Message;

use crate::check;
use crate::context::{Context, DEFAULT_URL};
use crate::convert::{attribute_path, convert_diagnostics, decode, describe, encode};
use crate::data::{self, DataSource};
use crate::diagnostics::{Diagnostics, Path};
use crate::environment::Environment;
use crate::generated::tfplugin5 as proto;
use crate::grpc::Status;
use crate::local_agents::{self, LocalAgents};
use crate::plan;
use crate::resource::{self, Resource, local_agent};
use crate::schema::{Attribute, Block, Schema, Type};
use crate::upgrade;
use crate::url_reference::UrlReference;
use crate::value::Value;

/// The schemas and rules of every type; one for all connections.
pub(crate) struct Plugin {
    provider: Schema,
    resources: Vec<Resource>,
    data: Vec<DataSource>,
    described: OnceLock<Bytes>,
    /// Starts agents on this machine; `None` for providers without that type.
    local_agents: Option<Arc<dyn LocalAgents>>,
}

/// The context of one call.
pub(crate) struct Call<'a> {
    pub(crate) environment: Arc<Environment>,
    /// The URL in the configuration of this connection; set by `Configure`.
    pub(crate) url: &'a crate::serve::ConfiguredUrl,
}

impl Plugin {
    pub(crate) fn new(local_agents: Option<Arc<dyn LocalAgents>>) -> Self {
        let url = Attribute::optional("url", Type::Text, "Address of the deployment.");
        let mut resources = resource::all();
        resources.extend(local_agents.is_some().then(local_agent::resource));
        Self {
            provider: Schema { version: 0, block: Block::new(vec![url]) },
            resources,
            data: data::all(),
            described: OnceLock::new(),
            local_agents,
        }
    }

    /// Answers one call. Only the start and the end of a local agent take time.
    pub(crate) async fn call(&self, path: &str, body: Bytes, call: &Call<'_>) -> Result<Bytes, Status> {
        if let (Some(agents), "/tfplugin5.Provider/ApplyResourceChange") = (&self.local_agents, path) {
            let request: proto::ApplyRequest = message(body.clone())?;
            if request.type_name == local_agent::NAME {
                let response = self.apply_local_agent(&**agents, request, call).await?;
                return Ok(response.encode_to_vec().into());
            }
        }
        self.call_at_once(path, body, call)
    }

    fn call_at_once(&self, path: &str, body: Bytes, call: &Call<'_>) -> Result<Bytes, Status> {
        // Terraform's plugin library may make this call besides those of the protocol.
        const SERVING: &[u8] = &[0x08, 0x01];
        let method = match path {
            "/grpc.health.v1.Health/Check" => return Ok(Bytes::from_static(SERVING)),
            path => path.strip_prefix("/tfplugin5.Provider/").ok_or_else(|| Status::unimplemented(path))?,
        };
        match method {
            "GetSchema" => Ok(self.described.get_or_init(|| self.describe().encode_to_vec().into()).clone()),
            "PrepareProviderConfig" => answer(body, |request| self.prepare(request)),
            "Configure" => answer(body, |request| self.configure(&request, call)),
            "ValidateResourceTypeConfig" => answer(body, |request: proto::ValidateRequest| {
                validate(&self.resource(&request.type_name)?.schema, &request)
            }),
            "ValidateDataSourceConfig" => answer(body, |request: proto::ValidateRequest| {
                validate(&self.data_source(&request.type_name)?.schema, &request)
            }),
            "UpgradeResourceState" => answer(body, |request| self.upgrade(&request)),
            "ReadResource" => answer(body, |request| self.read_resource(request, call)),
            "PlanResourceChange" => answer(body, |request| self.plan(request)),
            "ApplyResourceChange" => answer(body, |request| self.apply(request, call)),
            "ReadDataSource" => answer(body, |request| self.read_data(&request, call)),
            "ImportResourceState" => Ok(import().encode_to_vec().into()),
            // Every call ends at once, so there is nothing to stop.
            "Stop" => Ok(Bytes::new()),
            _ => Err(Status::unimplemented(path)),
        }
    }

    fn describe(&self) -> proto::SchemaResponse {
        describe(&self.provider, &self.resources, &self.data)
    }

    fn resource(&self, name: &str) -> Result<&Resource, Status> {
        self.resources.iter().find(|each| each.name == name).ok_or_else(|| Status::unknown_type(name))
    }

    fn data_source(&self, name: &str) -> Result<&DataSource, Status> {
        self.data.iter().find(|each| each.name == name).ok_or_else(|| Status::unknown_type(name))
    }

    /// Terraform does not use the result: `configure` applies the default of the URL.
    fn prepare(&self, request: proto::PrepareConfigRequest) -> Result<proto::PrepareConfigResponse, Status> {
        let mut diagnostics = Diagnostics::default();
        check::config(&self.provider.block, &decode(request.config.as_ref())?, &mut diagnostics);
        Ok(proto::PrepareConfigResponse {
            prepared_config: request.config,
            diagnostics: convert_diagnostics(diagnostics),
        })
    }

    fn configure(
        &self,
        request: &proto::ConfigureRequest,
        call: &Call<'_>,
    ) -> Result<proto::ConfigureResponse, Status> {
        let config = decode(request.config.as_ref())?;
        let mut diagnostics = Diagnostics::default();
        let (url, detail) = match config.field("url") {
            Value::Text(url) => {
                (url.as_str(), "set `url` in the provider block, or leave it out and set CODER_AGENT_URL")
            }
            // Data sources would be read with another URL than the one that is known later.
            Value::Unknown => {
                ("", "`url` is known after apply only: give it a value that is known in the plan")
            }
            _ => (default_url(&call.environment), ""),
        };
        if url.is_empty() {
            diagnostics.error(Path::of("url"), r#"CODER_AGENT_URL must not be empty; got """#, detail);
        } else if let Err(error) = UrlReference::parse(url) {
            diagnostics.error(
                Path::of("url"),
                format!("the url of the provider cannot be read: {error}"),
                "",
            );
        } else {
            call.url.set(url);
        }
        Ok(proto::ConfigureResponse { diagnostics: convert_diagnostics(diagnostics) })
    }

    fn upgrade(&self, request: &proto::UpgradeRequest) -> Result<proto::UpgradeResponse, Status> {
        let resource = self.resource(&request.type_name)?;
        let json = request.raw_state.as_ref().map(|state| state.json.as_slice()).unwrap_or_default();
        let mut diagnostics = Diagnostics::default();
        let state = upgrade::upgrade(&resource.schema, request.version, json).map_err(|error| {
            diagnostics.error(
                Path::default(),
                format!("the stored state of a {} cannot be used", resource.name),
                error.to_string(),
            );
        });
        Ok(proto::UpgradeResponse {
            upgraded_state: state.ok().map(|state| encode(&state)),
            diagnostics: convert_diagnostics(diagnostics),
        })
    }

    fn read_resource(
        &self,
        request: proto::ReadResourceRequest,
        call: &Call<'_>,
    ) -> Result<proto::ReadResourceResponse, Status> {
        let resource = self.resource(&request.type_name)?;
        let mut state = decode(request.current_state.as_ref())?;
        if !state.is_null() {
            let url = call.url.get(&call.environment);
            let context = Context { environment: &call.environment, url: &url };
            (resource.read)(&mut state, &context);
            if let Some(agents) = self.local_agents.as_ref().filter(|_| resource.name == local_agent::NAME)
                && !local_agents::is_running(&**agents, &state, &context)
            {
                // Terraform then plans a new one.
                state = Value::Null;
            }
        }
        Ok(proto::ReadResourceResponse {
            new_state: Some(encode(&state)),
            diagnostics: Vec::new(),
            private: request.private,
        })
    }

    fn plan(&self, request: proto::PlanRequest) -> Result<proto::PlanResponse, Status> {
        let resource = self.resource(&request.type_name)?;
        let prior = decode(request.prior_state.as_ref())?;
        let config = decode(request.config.as_ref())?;
        let proposed = decode(request.proposed_new_state.as_ref())?;
        let mut diagnostics = Diagnostics::default();
        let (planned, replace) = if proposed.is_null() {
            (Value::Null, Vec::new())
        } else if prior.is_null() {
            (plan::create(&resource.schema.block, &config), Vec::new())
        } else {
            plan::update(&resource.schema.block, &prior, &config)
        };
        if !planned.is_null() {
            (resource.plan)(&planned, &mut diagnostics);
        }
        Ok(proto::PlanResponse {
            planned_state: Some(encode(&planned)),
            requires_replace: replace.iter().map(attribute_path).collect(),
            planned_private: request.prior_private,
            diagnostics: convert_diagnostics(diagnostics),
            legacy_type_system: true,
        })
    }

    fn apply(&self, request: proto::ApplyRequest, call: &Call<'_>) -> Result<proto::ApplyResponse, Status> {
        let resource = self.resource(&request.type_name)?;
        let prior = decode(request.prior_state.as_ref())?;
        let mut state = decode(request.planned_state.as_ref())?;
        let mut diagnostics = Diagnostics::default();
        if !state.is_null() && prior.is_null() {
            let url = call.url.get(&call.environment);
            let context = Context { environment: &call.environment, url: &url };
            (resource.create)(&mut state, &context, &mut diagnostics);
            // When there is also an error, Terraform keeps the state and marks it for replacement.
            state = plan::settle(&resource.schema.block, &state);
        }
        Ok(proto::ApplyResponse {
            new_state: Some(encode(&state)),
            private: request.planned_private,
            diagnostics: convert_diagnostics(diagnostics),
            legacy_type_system: true,
        })
    }

    async fn apply_local_agent(
        &self,
        agents: &dyn LocalAgents,
        request: proto::ApplyRequest,
        call: &Call<'_>,
    ) -> Result<proto::ApplyResponse, Status> {
        let prior = decode(request.prior_state.as_ref())?;
        let url = call.url.get(&call.environment);
        let context = Context { environment: &call.environment, url: &url };
        if decode(request.planned_state.as_ref())?.is_null() {
            local_agents::stop(agents, &prior, &context).await;
            return self.apply(request, call);
        }
        let mut response = self.apply(request, call)?;
        if prior.is_null() {
            let mut state = decode(response.new_state.as_ref())?;
            let mut diagnostics = Diagnostics::default();
            local_agents::start(agents, &mut state, &context, &mut diagnostics).await;
            response.new_state = Some(encode(&state));
            response.diagnostics.extend(convert_diagnostics(diagnostics));
        }
        Ok(response)
    }

    fn read_data(
        &self,
        request: &proto::ReadDataRequest,
        call: &Call<'_>,
    ) -> Result<proto::ReadDataResponse, Status> {
        let source = self.data_source(&request.type_name)?;
        let config = decode(request.config.as_ref())?;
        let mut diagnostics = Diagnostics::default();
        let mut state = plan::data(&source.schema.block, &config);
        let url = call.url.get(&call.environment);
        (source.read)(
            &mut state,
            &config,
            &Context { environment: &call.environment, url: &url },
            &mut diagnostics,
        );
        let state = (!diagnostics.has_errors()).then(|| encode(&state));
        Ok(proto::ReadDataResponse { state, diagnostics: convert_diagnostics(diagnostics) })
    }
}

/// The URL of a provider without one in its configuration.
pub(crate) fn default_url(environment: &Environment) -> &str {
    environment.get_or("CODER_AGENT_URL", DEFAULT_URL)
}

fn answer<Request: Message + Default, Response: Message>(
    body: Bytes,
    call: impl FnOnce(Request) -> Result<Response, Status>,
) -> Result<Bytes, Status> {
    call(message(body)?).map(|response| response.encode_to_vec().into())
}

fn message<Request: Message + Default>(body: Bytes) -> Result<Request, Status> {
    Request::decode(body).map_err(|_| Status::invalid("the request is not the expected message"))
}

fn validate(schema: &Schema, request: &proto::ValidateRequest) -> Result<proto::ValidateResponse, Status> {
    let mut diagnostics = Diagnostics::default();
    check::config(&schema.block, &decode(request.config.as_ref())?, &mut diagnostics);
    Ok(proto::ValidateResponse { diagnostics: convert_diagnostics(diagnostics) })
}

fn import() -> proto::ImportResponse {
    let mut diagnostics = Diagnostics::default();
    let detail = "a coder resource exists in the state only, so it cannot be imported";
    diagnostics.error(Path::default(), "resource can not be imported", detail);
    proto::ImportResponse { diagnostics: convert_diagnostics(diagnostics) }
}
