//! The section in the configuration of OpenSSH: found, written, and put in its old place. Text around it stays as it is.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::bail;
use coder_api::deployment::SshConfig;

use super::options::{SshOptions, WaitOption};

const START: &str = "# ------------START-CODER-----------";
const END: &str = "# ------------END-CODER------------";
const HEAD: &str = "# This section is managed by coder. DO NOT EDIT.
#
# You should not hand-edit this section unless you are removing it, all
# changes will be lost when running \"coder config-ssh\".
#
";

/// A configuration, cut at its section.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    before: &'a str,
    /// The section with its first and last line.
    pub(super) section: Option<&'a str>,
    after: &'a str,
}

/// Finds the section.
pub(super) fn split(text: &str) -> anyhow::Result<Parts<'_>> {
    let places = |mark: &str| -> Vec<usize> {
        let mut place = 0;
        let mut found = Vec::new();
        for line in text.split_inclusive('\n') {
            if line.trim_end() == mark {
                found.push(place);
            }
            place += line.len();
        }
        found
    };
    match (&places(START)[..], &places(END)[..]) {
        ([], []) => Ok(Parts { before: text, section: None, after: "" }),
        ([start], [end]) if start < end => {
            let rest = &text[*end..];
            let end = end + rest.find('\n').map_or(rest.len(), |newline| newline + 1);
            Ok(Parts { before: &text[..*start], section: Some(&text[*start..end]), after: &text[end..] })
        }
        ([_], [_]) => bail!("the coder section ends before it starts: remove its lines and try again"),
        ([], _) => bail!("the coder section has no start line {START:?}: remove its end line and try again"),
        (_, []) => bail!("the coder section has no end line {END:?}: remove its start line and try again"),
        _ => bail!("there is more than one coder section: remove all of them and try again"),
    }
}

impl Parts<'_> {
    /// The configuration with another section; a new one stands at the end.
    pub(super) fn replace(&self, section: &str) -> String {
        let mut text = self.before.to_owned();
        if self.section.is_none() && !text.is_empty() {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            // A blank line separates it from the last host.
            if !text.ends_with("\n\n") {
                text.push('\n');
            }
        }
        text + section + self.after
    }
}

/// What a section is written from.
pub(super) struct Rendering<'a> {
    pub(super) options: &'a SshOptions,
    pub(super) server: &'a SshConfig,
    pub(super) program: &'a Path,
    pub(super) config_directory: Option<&'a Path>,
    pub(super) proxy_command: bool,
}

impl Rendering<'_> {
    /// The whole section.
    pub(super) fn write(&self) -> anyhow::Result<String> {
        let (prefix, suffix) = (self.options.prefix(self.server), self.options.suffix(self.server));
        for (what, text) in [("prefix", prefix), ("suffix", suffix)] {
            let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b));
            if !is_plain {
                bail!(
                    "the {what} {text:?} of the host names may have letters, digits, dots, hyphens and underscores only"
                );
            }
        }
        if prefix.is_empty() && suffix.is_empty() {
            bail!("the host names have neither a prefix nor a suffix, so they would match every host");
        }
        let mut text = format!("{START}\n{HEAD}");
        let lines = self.options.lines();
        if !lines.is_empty() {
            text.push_str("# Last config-ssh options:\n");
            for line in lines {
                writeln!(text, "# :{line}")?;
            }
            text.push_str("#\n");
        }
        let options: String = self
            .options
            .ssh_options(self.server)?
            .into_iter()
            .map(|(key, value)| format!("\t{key} {value}\n"))
            .collect();
        let program = quote(&self.program.to_string_lossy())?;
        let mut blocks = Vec::new();
        if !prefix.is_empty() {
            let mut block = format!("Host {prefix}*\n{options}");
            if self.proxy_command {
                let command = self.command(&program, &format!("--ssh-host-prefix {prefix}"))?;
                writeln!(block, "\tProxyCommand {command}")?;
            }
            blocks.push(block);
        }
        if !suffix.is_empty() {
            blocks.push(format!("Host *.{suffix}\n{options}"));
            if self.proxy_command {
                let command = self.command(&program, &format!("--hostname-suffix {suffix}"))?;
                let exists = quote_in_exec(&program);
                blocks.push(format!(
                    "Match host *.{suffix} !exec \"{exists} connect exists %h\"\n\tProxyCommand {command}\n"
                ));
            }
        }
        text.push_str(&blocks.join("\n"));
        text.push_str(END);
        text.push('\n');
        Ok(text)
    }

    fn command(&self, program: &str, host: &str) -> anyhow::Result<String> {
        let mut command = program.to_owned();
        if let Some(directory) = self.config_directory {
            write!(command, " --global-config {}", quote(&directory.to_string_lossy())?)?;
        }
        for header in &self.options.headers {
            write!(command, " --header {}", quote(header)?)?;
        }
        if let Some(header_command) = &self.options.header_command {
            write!(command, " --header-command {}", quote(header_command)?)?;
        }
        command.push_str(" ssh --stdio");
        if let Some(wait) = self.options.wait.filter(|wait| *wait != WaitOption::Auto) {
            write!(command, " --wait={}", wait.as_str())?;
        }
        if self.options.disable_autostart {
            command.push_str(" --disable-autostart=true");
        }
        write!(command, " {host} %h")?;
        Ok(command)
    }
}

/// A word of a proxy command, which OpenSSH gives to a shell after it has expanded its percent signs.
fn quote(word: &str) -> anyhow::Result<String> {
    if word.contains(['\n', '\r', '\0']) {
        bail!("{word:?} has a line break, which no line of an SSH configuration may have");
    }
    let word = word.replace('%', "%%");
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"%+,-./:=@_".contains(&b);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return Ok(word);
    }
    Ok(format!("'{}'", word.replace('\'', r"'\''")))
}

/// The same inside the quotation marks of `exec`.
fn quote_in_exec(word: &str) -> String {
    word.replace('\\', r"\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(options: &SshOptions, program: &str) -> anyhow::Result<String> {
        let rendering = Rendering {
            options,
            server: &SshConfig::default(),
            program: Path::new(program),
            config_directory: Some(Path::new("/home/a/.config/coderv2")),
            proxy_command: true,
        };
        rendering.write()
    }

    /// agent 7.2.
    #[test]
    fn section_has_the_official_form() {
        let options = SshOptions {
            wait: Some(WaitOption::Yes),
            ssh_options: vec!["ForwardAgent=yes".to_owned()],
            ..SshOptions::default()
        };
        let expected = "# ------------START-CODER-----------
# This section is managed by coder. DO NOT EDIT.
#
# You should not hand-edit this section unless you are removing it, all
# changes will be lost when running \"coder config-ssh\".
#
# Last config-ssh options:
# :wait=yes
# :ssh-option=ForwardAgent=yes
#
Host coder.*
\tForwardAgent yes
\tConnectTimeout 0
\tStrictHostKeyChecking no
\tUserKnownHostsFile /dev/null
\tLogLevel ERROR
\tProxyCommand /bin/coder --global-config /home/a/.config/coderv2 ssh --stdio --wait=yes --ssh-host-prefix coder. %h

Host *.coder
\tForwardAgent yes
\tConnectTimeout 0
\tStrictHostKeyChecking no
\tUserKnownHostsFile /dev/null
\tLogLevel ERROR

Match host *.coder !exec \"/bin/coder connect exists %h\"
\tProxyCommand /bin/coder --global-config /home/a/.config/coderv2 ssh --stdio --wait=yes --hostname-suffix coder %h
# ------------END-CODER------------
";
        assert_eq!(render(&options, "/bin/coder").unwrap(), expected);
    }

    #[test]
    fn words_are_quoted_for_the_shell_that_runs_them() {
        let text = render(&SshOptions::default(), "/opt/my \"own\" 100%/it's").unwrap();
        assert!(text.contains(r#"ProxyCommand '/opt/my "own" 100%%/it'\''s' --global-config"#), "{text}");
        assert!(text.contains(r#"!exec "'/opt/my \"own\" 100%%/it'\\''s' connect exists %h""#), "{text}");
        assert!(render(&SshOptions::default(), "/opt/a\nHost *").is_err());
        let wild = SshOptions { ssh_host_prefix: Some("x\nHost *".to_owned()), ..SshOptions::default() };
        assert!(render(&wild, "/bin/coder").is_err());
        let all = SshOptions {
            ssh_host_prefix: Some(String::new()),
            hostname_suffix: Some(String::new()),
            ..SshOptions::default()
        };
        assert!(render(&all, "/bin/coder").is_err());
    }

    #[test]
    fn section_keeps_its_place_and_the_text_around_it() {
        let section = render(&SshOptions::default(), "/bin/coder").unwrap();
        let check = |before: &str, wanted: &str| {
            assert_eq!(split(before).unwrap().replace(&section), wanted);
            let again = split(wanted).unwrap();
            assert_eq!(again.section, Some(&*section));
            assert_eq!(again.replace(&section), wanted, "a second time changes nothing");
        };
        check("", &section);
        check("Host a\n\tUser b", &format!("Host a\n\tUser b\n\n{section}"));
        check("Host a\n\n", &format!("Host a\n\n{section}"));
        let old = render(&SshOptions { disable_autostart: true, ..SshOptions::default() }, "/old").unwrap();
        check(&format!("Host a\n{old}\nHost b\n"), &format!("Host a\n{section}\nHost b\n"));
        check(&format!("Host a\n{}", old.trim_end()), &format!("Host a\n{section}"));
    }

    #[test]
    fn malformed_sections_are_refused() {
        for text in [
            format!("{START}\n"),
            format!("{END}\n"),
            format!("{END}\n{START}\n"),
            format!("{START}\n{END}\n{START}\n{END}\n"),
            format!("{START}\n{START}\n{END}\n"),
        ] {
            assert!(split(&text).is_err(), "{text}");
        }
        let quoted = format!("# see {START}\n");
        assert_eq!(split(&quoted).unwrap().section, None, "only a whole line is a mark");
    }
}
