//! The list of all statements, so that a test can prepare each of them on both engines.

use crate::engine::{Statement, forks};

/// Every statement of this crate.
#[must_use]
pub fn all() -> Vec<Statement> {
    let files: &[&[Statement]] = &[
        crate::workspaces::agents::STATEMENTS,
        crate::jobs::assignments::STATEMENTS,
        crate::audit::STATEMENTS,
        crate::deployment::bootstrap::STATEMENTS,
        crate::workspaces::builds::STATEMENTS,
        crate::counts::STATEMENTS,
        crate::changes::STATEMENTS,
        crate::check::STATEMENTS,
        crate::daemons::facts::STATEMENTS,
        crate::daemons::STATEMENTS,
        crate::encryption::STATEMENTS,
        crate::external_auth_links::STATEMENTS,
        crate::files::STATEMENTS,
        crate::workspaces::build_inputs::STATEMENTS,
        crate::jobs::logs::STATEMENTS,
        crate::jobs::uploads::STATEMENTS,
        crate::jobs::job::STATEMENTS,
        crate::jobs::backlog::STATEMENTS,
        crate::jobs::claim::STATEMENTS,
        crate::jobs::end::STATEMENTS,
        crate::jobs::hold::STATEMENTS,
        crate::jobs::queue_tables::STATEMENTS,
        crate::jobs::list::STATEMENTS,
        crate::jobs::progress::STATEMENTS,
        crate::jobs::queue::STATEMENTS,
        crate::jobs::reap::STATEMENTS,
        crate::jobs::requirements::STATEMENTS,
        crate::jobs::journals::STATEMENTS,
        crate::keys::STATEMENTS,
        crate::leases::STATEMENTS,
        crate::organizations::STATEMENTS,
        crate::workspaces::resources::STATEMENTS,
        crate::sessions::STATEMENTS,
        crate::server_secrets::STATEMENTS,
        crate::settings::STATEMENTS,
        crate::encryption::rotation::STATEMENTS,
        crate::tag_sets::STATEMENTS,
        crate::templates::STATEMENTS,
        crate::jobs::timings::STATEMENTS,
        crate::tokens::STATEMENTS,
        crate::users::STATEMENTS,
        crate::templates::version_details::STATEMENTS,
        crate::templates::versions::STATEMENTS,
        crate::workspaces::STATEMENTS,
        forks::STATEMENTS,
        crate::migrations::STATEMENTS,
    ];
    files.concat()
}
