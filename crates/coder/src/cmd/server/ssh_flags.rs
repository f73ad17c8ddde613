//! The flags about plain SSH to workspaces: what `coder config-ssh` writes on the machines of users.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use clap::Args as ClapArgs;
use coder_server::config::Ssh;

use crate::env;

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "SSH")]
pub(crate) struct SshFlags {
    /// Beginning of the host names of workspaces that `coder config-ssh` writes; empty for none.
    #[arg(long, env = env::SSH_HOSTNAME_PREFIX, default_value = "coder.", value_name = "PREFIX")]
    pub(crate) ssh_hostname_prefix: String,
    /// End of these host names, without its dot.
    #[arg(long, env = env::WORKSPACE_HOSTNAME_SUFFIX, default_value = "coder", value_name = "SUFFIX")]
    pub(crate) workspace_hostname_suffix: String,
    /// Option of OpenSSH, as Key=Value or "Key Value", that `coder config-ssh` writes for every workspace; may be repeated.
    #[arg(long, env = env::SSH_CONFIG_OPTIONS, value_delimiter = ',', value_name = "KEY=VALUE")]
    pub(crate) ssh_config_options: Vec<String>,
}

impl SshFlags {
    /// Checks the flags.
    pub(super) fn settings(&self) -> anyhow::Result<Ssh> {
        let (prefix, suffix) = (&self.ssh_hostname_prefix, &self.workspace_hostname_suffix);
        for (flag, text) in [("--ssh-hostname-prefix", prefix), ("--workspace-hostname-suffix", suffix)] {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
            ensure!(is_plain, "{flag} may have letters, digits, dots, hyphens and underscores only");
        }
        ensure!(!suffix.is_empty(), "--workspace-hostname-suffix must not be empty");
        ensure!(
            !suffix.starts_with('.'),
            "--workspace-hostname-suffix is given without the dot in front of it: {:?}",
            suffix.trim_start_matches('.')
        );
        let options = self.ssh_config_options.iter().filter(|option| !option.is_empty());
        Ok(Ssh {
            hostname_prefix: prefix.clone(),
            hostname_suffix: suffix.clone(),
            config_options: options
                .map(|option| parse(option))
                .collect::<anyhow::Result<BTreeMap<_, _>>>()?,
        })
    }
}

/// Reads `Key=Value` and `Key Value`.
fn parse(option: &str) -> anyhow::Result<(String, String)> {
    let Some((key, value)) = option.split_once(['=', ' ']) else {
        bail!("--ssh-config-options: {option:?} is not of the form Key=Value");
    };
    let (key, value) = (key.trim(), value.trim());
    ensure!(
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        "--ssh-config-options: {key:?} is not an option of OpenSSH"
    );
    ensure!(!value.contains(['\n', '\r', '\0']), "--ssh-config-options: the value of {key} has a line break");
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn settings(args: &[&str]) -> anyhow::Result<Ssh> {
        let command = SshFlags::augment_args(clap::Command::new("server"));
        let matches = command.try_get_matches_from(["server"].iter().chain(args)).unwrap();
        SshFlags::from_arg_matches(&matches).unwrap().settings()
    }

    #[test]
    fn defaults_are_the_official_ones() {
        let found = settings(&[]).unwrap();
        assert_eq!((found.hostname_prefix.as_str(), found.hostname_suffix.as_str()), ("coder.", "coder"));
        assert!(found.config_options.is_empty());
    }

    #[test]
    fn options_have_a_key_and_a_value() {
        let found = settings(&["--ssh-config-options=ForwardAgent=yes,SetEnv A=B"]).unwrap();
        let options: Vec<_> = found.config_options.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(options, [("ForwardAgent", "yes"), ("SetEnv", "A=B")]);
        for wrong in ["ForwardAgent", "=yes", "Two Words=yes\nHost *", "A-B=c"] {
            assert!(settings(&[&format!("--ssh-config-options={wrong}")]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn parts_of_host_names_are_checked() {
        for wrong in ["", ".coder", "a b", "a/b"] {
            assert!(settings(&[&format!("--workspace-hostname-suffix={wrong}")]).is_err(), "{wrong:?}");
        }
        assert!(settings(&["--ssh-hostname-prefix=*"]).is_err());
        assert_eq!(settings(&["--ssh-hostname-prefix="]).unwrap().hostname_prefix, "");
    }
}
