//! What docs/isolation.md promises for each level, checked by kernel interfaces from inside a job.

use std::collections::BTreeMap;
use std::path::Path;

use coder_provisioner::{IsolationLevel, IsolationMode};

use crate::fake_server::Server;
use crate::fixture::Running;
use crate::isolation::{kernel_level, output_of};

/// What a job prints about itself, by name.
async fn about_a_job(isolation: IsolationMode) -> (Running, BTreeMap<String, String>) {
    let server = Server::new();
    let running = Running::with(&server, |config, _| config.isolation = isolation);
    let outside = Outside::new();
    let script = "echo about core $(ulimit -Sc) $(ulimit -Hc)\n\
                  for kind in pid mnt user net ipc; do echo about $kind $(readlink /proc/self/ns/$kind); done\n\
                  echo about first $(cat /proc/1/comm)\n\
                  echo about rights $(sed -n 's/^CapBnd:\\t*//p' /proc/self/status)\n\
                  cut -d ' ' -f 5,6 /proc/self/mountinfo | sed 's/^/about mount:/'\n\
                  echo about writable .$(for file in /sys /sys/fs/cgroup /sys/fs/cgroup/* /proc/sys/kernel/core_pattern \
                  /proc/sysrq-trigger; do if [ -w $file ]; then echo $file; fi; done)\n\
                  echo about disks .$(for file in /dev/*; do if [ -b $file ]; then echo $file; fi; done)\n\
                  echo about filters $(sed -n 's/^Seccomp:\\t*//p' /proc/self/status)\n\
                  echo about end 1\n";
    let lines = output_of(&server, &format!("{script}{}{}", store_key(), outside.script())).await;
    let facts = lines.iter().filter_map(|line| {
        let (name, value) = line.split_once("local-exec): about ")?.1.split_once(' ')?;
        Some((name.to_owned(), value.to_owned()))
    });
    let facts: BTreeMap<String, String> = facts.collect();
    assert!(facts.contains_key("end"), "{lines:#?}");
    outside.was_reached(&facts);
    (running, facts)
}

/// Stores a key for the processes of this user, and prints the error. Perl is part of every Debian; elsewhere the filter's presence is
/// what is tested.
fn store_key() -> String {
    let call = format!("syscall({}, \"user\", \"coder-test\", \"x\", 1, -4)", libc::SYS_add_key);
    format!(
        "if command -v perl >/dev/null; then echo about key $(perl -e 'print {call} < 0 ? $! + 0 : \"stored\"'); fi\n"
    )
}

/// What passes through at each level: files of `/tmp` and `/dev/shm`, the network with its abstract sockets, and the kernel's
/// objects of IPC.
struct Outside {
    dirs: [tempfile::TempDir; 2],
    name: String,
    _socket: std::os::unix::net::UnixListener,
}

impl Outside {
    fn new() -> Self {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let name = format!("coder-test-{}", uuid::Uuid::new_v4().simple());
        let socket = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let dirs = ["/tmp", "/dev/shm"]
            .map(|parent| tempfile::Builder::new().prefix("coder-test-").tempdir_in(parent).unwrap());
        for dir in &dirs {
            std::fs::write(dir.path().join("from-outside"), "").unwrap();
        }
        Self { dirs, name, _socket: socket }
    }

    fn script(&self) -> String {
        let copy = |dir: &tempfile::TempDir| {
            let dir = dir.path().display();
            format!("cp {dir}/from-outside {dir}/from-the-job\n")
        };
        let copies: String = self.dirs.iter().map(copy).collect();
        format!("{copies}echo about sockets $(grep -c '@{}$' /proc/net/unix)", self.name)
    }

    fn was_reached(&self, facts: &BTreeMap<String, String>) {
        for dir in &self.dirs {
            assert!(
                dir.path().join("from-the-job").exists(),
                "{} does not pass through",
                dir.path().display()
            );
        }
        assert_eq!(facts["sockets"], "1", "the abstract socket is seen");
        for kind in ["net", "ipc"] {
            assert_eq!(facts[kind], own_namespace(kind), "{kind} passes through");
        }
    }
}

fn own_namespace(kind: &str) -> String {
    std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap().display().to_string()
}

/// The options of the mount at a path; the last mount counts.
fn mounted(facts: &BTreeMap<String, String>, path: &Path) -> Vec<String> {
    let options = facts.get(&format!("mount:{}", path.display()));
    options
        .unwrap_or_else(|| panic!("nothing is mounted at {}", path.display()))
        .split(',')
        .map(str::to_owned)
        .collect()
}

async fn holds(isolation: IsolationMode, level: IsolationLevel) {
    let (running, facts) = about_a_job(isolation).await;
    assert_eq!(running.status.get().isolation, level);
    assert_eq!(facts["core"], "0 0", "no core dumps");
    let is_own = |kind: &str| facts[kind] != own_namespace(kind);
    assert_eq!(
        (is_own("mnt"), is_own("pid")),
        (level != IsolationLevel::None, level == IsolationLevel::Full)
    );
    if level == IsolationLevel::None {
        return;
    }
    if level == IsolationLevel::Full {
        assert_eq!(facts["first"], "terraform", "the command is the first process of its namespace");
        let options = mounted(&facts, Path::new("/proc"));
        for wanted in ["nosuid", "nodev", "noexec"] {
            assert!(options.iter().any(|option| option == wanted), "/proc: {options:?}");
        }
    }
    if rustix::process::geteuid().is_root() {
        assert_eq!((&*facts["writable"], &*facts["disks"]), (".", "."), "settings of the kernel, and disks");
    }
    assert_eq!(facts["filters"], "2", "system calls are filtered");
    if let Some(answer) = facts.get("key") {
        assert_eq!(*answer, libc::ENOSYS.to_string(), "no key is stored");
    }
    // Of include/uapi/linux/capability.h: from CAP_DAC_READ_SEARCH to CAP_CHECKPOINT_RESTORE.
    const DROPPED_CAPABILITIES: [u32; 16] = [2, 16, 17, 18, 19, 20, 21, 22, 25, 27, 32, 33, 34, 38, 39, 40];
    let rights = u64::from_str_radix(&facts["rights"], 16).unwrap();
    for number in DROPPED_CAPABILITIES {
        assert_eq!(rights >> number & 1, 0, "right {number} of {rights:x}");
    }
    let cache = running.dir.path().canonicalize().unwrap().join("cache");
    for covered in
        [cache.clone(), running.dir.path().canonicalize().unwrap().join("registry"), cache.join("plugins")]
    {
        let options = mounted(&facts, &covered);
        for wanted in ["ro", "nosuid", "nodev"] {
            assert!(options.iter().any(|option| option == wanted), "{}: {options:?}", covered.display());
        }
    }
    let work = cache.join("work").display().to_string();
    let job = facts.iter().find(|(name, _)| name.starts_with(&format!("mount:{work}/Session"))).unwrap().1;
    assert!(job.starts_with("rw,nosuid,nodev"), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_has_what_the_kernel_offers_unless_asked_otherwise() {
    coder_requirements::require!(Terraform);
    holds(IsolationMode::Auto, kernel_level()).await;
    holds(IsolationMode::None, IsolationLevel::None).await;
    if kernel_level() != IsolationLevel::None {
        holds(IsolationMode::Required, kernel_level()).await;
    }
}

#[test]
fn job_without_namespaces_of_processes_has_the_rest() {
    use crate::kernel_restrictions::{Without, without};
    coder_requirements::require!(Terraform);
    let name = "isolation_guarantees::job_without_namespaces_of_processes_has_the_rest";
    without(&[Without::Namespaces(libc::CLONE_NEWPID)], name, async {
        assert_ne!(kernel_level(), IsolationLevel::Full);
        holds(IsolationMode::Auto, kernel_level()).await;
    });
}

#[test]
fn job_of_who_must_not_administer_has_all_of_it() {
    use crate::kernel_restrictions::{Without, without};
    coder_requirements::require!(Terraform);
    let name = "isolation_guarantees::job_of_who_must_not_administer_has_all_of_it";
    without(&[Without::Administration], name, async {
        holds(IsolationMode::Auto, kernel_level()).await;
    });
}
