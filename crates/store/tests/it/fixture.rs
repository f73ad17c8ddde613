//! Opens stores on both engines and makes the rows that most tests need.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use coder_domain::ids::{DaemonId, FileId, JobId, KeyId, OrganizationId, TemplateVersionId, UserId};
use coder_domain::job::Type;
use coder_domain::key::Sha256Digest;
use coder_domain::tags::TagSet;
use coder_store::testing::TestDatabase;
use coder_store::users::{LoginType, User, UserStatus};
use coder_store::{Config, Document, Location, Store, daemons, files, jobs, organizations, testing, users};
use jiff::Timestamp;

/// Declares, for each function, one test per engine.
macro_rules! on_both_engines {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::fixture::Fixture::sqlite().await).await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(fixture) = $crate::fixture::Fixture::postgres().await {
                    super::$name(fixture).await;
                }
            })*
        }
    };
}
pub(crate) use on_both_engines;

/// A store with one user.
pub(crate) struct Fixture {
    pub(crate) store: Store,
    /// None when the caller owns the database.
    database: Option<TestDatabase>,
    pub(crate) organization: OrganizationId,
    pub(crate) user: UserId,
    pub(crate) file: FileId,
    seconds: AtomicI64,
}

impl Fixture {
    pub(crate) async fn sqlite() -> Self {
        let database = testing::sqlite();
        Self::on(database.location.clone()).await.keep(database)
    }

    pub(crate) async fn postgres() -> Option<Self> {
        let database = testing::postgres().await?;
        Some(Self::on(database.location.clone()).await.keep(database))
    }

    /// On an empty database.
    pub(crate) async fn on(location: Location) -> Self {
        let store = Store::open(&Config::new(location.clone()), at(0)).await.unwrap();
        let user = new_user("ada");
        store
            .write(async |tx| {
                users::insert(tx, &user).await?;
                let (hash, size) = (files::hash(b"tar"), 3);
                let new = files::NewFile { hash, size, created_by: user.id, mimetype: "application/x-tar" };
                files::insert(tx, &new, &mut &b"tar"[..], at(0)).await
            })
            .await
            .unwrap();
        Self::with(store).await
    }

    /// On a database that another fixture made.
    pub(crate) async fn reopen(location: Location) -> Self {
        Self::with(Store::open(&Config::new(location), at(0)).await.unwrap()).await
    }

    async fn with(store: Store) -> Self {
        let mut tx = store.single().await.unwrap();
        let organization = organizations::get_default(&mut tx).await.unwrap().id;
        let user = users::find_by_username(&mut tx, "ada").await.unwrap().unwrap().id;
        let file = files::touch(&mut tx, &files::hash(b"tar"), user, at(0)).await.unwrap().unwrap().id;
        drop(tx);
        Self { store, database: None, organization, user, file, seconds: AtomicI64::new(1) }
    }

    fn keep(mut self, database: TestDatabase) -> Self {
        self.database = Some(database);
        self
    }

    pub(crate) fn database(&self) -> &TestDatabase {
        self.database.as_ref().unwrap()
    }

    /// Returns a later instant with each call.
    pub(crate) fn tick(&self) -> Timestamp {
        at(self.seconds.fetch_add(1, Ordering::SeqCst))
    }

    pub(crate) fn new_job(&self, tags: &TagSet) -> jobs::NewJob {
        jobs::NewJob {
            id: JobId::random(),
            organization_id: self.organization,
            initiator_id: self.user,
            automatic: false,
            kind: Type::TemplateVersionImport,
            provisioner: "terraform".to_owned(),
            file_id: self.file,
            tags: tags.clone(),
            template_version_id: Some(TemplateVersionId::random()),
            workspace_build_id: None,
            input: Document::default(),
            trace_metadata: BTreeMap::new(),
        }
    }

    /// A waiting job.
    pub(crate) async fn job(&self, tags: &TagSet) -> JobId {
        let job = self.new_job(tags);
        let now = self.tick();
        coder_store::transaction!(self.store, coder_store::Error, |tx| { jobs::insert(tx, &job, now).await })
            .unwrap();
        job.id
    }

    /// A daemon that joined.
    pub(crate) async fn daemon(&self, name: &str, tags: &TagSet) -> DaemonId {
        let join = daemons::NewDaemon {
            organization_id: self.organization,
            name: name.to_owned(),
            key_id: KeyId::BUILT_IN,
            provisioners: vec!["terraform".to_owned()],
            tags: tags.clone(),
            version: "v2.30.0".to_owned(),
            api_version: "1.14".to_owned(),
        };
        let mut tx = self.store.single().await.unwrap();
        daemons::upsert(&mut tx, &join, self.tick()).await.unwrap()
    }

    pub(crate) async fn get_job(&self, id: JobId) -> jobs::Job {
        jobs::get(&mut self.store.reader().await.unwrap(), id).await.unwrap()
    }

    /// Claims as `daemon` any of the sets, at a new instant.
    pub(crate) async fn claim(&self, daemon: DaemonId, sets: &[i64]) -> Option<JobId> {
        self.claim_as(daemon, None, sets).await
    }

    /// Like [`Fixture::claim`], with a session that may resume.
    pub(crate) async fn claim_as(
        &self,
        daemon: DaemonId,
        session: Option<Sha256Digest>,
        sets: &[i64],
    ) -> Option<JobId> {
        let provisioners = ["terraform".to_owned()];
        let claim = jobs::ClaimRequest {
            organization_id: self.organization,
            provisioners: &provisioners,
            tag_sets: sets,
            daemon,
            session,
        };
        let mut tx = self.store.single().await.unwrap();
        jobs::claim(&mut tx, &claim, self.tick()).await.unwrap().map(|claimed| claimed.job)
    }
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

pub(crate) fn tags(pairs: &[(&str, &str)]) -> TagSet {
    let map: BTreeMap<_, _> =
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    TagSet::canonical(UserId::NIL, [&map])
}

pub(crate) fn new_user(username: &str) -> User {
    User {
        id: UserId::random(),
        username: username.to_owned(),
        email: format!("{username}@Example.com"),
        name: String::new(),
        avatar_url: String::new(),
        theme_preference: String::new(),
        status: UserStatus::Dormant,
        login_type: LoginType::Password,
        password_hash: None,
        site_roles: vec!["owner".to_owned()],
        is_system: false,
        created_at: at(0),
        updated_at: at(0),
        last_seen_at: None,
    }
}
