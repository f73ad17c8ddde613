//! Memory and disk space in use, for the server's warnings; also what `coder stat` shows (agent 2.2).

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coder_domain::clock::Clock;
use coder_wire::drpc::Error;
use coder_wire::messages::coder::agent::v2 as messages;
use messages::push_resources_monitoring_usage_request::Datapoint;
use messages::push_resources_monitoring_usage_request::datapoint::{MemoryUsage, VolumeUsage};

use crate::calls::{Calls, is_unimplemented, timestamp};

/// Most datapoints that a server may ask for.
const MAX_DATAPOINTS: usize = 1000;

/// Bytes in use of a total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// In use.
    pub used: u64,
    /// All there is.
    pub total: u64,
}

/// The memory of the container, or of the machine when the container has no limit.
#[must_use]
pub fn memory() -> Option<Usage> {
    container_memory(Path::new("/sys/fs/cgroup")).or_else(host_memory)
}

/// The memory of the machine.
#[must_use]
pub fn host_memory() -> Option<Usage> {
    read_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// The memory of the container; none without a limit.
#[must_use]
pub fn container_memory(root: &Path) -> Option<Usage> {
    let number = |path: &str| std::fs::read_to_string(root.join(path)).ok()?.trim().parse::<u64>().ok();
    let field = |path: &str, name: &str| {
        let text = std::fs::read_to_string(root.join(path)).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    // Files that can be read again from the disk do not count as used memory.
    if let Some(total) = number("memory.max") {
        let cached = field("memory.stat", "inactive_file ").unwrap_or(0);
        return Some(Usage { used: number("memory.current")?.saturating_sub(cached), total });
    }
    let total = number("memory/memory.limit_in_bytes").filter(|limit| *limit < 1 << 62)?;
    let cached = field("memory/memory.stat", "total_inactive_file ").unwrap_or(0);
    Some(Usage { used: number("memory/memory.usage_in_bytes")?.saturating_sub(cached), total })
}

fn read_meminfo(text: &str) -> Option<Usage> {
    let kib = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let total = kib("MemTotal")? * 1024;
    Some(Usage { used: total.saturating_sub(kib("MemAvailable")? * 1024), total })
}

/// The file system that holds a path.
///
/// # Errors
/// The path cannot be looked up.
pub fn disk(path: &Path) -> std::io::Result<Usage> {
    let stat = rustix::fs::statvfs(path)?;
    let total = stat.f_blocks * stat.f_frsize;
    Ok(Usage { used: total.saturating_sub(stat.f_bfree * stat.f_frsize), total })
}

/// Reports over one connection until it fails.
pub(crate) async fn run(clock: &Arc<dyn Clock>, calls: &Calls) -> Result<(), Error> {
    let configuration =
        match calls.resources_configuration(messages::GetResourcesMonitoringConfigurationRequest {}).await {
            Ok(configuration) => configuration,
            Err(error) if is_unimplemented(&error) => return std::future::pending().await,
            Err(error) => return Err(error),
        };
    let watches_memory = configuration.memory.is_some_and(|memory| memory.enabled);
    let volumes: Vec<_> = configuration.volumes.into_iter().filter(|volume| volume.enabled).collect();
    let (Some(config), true) = (configuration.config, watches_memory || !volumes.is_empty()) else {
        return std::future::pending().await;
    };
    let interval = Duration::from_secs(u64::try_from(config.collection_interval_seconds).unwrap_or(0).max(1));
    let count = usize::try_from(config.num_datapoints).unwrap_or(0).clamp(1, MAX_DATAPOINTS);
    let mut datapoints = VecDeque::new();
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let memory = memory().filter(|_| watches_memory);
        let volume = |path: &str| match disk(Path::new(path)) {
            Ok(usage) => Some(VolumeUsage {
                volume: path.to_owned(),
                used: signed(usage.used),
                total: signed(usage.total),
            }),
            Err(error) => {
                tracing::debug!(path, %error, "a watched volume cannot be looked up");
                None
            }
        };
        datapoints.push_back(Datapoint {
            collected_at: Some(timestamp(clock.now())),
            memory: memory.map(|usage| MemoryUsage { used: signed(usage.used), total: signed(usage.total) }),
            volumes: volumes.iter().filter_map(|watched| volume(&watched.path)).collect(),
        });
        if datapoints.len() < count {
            continue;
        }
        let request = messages::PushResourcesMonitoringUsageRequest {
            datapoints: datapoints.iter().cloned().collect(),
        };
        match calls.resources_usage(request).await {
            Ok(_) => {}
            Err(Error::Refused(status)) => {
                tracing::debug!(error = %status, "the server does not take the use of resources");
            }
            Err(error) => return Err(error),
        }
        datapoints.pop_front();
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_machine_is_what_is_not_available() {
        let text = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    400 kB\n";
        assert_eq!(read_meminfo(text), Some(Usage { used: 600 << 10, total: 1000 << 10 }));
        assert_eq!(read_meminfo("MemTotal: 5 kB"), None);
    }

    #[test]
    fn memory_of_a_container_is_read_in_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(container_memory(root.path()), None);
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/memory.usage_in_bytes", "700\n");
        assert_eq!(container_memory(root.path()), None, "no limit");
        write("memory/memory.limit_in_bytes", "1000\n");
        write("memory/memory.stat", "cache 5\ntotal_inactive_file 200\n");
        assert_eq!(container_memory(root.path()), Some(Usage { used: 500, total: 1000 }));
        write("memory.max", "2000\n");
        write("memory.current", "900\n");
        write("memory.stat", "anon 1\ninactive_file 100\n");
        assert_eq!(container_memory(root.path()), Some(Usage { used: 800, total: 2000 }));
        write("memory.max", "max\n");
        assert_eq!(container_memory(root.path()).map(|usage| usage.total), Some(1000));
    }

    #[test]
    fn disk_of_an_existing_path_is_found() {
        let usage = disk(Path::new("/")).unwrap();
        assert!(usage.total > 0 && usage.used <= usage.total);
        assert!(disk(Path::new("/nonexistent/path")).is_err());
    }
}
