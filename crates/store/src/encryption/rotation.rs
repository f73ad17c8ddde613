//! Lists every column that holds secrets, and re-encrypts their values (`coder server states`, and each start of a
//! server with a new key). Servers may be running meanwhile.

use std::collections::BTreeMap;

use coder_domain::ids::{BuildId, JobId, UserId};
use coder_domain::secret::Secret;

use crate::check::Violation;
use crate::encryption::keys::{Owner, StateKeys};
use crate::engine::{Row, Statement, Tx, Value, sql, statements, values};
use crate::workspaces::agents;
use crate::{Error, Result, Store, transaction};

/// Rows per transaction, for small and for large values.
const SMALL_VALUES_PAGE: i64 = 16;
const LARGE_VALUES_PAGE: i64 = 1;

/// The result of a rotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RotationReport {
    /// The number of rewritten values.
    pub changed: u64,
    /// The number of examined values.
    pub total: u64,
}

/// The statements for a column of a table with a primary key of one column.
macro_rules! by_one {
    (list $table:literal $key:literal $column:literal) => {
        sql(concat!(
            "select ",
            $key,
            " as id, ",
            $column,
            " as stored from ",
            $table,
            " where ",
            $key,
            " > $1 order by ",
            $key,
            " limit $2"
        ))
    };
    (put $table:literal $key:literal $column:literal) => {
        sql(concat!(
            "update ",
            $table,
            " set ",
            $column,
            " = $2 where ",
            $key,
            " = $1 and ",
            $column,
            " = $3"
        ))
    };
}

/// The statements for a column of a table with a primary key of two columns. The second is a text or a number.
macro_rules! by_two {
    (list $table:literal $key:literal $second:literal $kind:literal $column:literal) => {
        sql(concat!(
            "select ",
            $key,
            " || ' ' || cast(",
            $second,
            " as text) as id, ",
            $column,
            " as stored from ",
            $table,
            " where (",
            $key,
            ", ",
            $second,
            ") > ($1, cast($2 as ",
            $kind,
            ")) order by ",
            $key,
            ", ",
            $second,
            " limit $3"
        ))
    };
    (put $table:literal $key:literal $second:literal $kind:literal $column:literal) => {
        sql(concat!(
            "update ",
            $table,
            " set ",
            $column,
            " = $3 where ",
            $key,
            " = $1 and ",
            $second,
            " = cast($2 as ",
            $kind,
            ") and ",
            $column,
            " = $4"
        ))
    };
}

statements! { "state_rotation";
    BUILD_STATES = by_one!(list "workspace_build_states" "workspace_build_id" "state");
    PUT_BUILD_STATE = by_one!(put "workspace_build_states" "workspace_build_id" "state");
    JOURNALS = by_one!(list "provisioner_job_journals" "job_id" "state");
    PUT_JOURNAL = sql("update provisioner_job_journals set state = $2, cipher = $4 where job_id = $1 and state = $3");
    LINKS = by_two!(list "external_auth_links" "user_id" "provider_id" "text" "tokens");
    PUT_LINK = by_two!(put "external_auth_links" "user_id" "provider_id" "text" "tokens");
    SSH_KEYS = by_one!(list "git_ssh_keys" "user_id" "private_key");
    PUT_SSH_KEY = by_one!(put "git_ssh_keys" "user_id" "private_key");
    INPUTS = by_one!(list "provisioner_jobs" "id" "input");
    PUT_INPUT = by_one!(put "provisioner_jobs" "id" "input");
    PARAMETERS = by_two!(list "workspace_build_parameters" "workspace_build_id" "name" "text" "value");
    PUT_PARAMETER = by_two!(put "workspace_build_parameters" "workspace_build_id" "name" "text" "value");
    VARIABLES = by_two!(list "template_version_variables" "template_version_id" "name" "text" "value");
    PUT_VARIABLE = by_two!(put "template_version_variables" "template_version_id" "name" "text" "value");
    DEFAULTS = by_two!(list "template_version_variables" "template_version_id" "name" "text" "default_value");
    PUT_DEFAULT = by_two!(put "template_version_variables" "template_version_id" "name" "text" "default_value");
    PLANS = by_one!(list "template_version_plans" "template_version_id" "plan");
    PUT_PLAN = by_one!(put "template_version_plans" "template_version_id" "plan");
    METADATA = by_one!(list "workspace_resources" "id" "metadata");
    PUT_METADATA = by_one!(put "workspace_resources" "id" "metadata");
    AGENTS = by_one!(list "workspace_agents" "id" "definition");
    PUT_AGENT = by_one!(put "workspace_agents" "id" "definition");
    APPS = by_one!(list "workspace_apps" "id" "definition");
    PUT_APP = by_one!(put "workspace_apps" "id" "definition");
    LOG_LINES = by_two!(list "provisioner_job_logs" "job_id" "first_id" "bigint" "lines");
    PUT_LOG_LINES = by_two!(put "provisioner_job_logs" "job_id" "first_id" "bigint" "lines");
    PACKED_LOGS = by_two!(list "provisioner_job_logs" "job_id" "first_id" "bigint" "packed");
    PUT_PACKED_LOGS = by_two!(put "provisioner_job_logs" "job_id" "first_id" "bigint" "packed");
    AGENT_LOGS = by_two!(list "workspace_agent_logs" "agent_id" "first_id" "bigint" "lines");
    PUT_AGENT_LOGS = by_two!(put "workspace_agent_logs" "agent_id" "first_id" "bigint" "lines");
    FILES = by_one!(list "files" "id" "data");
    PUT_FILE = by_one!(put "files" "id" "data");
    FILE_PARTS = by_one!(list "file_parts" "id" "data");
    PUT_FILE_PART = by_one!(put "file_parts" "id" "data");
    SERVER_SECRETS = by_one!(list "server_secrets" "name" "value");
    PUT_SERVER_SECRET = by_one!(put "server_secrets" "name" "value");
    PLAIN_TOKENS = sql("select id, auth_token from workspace_agents where id > $1 and substr(auth_token, 1, 7) <> 'sha256:'
        order by id limit $2");
    PUT_TOKEN = sql("update workspace_agents set auth_token = $2 where id = $1 and auth_token = $3");
}

/// A column that holds secrets.
struct SecretColumn {
    table: &'static str,
    column: &'static str,
    list: &'static Statement,
    put: &'static Statement,
    is_text: bool,
    has_two_keys: bool,
    page: i64,
}

impl SecretColumn {
    const fn new(
        table: &'static str,
        column: &'static str,
        (list, put): (&'static Statement, &'static Statement),
    ) -> Self {
        Self { table, column, list, put, is_text: false, has_two_keys: false, page: SMALL_VALUES_PAGE }
    }

    const fn text(mut self) -> Self {
        self.is_text = true;
        self
    }

    const fn two_keys(mut self) -> Self {
        self.has_two_keys = true;
        self
    }

    const fn large(mut self) -> Self {
        self.page = LARGE_VALUES_PAGE;
        self
    }
}

const SECRET_COLUMNS: &[SecretColumn] = &[
    SecretColumn::new("workspace_build_states", "state", (&BUILD_STATES, &PUT_BUILD_STATE)),
    SecretColumn::new("provisioner_job_journals", "state", (&JOURNALS, &PUT_JOURNAL)),
    SecretColumn::new("external_auth_links", "tokens", (&LINKS, &PUT_LINK)).two_keys(),
    SecretColumn::new("git_ssh_keys", "private_key", (&SSH_KEYS, &PUT_SSH_KEY)).text(),
    SecretColumn::new("provisioner_jobs", "input", (&INPUTS, &PUT_INPUT)).text(),
    SecretColumn::new("workspace_build_parameters", "value", (&PARAMETERS, &PUT_PARAMETER)).text().two_keys(),
    SecretColumn::new("template_version_variables", "value", (&VARIABLES, &PUT_VARIABLE)).text().two_keys(),
    SecretColumn::new("template_version_variables", "default_value", (&DEFAULTS, &PUT_DEFAULT))
        .text()
        .two_keys(),
    SecretColumn::new("template_version_plans", "plan", (&PLANS, &PUT_PLAN)),
    SecretColumn::new("workspace_resources", "metadata", (&METADATA, &PUT_METADATA)).text(),
    SecretColumn::new("workspace_agents", "definition", (&AGENTS, &PUT_AGENT)).text(),
    SecretColumn::new("workspace_apps", "definition", (&APPS, &PUT_APP)).text(),
    SecretColumn::new("provisioner_job_logs", "lines", (&LOG_LINES, &PUT_LOG_LINES)).text().two_keys(),
    SecretColumn::new("provisioner_job_logs", "packed", (&PACKED_LOGS, &PUT_PACKED_LOGS)).two_keys(),
    SecretColumn::new("workspace_agent_logs", "lines", (&AGENT_LOGS, &PUT_AGENT_LOGS)).text().two_keys(),
    SecretColumn::new("files", "data", (&FILES, &PUT_FILE)).large(),
    SecretColumn::new("file_parts", "data", (&FILE_PARTS, &PUT_FILE_PART)).large(),
    SecretColumn::new("server_secrets", "value", (&SERVER_SECRETS, &PUT_SERVER_SECRET)).text(),
];

/// Earlier releases encrypted only this many columns, from the beginning of the list.
const ENCRYPTED_EARLIER: usize = 3;

/// The encrypted columns, as table and column.
pub fn columns() -> impl Iterator<Item = (&'static str, &'static str)> {
    SECRET_COLUMNS.iter().map(|column| (column.table, column.column))
}

/// Decrypts every secret with the store's keys and encrypts it with the first key of `to`, or stores it unencrypted
/// when `to` has no key. Values that need no change are not written. Agent tokens become hashes in any case.
///
/// # Errors
/// [`Error::RowKeyMissing`] when the store lacks a key. Earlier changes stay, and the call can be repeated.
pub async fn rotate(store: &Store, to: &StateKeys) -> Result<RotationReport> {
    let mut rotated = RotationReport::default();
    for column in SECRET_COLUMNS {
        let mut after = String::new();
        loop {
            let mut tx = store.reader().await?;
            let rows = tx.fetch(column.list, column.page(&after)).await?;
            let keys = tx.state_keys();
            drop(tx);
            let mut changes = Vec::new();
            for row in &rows {
                after = row.get("id")?;
                changes.extend(column.change(row, &after, &keys, to)?);
            }
            rotated.total += u64::try_from(rows.len()).unwrap_or(u64::MAX);
            if rows.is_empty() {
                break;
            }
            drop(rows);
            if !changes.is_empty() {
                rotated.changed += transaction!(store, Error, |tx| {
                    let mut changed = 0;
                    for change in &changes {
                        changed += tx.execute(column.put, change.clone()).await?;
                    }
                    Ok(changed)
                })?;
            }
        }
    }
    hash_tokens(store).await?;
    Ok(rotated)
}

impl SecretColumn {
    /// The parameters that select the rows after this one.
    fn page(&self, after: &str) -> Vec<Value> {
        if !self.has_two_keys {
            return values![after.to_owned(), self.page];
        }
        // 0 is less than every number in such a column. For a text column the value does not matter, because the first
        // key column decides.
        let (first, second) = after.split_once(' ').unwrap_or(("", "0"));
        values![first.to_owned(), second.to_owned(), self.page]
    }

    fn owner<'a>(&self, id: &'a str) -> Option<Owner<'a>> {
        let (table, column) = (self.table, self.column);
        let (uuid, rest) = id.split_once(' ').unwrap_or((id, ""));
        let uuid = || uuid::Uuid::parse_str(uuid).ok();
        Some(match (table, column) {
            ("workspace_build_states", _) => Owner::Build(BuildId(uuid()?)),
            ("provisioner_job_journals", _) => Owner::Journal(JobId(uuid()?)),
            ("external_auth_links", _) => Owner::Link(UserId(uuid()?), rest),
            _ => Owner::Cell { table, column, id },
        })
    }

    /// The parameters that rewrite a value; none when it needs no change.
    fn change(&self, row: &Row, id: &str, keys: &StateKeys, to: &StateKeys) -> Result<Option<Vec<Value>>> {
        let Some(owner) = self.owner(id) else { return Ok(None) };
        let (new, old) = if self.is_text {
            let stored: String = row.get("stored")?;
            if to.is_text_current(&stored) {
                return Ok(None);
            }
            let new = to.seal_text(owner, keys.open_text(owner, stored.clone())?);
            (Value::Text(new), Value::Text(stored))
        } else {
            let Some(stored) = row.get::<Option<Vec<u8>>>("stored")? else { return Ok(None) };
            if to.is_current(&stored) {
                return Ok(None);
            }
            let new = to.seal(owner, keys.open(owner, stored.clone())?);
            (Value::Bytes(new), Value::Bytes(stored))
        };
        let (first, second) = id.split_once(' ').unwrap_or((id, ""));
        let mut change = values![first.to_owned()];
        if self.has_two_keys {
            change.extend(values![second.to_owned()]);
        }
        // A running server may have stored a newer value meanwhile.
        change.extend([new, old]);
        if self.table == "provisioner_job_journals" {
            change.extend(values![to.cipher()]);
        }
        Ok(Some(change))
    }
}

/// Earlier releases stored agent tokens unhashed.
pub(crate) async fn hash_tokens(store: &Store) -> Result<()> {
    let mut after = String::new();
    loop {
        let rows = store.reader().await?.fetch(&PLAIN_TOKENS, values![after, SMALL_VALUES_PAGE]).await?;
        for row in &rows {
            after = row.get("id")?;
            let plain: String = row.get("auth_token")?;
            let hashed = agents::hash_token(&Secret::new(plain.clone()));
            store.single().await?.execute(&PUT_TOKEN, values![after, hashed, plain]).await?;
        }
        if rows.is_empty() {
            return Ok(());
        }
    }
}

/// The values that cannot be read with the store's keys: one violation for each missing key, and one for each other value.
pub async fn list_undecryptable(store: &Store) -> Result<Vec<Violation>> {
    let mut tx = store.reader().await?;
    let keys = tx.state_keys();
    let invariant = "every secret can be decrypted";
    let mut found = Vec::new();
    let mut missing = BTreeMap::<String, usize>::new();
    for column in SECRET_COLUMNS {
        let mut after = String::new();
        loop {
            let rows = tx.fetch(column.list, column.page(&after)).await?;
            for row in &rows {
                after = row.get("id")?;
                match column.read(row, &after, &keys) {
                    Ok(()) => {}
                    Err(Error::RowKeyMissing { key, .. }) => *missing.entry(key).or_default() += 1,
                    Err(error) => {
                        found.push(Violation { invariant, id: after.clone(), detail: error.to_string() });
                    }
                }
            }
            if rows.is_empty() {
                break;
            }
        }
    }
    found.extend(missing.into_iter().map(|(key, count)| Violation {
        invariant,
        detail: format!(
            "{count} values are encrypted with this key, which is not configured: add it to --state-encryption-keys"
        ),
        id: format!("key {key}"),
    }));
    Ok(found)
}

impl SecretColumn {
    fn read(&self, row: &Row, id: &str, keys: &StateKeys) -> Result<()> {
        let Some(owner) = self.owner(id) else { return Ok(()) };
        if self.is_text {
            return keys.open_text(owner, row.get("stored")?).map(|_| ());
        }
        let stored = row.get::<Option<Vec<u8>>>("stored")?;
        stored.map_or(Ok(()), |stored| keys.open(owner, stored).map(|_| ()))
    }
}

/// The id of the first key that encrypted a value and that `keys` lacks. For databases of earlier releases, which had
/// no list of keys.
pub(crate) async fn find_foreign_key(tx: &mut Tx, keys: &StateKeys) -> Result<Option<String>> {
    for column in &SECRET_COLUMNS[..ENCRYPTED_EARLIER] {
        let mut after = String::new();
        loop {
            let rows = tx.fetch(column.list, column.page(&after)).await?;
            for row in &rows {
                after = row.get("id")?;
                let stored = row.get::<Option<Vec<u8>>>("stored")?.unwrap_or_default();
                if let Some(key) = crate::encryption::keys::key_name(&stored).filter(|key| !keys.has(key)) {
                    return Ok(Some(key));
                }
            }
            if rows.is_empty() {
                break;
            }
        }
    }
    Ok(None)
}
