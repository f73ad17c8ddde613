//! The server killed with SIGKILL at a hundred random instants under load: what it acknowledged is there afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use coder_api::client::{Client, Error, Options, Proxies};
use coder_api::files::TAR;
use coder_api::versions::CreateTemplateVersionRequest;
use coder_domain::ids::{FileId, OrganizationId, TemplateVersionId};
use coder_domain::secret::Secret;
use coder_store::testing;
use tokio::sync::Notify;

use crate::processes::Server;
use crate::program::Home;

const ROUNDS: usize = 100;
const CLIENTS: usize = 4;

/// What the server said yes to.
#[derive(Default)]
struct Acknowledged {
    keys: Vec<String>,
    files: Vec<FileId>,
    versions: Vec<TemplateVersionId>,
}

/// The work of one round: clients that go on until enough was acknowledged.
struct Load {
    client: Client,
    organization: OrganizationId,
    /// Acknowledgements until the kill.
    left: AtomicUsize,
    enough: AtomicBool,
    reached: Notify,
    acknowledged: Mutex<Acknowledged>,
}

impl Load {
    fn note(&self, note: impl FnOnce(&mut Acknowledged)) {
        note(&mut self.acknowledged.lock().unwrap());
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.enough.store(true, Ordering::SeqCst);
            self.reached.notify_one();
        }
    }

    /// Makes things until there is enough, or until the server is gone.
    async fn run(&self, prefix: String) {
        for number in 0.. {
            if self.enough.load(Ordering::SeqCst) || self.make(format!("k-{prefix}-{number}")).await.is_err()
            {
                return;
            }
        }
    }

    async fn make(&self, name: String) -> Result<(), Error> {
        self.client.create_provisioner_key(self.organization, &name, BTreeMap::new()).await?;
        self.note(|acknowledged| acknowledged.keys.push(name.clone()));
        let file = self.client.upload(TAR, archive(&name).into()).await?;
        self.note(|acknowledged| acknowledged.files.push(file));
        let request =
            CreateTemplateVersionRequest { file_id: Some(file), ..CreateTemplateVersionRequest::default() };
        let version = self.client.create_version(self.organization, &request).await?;
        self.note(|acknowledged| acknowledged.versions.push(version.id));
        Ok(())
    }
}

#[test]
fn nothing_acknowledged_is_lost_on_sqlite() {
    survive(Home::new());
}

#[test]
fn nothing_acknowledged_is_lost_on_postgres() {
    let runtime = runtime();
    let Some(database) = runtime.block_on(testing::postgres()) else { return };
    let coder_store::Location::Postgres(url) = &database.location else { unreachable!("asked for Postgres") };
    let mut home = Home::new();
    home.set("CODER_PG_CONNECTION_URL", url.expose());
    survive(home);
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn survive(home: Home) {
    let mut server = Server::in_home(home, "127.0.0.1:0", &[]);
    let session = server.first_user();
    let token = Secret::new(std::fs::read_to_string(session.config().join("session")).unwrap());
    let address = server.url.trim_start_matches("http://").to_owned();
    let runtime = runtime();
    let options = || Options { proxies: Proxies::none(), retries: 0, ..Options::default() };
    let client = Client::new(&server.url, Some(token), options()).unwrap();
    let organization = runtime.block_on(client.organization("default")).unwrap().id;
    for round in 0..ROUNDS {
        let mut random = [0; 1];
        getrandom::fill(&mut random).unwrap();
        let load = Arc::new(Load {
            client: client.clone(),
            organization,
            left: AtomicUsize::new(1 + usize::from(random[0]) % 48),
            enough: AtomicBool::new(false),
            reached: Notify::new(),
            acknowledged: Mutex::default(),
        });
        let start = |number| {
            let load = Arc::clone(&load);
            runtime.spawn(async move { load.run(format!("{round}-{number}")).await })
        };
        let clients: Vec<_> = (0..CLIENTS).map(start).collect();
        runtime.block_on(load.reached.notified());
        // The other clients' requests are under way.
        server = server.restart(&address);
        for client in clients {
            runtime.block_on(client).unwrap();
        }
        runtime.block_on(verify(&client, organization, &load.acknowledged.lock().unwrap()));
    }
    let check = server.home().run(&["server", "check"]).success();
    assert!(
        check.out.contains("keeps all its rules") || check.err.contains("keeps all its rules"),
        "{}",
        check.out
    );
}

async fn verify(client: &Client, organization: OrganizationId, acknowledged: &Acknowledged) {
    let keys = client.provisioner_keys(organization).await.unwrap();
    for name in &acknowledged.keys {
        assert!(keys.iter().any(|key| &key.name == name), "key {name} is lost");
    }
    for file in &acknowledged.files {
        client.download(*file, false).await.unwrap();
    }
    for version in &acknowledged.versions {
        client.version(*version).await.unwrap();
    }
}

pub(crate) fn archive(text: &str) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "main.tf", text.as_bytes()).unwrap();
    archive.into_inner().unwrap()
}
