//! The scripts that start a workspace agent, one per platform (agent 1.1, 1.2).
//!
//! `${ARCH}` is replaced here; `${ACCESS_URL}` and `${AUTH_TYPE}` are left for the Terraform provider.

const LINUX: &str = include_str!("linux.sh");
const DARWIN: &str = include_str!("darwin.sh");
const WINDOWS: &str = include_str!("windows.ps1");

const PLATFORMS: [(&str, &str, &str); 7] = [
    ("linux", "amd64", LINUX),
    ("linux", "arm64", LINUX),
    ("linux", "armv7", LINUX),
    ("darwin", "amd64", DARWIN),
    ("darwin", "arm64", DARWIN),
    ("windows", "amd64", WINDOWS),
    ("windows", "arm64", WINDOWS),
];

/// The script for a platform; `None` when no agent exists for it.
pub fn script(os: &str, arch: &str) -> Option<String> {
    PLATFORMS
        .iter()
        .find(|(known_os, known_arch, _)| (*known_os, *known_arch) == (os, arch))
        .map(|(_, arch, text)| text.replace("${ARCH}", arch))
}

pub(crate) fn variables() -> impl Iterator<Item = (String, String)> {
    PLATFORMS
        .iter()
        .map(|(os, arch, text)| (format!("CODER_AGENT_SCRIPT_{os}_{arch}"), text.replace("${ARCH}", arch)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_architecture_is_filled_in() {
        let text = script("linux", "arm64").unwrap();
        assert!(text.contains("bin/coder-linux-arm64") && !text.contains("${ARCH}"));
        assert!(text.contains("${ACCESS_URL}") && text.contains("${AUTH_TYPE}"));
        assert!(script("plan9", "amd64").is_none());
        assert_eq!(variables().count(), 7);
    }

    #[test]
    fn shell_scripts_are_valid() {
        for text in [LINUX, DARWIN] {
            let checked = std::process::Command::new("sh").args(["-n", "-c", text]).status().unwrap();
            assert!(checked.success());
        }
    }
}
