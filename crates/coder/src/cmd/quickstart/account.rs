//! The first user of a quickstart, kept in its directory so that the directory can be used again.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use coder_api::client::Client;
use coder_api::users::CreateFirstUserRequest;
use coder_domain::key;
use coder_domain::secret::Secret;

use crate::session::Directory;

pub(super) const USER: &str = "admin";
const EMAIL: &str = "admin@localhost.localdomain";
/// Long enough for any rule, short enough to type.
const PASSWORD_LENGTH: usize = 20;

/// Who is signed in.
pub(super) struct Account {
    pub(super) email: String,
    pub(super) password: Secret,
    /// With a session.
    pub(super) client: Client,
}

/// The directory for `CODER_CONFIG_DIR`.
pub(super) fn config_directory(directory: &Path) -> PathBuf {
    directory.join("config")
}

/// Creates the first user, or signs in as the one of an earlier run.
pub(super) async fn prepare(client: &Client, directory: &Path, url: &str) -> anyhow::Result<Account> {
    let file = directory.join("password");
    let password = if client.has_first_user().await? {
        match fs::read_to_string(&file) {
            Ok(text) => Secret::new(text.trim()),
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                "{} has a database with users that quickstart did not make: name another directory",
                directory.display()
            ),
            Err(error) => return Err(error).with_context(|| format!("read {}", file.display())),
        }
    } else {
        let password = Secret::new(key::random_text(PASSWORD_LENGTH, |bytes| {
            getrandom::fill(bytes).expect("the system always has random bytes once it has started");
        }));
        save(&file, &password).with_context(|| format!("write {}", file.display()))?;
        let request = CreateFirstUserRequest {
            email: EMAIL.to_owned(),
            username: USER.to_owned(),
            name: String::new(),
            password: password.clone(),
            trial: false,
        };
        client.create_first_user(&request).await.context("make the first user")?;
        password
    };
    let token = client.login(EMAIL, password.clone()).await.context("log in")?;
    Directory::locate(Some(config_directory(directory))).save(url, &token)?;
    Ok(Account { email: EMAIL.to_owned(), password, client: client.with_token(Some(token)) })
}

fn save(file: &Path, password: &Secret) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    file.write_all(password.expose().as_bytes())
}
