//! The list of all statements, so that a test can prepare each of them on both engines.

use crate::engine::{Statement, forks, migrate};

/// Every statement of this crate.
#[must_use]
pub fn all() -> Vec<Statement> {
    let files: &[&[Statement]] = &[
        crate::agents::STATEMENTS,
        crate::assignments::STATEMENTS,
        crate::audit::STATEMENTS,
        crate::bootstrap::STATEMENTS,
        crate::builds::STATEMENTS,
        crate::census::STATEMENTS,
        crate::changes::STATEMENTS,
        crate::check::STATEMENTS,
        crate::daemon_facts::STATEMENTS,
        crate::daemons::STATEMENTS,
        crate::encryption::STATEMENTS,
        crate::external_auth_links::STATEMENTS,
        crate::files::STATEMENTS,
        crate::foundations::STATEMENTS,
        crate::job_logs::STATEMENTS,
        crate::job_uploads::STATEMENTS,
        crate::jobs::STATEMENTS,
        crate::jobs::backlog::STATEMENTS,
        crate::jobs::claim::STATEMENTS,
        crate::jobs::end::STATEMENTS,
        crate::jobs::hold::STATEMENTS,
        crate::jobs::lines::STATEMENTS,
        crate::jobs::list::STATEMENTS,
        crate::jobs::progress::STATEMENTS,
        crate::jobs::queue::STATEMENTS,
        crate::jobs::reap::STATEMENTS,
        crate::jobs::wanted::STATEMENTS,
        crate::journals::STATEMENTS,
        crate::keys::STATEMENTS,
        crate::leases::STATEMENTS,
        crate::organizations::STATEMENTS,
        crate::resources::STATEMENTS,
        crate::sessions::STATEMENTS,
        crate::settings::STATEMENTS,
        crate::state_rotation::STATEMENTS,
        crate::tag_sets::STATEMENTS,
        crate::templates::STATEMENTS,
        crate::timings::STATEMENTS,
        crate::tokens::STATEMENTS,
        crate::users::STATEMENTS,
        crate::version_details::STATEMENTS,
        crate::versions::STATEMENTS,
        crate::workspaces::STATEMENTS,
        forks::STATEMENTS,
        migrate::STATEMENTS,
    ];
    files.concat()
}
