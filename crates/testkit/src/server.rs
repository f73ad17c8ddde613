//! A complete server in process, on a free loopback port, with a signed-in first user.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use coder_api::client::{Client, Options};
use coder_api::users::CreateFirstUserRequest;
use coder_domain::clock::{Clock, SystemClock};
use coder_domain::secret::Secret;
use coder_server::{Build, Config, Deps, Handle, Server};
use coder_store::Store;
use coder_store::testing::{self, TestDatabase};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const EMAIL: &str = "admin@example.com";
const PASSWORD: &str = "SomeSecurePassword!";

/// A running server.
pub struct TestServer {
    /// Its context and address.
    pub handle: Handle,
    /// A client signed in as the first user.
    pub owner: Client,
    stop: CancellationToken,
    running: JoinHandle<Result<(), coder_server::Error>>,
    database: Arc<TestDatabase>,
}

impl TestServer {
    /// Starts a server on SQLite, without rate limits.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start() -> Result<Self> {
        Self::start_with(settings(), testing::sqlite()).await
    }

    /// Starts a server with these settings on this database.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_with(config: Config, database: TestDatabase) -> Result<Self> {
        Self::start_on(config, Arc::new(database), async |url| first_user(url).await).await
    }

    /// Starts another server on the same database. The first user is signed in there, too.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn beside(&self, config: Config) -> Result<Self> {
        let token = self.owner.token().cloned();
        Self::start_on(config, Arc::clone(&self.database), async move |url: &str| {
            Ok(Client::new(url, token, Options::default())?)
        })
        .await
    }

    async fn start_on(
        mut config: Config,
        database: Arc<TestDatabase>,
        sign_in: impl AsyncFnOnce(&str) -> Result<Client>,
    ) -> Result<Self> {
        config.listen.http = Some(([127, 0, 0, 1], 0).into());
        let clock = Arc::new(SystemClock);
        let store = Store::open(&coder_store::Config::new(database.location.clone()), clock.now()).await?;
        let build = Build { compatible: "v2.30.0+0000000".to_owned(), product: "0.0.0-test".to_owned() };
        let server = Server::build(config, Deps { store, clock, build }).await?;
        let handle = server.handle();
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run(stop.clone()));
        let url = format!("http://{}", handle.http.context("the server listens")?);
        let owner = sign_in(&url).await?;
        Ok(Self { handle, owner, stop, running, database })
    }

    #[must_use]
    pub fn url(&self) -> String {
        self.owner.base().as_str().trim_end_matches('/').to_owned()
    }

    /// Runs SQL on the server's database.
    pub async fn execute(&self, script: &str) {
        self.database.execute(script).await;
    }

    /// Ends the server as if its process was killed.
    pub async fn kill(self) {
        let life = &self.handle.app.lifecycle;
        life.hard().cancel();
        self.running.abort();
        // Both say only that it has ended.
        let _ = self.running.await;
        let _ = life.stop(Duration::ZERO).await;
    }

    /// Stops the server and waits for its end.
    ///
    /// # Errors
    /// How it failed.
    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.running.await??)
    }
}

/// Settings without rate limits and with a short grace, so that tests end quickly.
#[must_use]
pub fn settings() -> Config {
    let mut config = Config::default();
    config.limits.rate_limits = false;
    config.limits.shutdown_grace = Duration::from_millis(500);
    config
}

/// Settings of one of several servers.
#[must_use]
pub fn meshed() -> Config {
    let mut config = settings();
    // Port 0 stands for the port that the server listens on.
    config.tailnet.relay_url = "http://127.0.0.1:0".parse().ok();
    config
}

async fn first_user(url: &str) -> Result<Client> {
    let client = Client::new(url, None, Options::default())?;
    let request = CreateFirstUserRequest {
        email: EMAIL.to_owned(),
        username: "admin".to_owned(),
        name: String::new(),
        password: Secret::new(PASSWORD),
        trial: false,
    };
    client.create_first_user(&request).await?;
    let token = client.login(EMAIL, Secret::new(PASSWORD)).await?;
    Ok(client.with_token(Some(token)))
}
