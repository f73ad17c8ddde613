//! `Debug` of the messages that carry a secret, without it.

use std::fmt;

use crate::messages::coder::agent::v2::{Manifest, SubAgent};

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment and the scripts of a workspace hold passwords.
        f.debug_struct("Manifest")
            .field("agent_name", &self.agent_name)
            .field("workspace_name", &self.workspace_name)
            .field("owner_username", &self.owner_username)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SubAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubAgent").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::coder::agent::v2::{ListSubAgentsResponse, WorkspaceAgentScript};

    #[test]
    fn neither_environment_nor_script_nor_token_is_printed() {
        let manifest = Manifest {
            agent_name: "main".to_owned(),
            environment_variables: [("PASSWORD".to_owned(), "geheim".to_owned())].into(),
            scripts: vec![WorkspaceAgentScript {
                script: "login versteckt".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let text = format!("{manifest:?}");
        assert!(text.contains("main"), "{text}");
        assert!(!text.contains("geheim") && !text.contains("versteckt"), "{text}");

        let agent =
            SubAgent { name: "inner".to_owned(), auth_token: b"geheim".to_vec(), ..Default::default() };
        let text = format!("{:?}", ListSubAgentsResponse { agents: vec![agent] });
        assert!(text.contains("inner") && !text.contains(&format!("{:?}", b"geheim")[1..10]), "{text}");
    }
}
