//! The options of `coder config-ssh`, which are stored in its section.

use anyhow::bail;
use coder_api::deployment::SshConfig;

/// Options of OpenSSH that the section sets itself; a section without them would not work.
const DEFAULTS: [(&str, &str); 4] = [
    ("ConnectTimeout", "0"),
    ("StrictHostKeyChecking", "no"),
    ("UserKnownHostsFile", "/dev/null"),
    ("LogLevel", "ERROR"),
];

/// `--wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum WaitOption {
    Yes,
    No,
    Auto,
}

impl WaitOption {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Auto => "auto",
        }
    }
}

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SshOptions {
    pub(super) wait: Option<WaitOption>,
    pub(super) ssh_host_prefix: Option<String>,
    pub(super) hostname_suffix: Option<String>,
    pub(super) disable_autostart: bool,
    pub(super) ssh_options: Vec<String>,
    pub(super) headers: Vec<String>,
    pub(super) header_command: Option<String>,
}

impl SshOptions {
    /// Reads the lines of a section. Lines of a newer release are left out.
    pub(super) fn read(section: &str) -> Self {
        let mut options = Self::default();
        let lines = section.lines().filter_map(|line| line.strip_prefix("# :"));
        for (key, value) in lines.filter_map(|line| line.split_once('=')) {
            match key {
                "wait" => {
                    options.wait = match value {
                        "yes" => Some(WaitOption::Yes),
                        "no" => Some(WaitOption::No),
                        _ => None,
                    };
                }
                "ssh-host-prefix" => options.ssh_host_prefix = Some(value.to_owned()),
                "hostname-suffix" => options.hostname_suffix = Some(value.to_owned()),
                "disable-autostart" => options.disable_autostart = value == "true",
                "ssh-option" => options.ssh_options.push(value.to_owned()),
                "header" => options.headers.push(value.to_owned()),
                "header-command" => options.header_command = Some(value.to_owned()),
                _ => {}
            }
        }
        options
    }

    /// The lines that a section has, in their order.
    pub(super) fn lines(&self) -> Vec<String> {
        let one = |key: &str, value: &Option<String>| value.as_ref().map(|value| format!("{key}={value}"));
        let all = |key: &str, values: &[String]| {
            values.iter().map(|value| format!("{key}={value}")).collect::<Vec<_>>()
        };
        let mut lines: Vec<_> = self.wait.map(|wait| format!("wait={}", wait.as_str())).into_iter().collect();
        lines.extend(one("ssh-host-prefix", &self.ssh_host_prefix));
        lines.extend(one("hostname-suffix", &self.hostname_suffix));
        lines.extend(self.disable_autostart.then(|| "disable-autostart=true".to_owned()));
        lines.extend(all("ssh-option", &self.ssh_options));
        lines.extend(all("header", &self.headers));
        lines.extend(one("header-command", &self.header_command));
        lines
    }

    /// Refuses what would break out of its line.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.lines().iter().any(|line| line.contains(['\n', '\r', '\0'])) {
            bail!("an option has a line break, which no line of an SSH configuration may have");
        }
        for option in &self.ssh_options {
            split(option)?;
        }
        Ok(())
    }

    /// The prefix of host names: the option's, or the server's.
    pub(super) fn prefix<'a>(&'a self, server: &'a SshConfig) -> &'a str {
        self.ssh_host_prefix.as_deref().unwrap_or(&server.hostname_prefix)
    }

    /// The suffix of host names, without its dot.
    pub(super) fn suffix<'a>(&'a self, server: &'a SshConfig) -> &'a str {
        self.hostname_suffix.as_deref().unwrap_or(&server.hostname_suffix).trim_start_matches('.')
    }

    /// The options of OpenSSH: the user's, then the deployment's, then the defaults. An empty value takes later ones of its
    /// name away; OpenSSH itself uses the first of several.
    pub(super) fn ssh_options(&self, server: &SshConfig) -> anyhow::Result<Vec<(String, String)>> {
        let mut lines = Vec::new();
        let mut removed: Vec<String> = Vec::new();
        let user: Vec<_> = self.ssh_options.iter().map(|option| split(option)).collect::<Result<_, _>>()?;
        let deployment: Vec<_> = server
            .ssh_config_options
            .iter()
            .map(|(key, value)| check(key, value))
            .collect::<Result<_, _>>()?;
        let defaults = DEFAULTS.map(|(key, value)| (key.to_owned(), value.to_owned()));
        for (key, value) in user.into_iter().chain(deployment).chain(defaults) {
            let name = key.to_ascii_lowercase();
            if removed.contains(&name) {
                continue;
            }
            if value.is_empty() {
                removed.push(name);
            } else {
                lines.push((key, value));
            }
        }
        Ok(lines)
    }
}

/// Reads `Key=Value` and `Key Value`.
fn split(option: &str) -> anyhow::Result<(String, String)> {
    let Some((key, value)) = option.split_once(['=', ' ']) else {
        bail!("the SSH option {option:?} is not of the form Key=Value");
    };
    check(key.trim(), value.trim())
}

/// Only what stays in its line, and in its block.
fn check(key: &str, value: &str) -> anyhow::Result<(String, String)> {
    let is_word = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric());
    if !is_word || ["host", "match", "include"].contains(&key.to_ascii_lowercase().as_str()) {
        bail!("{key:?} is not an option of a host in an SSH configuration");
    }
    if value.contains(['\n', '\r', '\0']) {
        bail!("the SSH option {key:?} has a line break");
    }
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_they_were_written() {
        let options = SshOptions {
            wait: Some(WaitOption::No),
            ssh_host_prefix: Some("c.".to_owned()),
            hostname_suffix: Some("test".to_owned()),
            disable_autostart: true,
            ssh_options: vec!["ForwardAgent=yes".to_owned(), "User=x=y".to_owned()],
            headers: vec!["A=b".to_owned()],
            header_command: Some("echo a=b".to_owned()),
        };
        let text: String = options.lines().iter().map(|line| format!("# :{line}\n")).collect();
        assert_eq!(SshOptions::read(&text), options);
        assert_eq!(SshOptions::read("# :new-option=1\n#\n"), SshOptions::default());
    }

    #[test]
    fn first_option_of_a_name_wins_and_an_empty_one_removes_the_others() {
        let mut server = SshConfig::default();
        server.ssh_config_options.insert("LogLevel".to_owned(), "INFO".to_owned());
        let of = |options: &[&str]| {
            let options = options.iter().map(|option| (*option).to_owned()).collect();
            SshOptions { ssh_options: options, ..SshOptions::default() }.ssh_options(&server)
        };
        let keys = |options: &[&str]| -> Vec<String> {
            of(options).unwrap().into_iter().map(|(key, value)| format!("{key} {value}")).collect()
        };
        assert_eq!(
            keys(&["ForwardAgent=yes", "loglevel="]),
            [
                "ForwardAgent yes",
                "ConnectTimeout 0",
                "StrictHostKeyChecking no",
                "UserKnownHostsFile /dev/null"
            ]
        );
        assert_eq!(keys(&[])[0], "LogLevel INFO");
        for wrong in ["x", "=y", "Host=*", "match=all", "Include=/etc/passwd", "A b c\nHost *", "Pro xy=1\0"]
        {
            assert!(of(&[wrong]).is_err(), "{wrong:?}");
        }
    }
}
