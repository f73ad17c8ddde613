//! The agent: runs in a workspace, and gives its users a shell, its ports and its state.
