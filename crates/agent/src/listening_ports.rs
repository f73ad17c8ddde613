//! TCP ports that programs of the workspace listen on, read from /proc (agent 3.8).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

/// Ports below are not shown.
const MIN_PORT: u16 = 9;
/// How long a list is used again.
const CACHE_TIME: Duration = Duration::from_secs(1);
/// The state of a socket that listens.
const LISTEN_STATE: &str = "0A";

/// A port with its program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct ListeningPort {
    pub(crate) process_name: String,
    pub(crate) network: &'static str,
    pub(crate) port: u16,
}

/// The ports, cached for a moment.
#[derive(Debug, Default)]
pub(crate) struct ListeningPorts {
    cached: Mutex<Option<(Instant, Vec<ListeningPort>)>>,
}

impl ListeningPorts {
    /// The ports now, or at most a second ago.
    pub(crate) async fn list(&self) -> Vec<ListeningPort> {
        if let Some((at, ports)) = &*self.cached.lock()
            && at.elapsed() < CACHE_TIME
        {
            return ports.clone();
        }
        // Every open file of every process is looked at.
        let ports = tokio::task::spawn_blocking(|| scan(Path::new("/proc"))).await.unwrap_or_default();
        *self.cached.lock() = Some((Instant::now(), ports.clone()));
        ports
    }
}

fn scan(proc: &Path) -> Vec<ListeningPort> {
    let mut sockets = BTreeMap::new();
    for table in ["net/tcp", "net/tcp6"] {
        sockets.extend(read_table(&std::fs::read_to_string(proc.join(table)).unwrap_or_default()));
    }
    let own = inodes(&proc.join("self/fd"));
    sockets.retain(|inode, _| !own.contains(inode));
    let mut names = BTreeMap::new();
    for entry in std::fs::read_dir(proc).into_iter().flatten().flatten() {
        if !entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            continue;
        }
        let found: Vec<_> = inodes(&entry.path().join("fd"))
            .into_iter()
            .filter(|inode| sockets.contains_key(inode))
            .collect();
        if !found.is_empty() {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            names.extend(found.into_iter().map(|inode| (inode, name.trim_end().to_owned())));
        }
    }
    let mut ports = BTreeMap::new();
    for (inode, port) in sockets {
        let name = names.get(&inode).cloned().unwrap_or_default();
        let known = ports.entry(port).or_insert_with(String::new);
        if known.is_empty() {
            *known = name;
        }
    }
    ports
        .into_iter()
        .map(|(port, process_name)| ListeningPort { process_name, network: "tcp", port })
        .collect()
}

/// Inodes of sockets in a directory of open files.
fn inodes(folder: &Path) -> BTreeSet<u64> {
    let links = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links
        .filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
        .collect()
}

/// Inode and port of each socket that listens.
fn read_table(text: &str) -> Vec<(u64, u16)> {
    let row = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        (*state == LISTEN_STATE && port >= MIN_PORT).then_some((inode.parse().ok()?, port))
    };
    text.lines().skip(1).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    #[test]
    fn only_listening_sockets_count() {
        let table = format!(
            "{HEAD}   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 111 1 0\n   \
             1: 0100007F:0007 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 112 1 0\n   \
             2: 0100007F:1F91 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 113 1 0\n\
             garbage\n"
        );
        assert_eq!(read_table(&table), [(111, 0x1f90)]);
        assert!(read_table("").is_empty());
    }

    #[test]
    fn own_sockets_are_left_out_and_the_others_named() {
        let proc = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = proc.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let row = |port: u16, inode: u64| {
            format!("0: 00000000:{port:04X} 00000000:0000 0A 0:0 00:0 0 1000 0 {inode} 1\n")
        };
        write("net/tcp", &format!("{HEAD}{}{}{}", row(8080, 1), row(9090, 2), row(7070, 3)));
        write("net/tcp6", &format!("{HEAD}{}", row(8080, 4)));
        let link = |process: &str, inode: u64| {
            let folder = proc.path().join(process).join("fd");
            std::fs::create_dir_all(&folder).unwrap();
            std::os::unix::fs::symlink(format!("socket:[{inode}]"), folder.join(inode.to_string())).unwrap();
        };
        link("self", 2);
        link("17", 4);
        write("17/comm", "node\n");
        let ports: Vec<_> =
            scan(proc.path()).into_iter().map(|port| (port.port, port.process_name)).collect();
        assert_eq!(ports, [(7070, String::new()), (8080, "node".to_owned())]);
    }
}
