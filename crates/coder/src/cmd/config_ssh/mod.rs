//! `coder config-ssh`: host names for all workspaces in the configuration of OpenSSH (agent 7.2).

mod diff;
mod options;
mod section;

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use coder_api::deployment::SshConfig;

use self::options::{SshOptions, WaitOption};
use crate::context::Context;
use crate::terminal::prompt;
use crate::{env, remote};

/// Longer configurations are not read.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration file of OpenSSH.
    #[arg(long, env = env::SSH_CONFIG_FILE, default_value = "~/.ssh/config", value_name = "FILE")]
    ssh_config_file: String,
    /// Absolute path of the coder program that OpenSSH runs; default this program.
    #[arg(long, env = env::SSH_CONFIG_BINARY_PATH, value_name = "FILE")]
    coder_binary_path: Option<PathBuf>,
    /// Option of every workspace's host as Key=Value; may be repeated.
    #[arg(short = 'o', long = "ssh-option", env = env::SSH_CONFIG_OPTS, value_delimiter = ',', value_name = "KEY=VALUE")]
    ssh_options: Vec<String>,
    /// Show what would change, and change nothing.
    #[arg(short = 'n', long, env = env::SSH_DRY_RUN)]
    dry_run: bool,
    /// Leave the proxy command out.
    #[arg(long, env = env::SSH_SKIP_PROXY_COMMAND, hide = true)]
    skip_proxy_command: bool,
    /// Use the options of the last time.
    #[arg(long, env = env::SSH_USE_PREVIOUS_OPTIONS)]
    use_previous_options: bool,
    /// Prefix of the host names instead of the server's.
    #[arg(long, env = env::CONFIGSSH_SSH_HOST_PREFIX, value_name = "PREFIX")]
    ssh_host_prefix: Option<String>,
    /// Suffix of the host names instead of the server's.
    #[arg(long, env = env::CONFIGSSH_HOSTNAME_SUFFIX, value_name = "SUFFIX")]
    hostname_suffix: Option<String>,
    /// Whether connections wait for startup scripts.
    #[arg(long, env = env::CONFIGSSH_WAIT, value_enum, value_name = "WHEN")]
    wait: Option<WaitOption>,
    /// Do not start stopped workspaces.
    #[arg(long, env = env::CONFIGSSH_DISABLE_AUTOSTART)]
    disable_autostart: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let wait = args.wait.filter(|wait| *wait != WaitOption::Auto);
    if args.skip_proxy_command && wait.is_some() {
        bail!("--wait has no effect with --skip-proxy-command: leave one of them out");
    }
    let client = remote::connect(ctx)?;
    let path = real_path(&expand_home(&args.ssh_config_file)?);
    let before = read(&path)?;
    let parts = section::split(&before).with_context(|| format!("read {}", path.display()))?;
    let given = SshOptions {
        wait,
        ssh_host_prefix: args.ssh_host_prefix.clone(),
        hostname_suffix: args.hostname_suffix.clone(),
        disable_autostart: args.disable_autostart,
        ssh_options: args.ssh_options.clone(),
        headers: ctx.global.header.clone(),
        header_command: ctx.global.header_command.clone(),
    };
    let previous = parts.section.map(SshOptions::read);
    let options = match &previous {
        Some(previous) if args.use_previous_options => previous.clone(),
        Some(previous) if *previous != given && !args.yes && !args.dry_run => choose(ctx, previous, given)?,
        _ => given,
    };
    options.check()?;
    let server = client.ssh_config().await?;
    let program = program(args.coder_binary_path.as_deref())?;
    let directory = ctx.directory.path().map(Path::to_owned);
    let rendering = section::Rendering {
        options: &options,
        server: &server,
        program: &program,
        config_directory: directory.as_deref(),
        proxy_command: !args.skip_proxy_command,
    };
    let after = parts.replace(&rendering.write()?);
    if after == before {
        ctx.printer.note(&format!("{} is up to date.", path.display()));
        return note_use(ctx, &options, &server);
    }
    let changes = diff::lines(&before, &after);
    if args.dry_run {
        ctx.printer.note(&format!("These changes would be made to {}:", path.display()));
        ctx.printer.data(&changes);
        return Ok(());
    }
    if !args.yes {
        ctx.printer.note(&format!("These changes will be made to {}:\n{changes}", path.display()));
        prompt::confirm_or_enter(&ctx.printer, "Continue?", "pass --yes")?;
    }
    write(&path, &after)?;
    ctx.printer.note(&format!("Updated {}.", path.display()));
    note_use(ctx, &options, &server)
}

fn note_use(ctx: &Context, options: &SshOptions, server: &SshConfig) -> anyhow::Result<()> {
    let host = match (options.suffix(server), options.prefix(server)) {
        (suffix, _) if !suffix.is_empty() => format!("WORKSPACE.{suffix}"),
        (_, prefix) => format!("{prefix}WORKSPACE"),
    };
    ctx.printer.note(&format!("Connect with: ssh {host}"));
    Ok(())
}

/// Asks whether the options of the last time stay.
fn choose(ctx: &Context, previous: &SshOptions, given: SshOptions) -> anyhow::Result<SshOptions> {
    let has_given = given != SshOptions::default();
    let show = |options: &SshOptions| {
        let lines = options.lines();
        if lines.is_empty() {
            "  (none)".to_owned()
        } else {
            lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
        }
    };
    ctx.printer.note(&format!(
        "The options differ from those of the last time.\n\nNew:\n{}\nLast time:\n{}\n",
        show(&given),
        show(previous)
    ));
    let question = if has_given { "Use the new options?" } else { "Use no options any more?" };
    match prompt::confirm_or_enter(&ctx.printer, question, "pass --yes, or --use-previous-options") {
        Ok(()) => Ok(given),
        // No is an answer here; the end of input is not.
        Err(error) if error.downcast_ref::<crate::exit::Canceled>().is_some() => Ok(previous.clone()),
        Err(error) => Err(error),
    }
}

fn expand_home(text: &str) -> anyhow::Result<PathBuf> {
    let Some(rest) = text.strip_prefix("~/") else { return Ok(text.into()) };
    let home = env::get(env::HOME)
        .context("the home directory is not known: set HOME, or pass --ssh-config-file")?;
    Ok(Path::new(&home).join(rest))
}

/// Where a link leads: dotfiles are often links, and replacing one would cut it off.
fn real_path(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The program that OpenSSH runs.
fn program(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    match given {
        Some(path) if path.is_absolute() => Ok(path.to_owned()),
        Some(path) => bail!("--coder-binary-path is not absolute: {}", path.display()),
        None => std::env::current_exe().context("find this program: pass --coder-binary-path"),
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let failed = || format!("read {}", path.display());
    match std::fs::metadata(path) {
        Ok(file) if file.len() > MAX_CONFIG_BYTES => bail!("{} is longer than 16 MiB", path.display()),
        Ok(_) => std::fs::read_to_string(path).with_context(failed),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).with_context(failed),
    }
}

/// Replaces the file in one step, with the permissions that it has.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("write {}", path.display());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(failed)?;
    let mode = std::fs::metadata(path).map_or(0o600, |file| file.permissions().mode() & 0o777);
    let mut file = tempfile::NamedTempFile::new_in(directory).with_context(failed)?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)?;
    file.as_file().sync_all().with_context(failed)?;
    file.persist(path).with_context(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_replaced_with_its_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/config");
        write(&path, "a\n").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        write(&path, "b\n").unwrap();
        assert_eq!((read(&path).unwrap().as_str(), mode(&path)), ("b\n", 0o640));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn program_is_absolute() {
        assert!(program(Some(Path::new("coder"))).is_err());
        assert_eq!(program(Some(Path::new("/opt/coder"))).unwrap(), Path::new("/opt/coder"));
        assert!(program(None).unwrap().is_absolute());
    }
}
