//! A system call filter that takes the kernel's key storage from a job. Keys in the keyrings of a user outlive the process that
//! stored them, and every process of the user can read them: those of the daemon, of other jobs, and tickets of Kerberos.

use libc::{sock_filter, sock_fprog};
use rustix::io::Errno;

// Offsets in the kernel's `seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
const AARCH64: u32 = 0xc000_00b7;
const ARM: u32 = 0x4000_0028;
/// Set in the numbers of the x32 interface, which has the calls of x86-64.
const X32_BIT: u32 = 0x4000_0000;

/// The first of `add_key`, `request_key` and `keyctl`, whose numbers follow each other on each architecture.
const FIRST_CALLS: [(u32, u32); 4] = [(X86_64, 248), (I386, 286), (AARCH64, 217), (ARM, 309)];
const CALLS: u32 = 3;

/// Where the filter permits a call, and where it refuses one.
const ALLOW: usize = 1 + 5 * FIRST_CALLS.len();
const REFUSE: usize = ALLOW + 1;

/// The calls fail as on a kernel without keyrings. Processes of other architectures keep them.
static FILTER: [sock_filter; REFUSE + 1] = filter();

const fn filter() -> [sock_filter; REFUSE + 1] {
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let mut filter = [statement(libc::BPF_RET | libc::BPF_K, refuse); REFUSE + 1];
    filter[0] = load(ARCHITECTURE);
    filter[ALLOW] = statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW);
    let mut index = 0;
    while index < FIRST_CALLS.len() {
        let (architecture, first) = FIRST_CALLS[index];
        let at = 1 + 5 * index;
        // The next architecture follows four instructions later.
        filter[at] = jump(libc::BPF_JEQ, architecture, 0, 4);
        filter[at + 1] = load(NUMBER);
        filter[at + 2] = statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, !X32_BIT);
        filter[at + 3] = jump(libc::BPF_JGE, first, 0, distance(at + 3, ALLOW));
        filter[at + 4] =
            jump(libc::BPF_JGE, first + CALLS, distance(at + 4, ALLOW), distance(at + 4, REFUSE));
        index += 1;
    }
    filter
}

const fn load(offset: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

const fn statement(code: u32, value: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k: value }
}

const fn jump(condition: u32, value: u32, if_true: u8, if_false: u8) -> sock_filter {
    let code = libc::BPF_JMP | condition | libc::BPF_K;
    sock_filter { code: code as u16, jt: if_true, jf: if_false, k: value }
}

/// The number of instructions between two.
const fn distance(from: usize, to: usize) -> u8 {
    (to - from - 1) as u8
}

/// Takes the calls from this process and its children. It needs `CAP_SYS_ADMIN` in the user namespace. A kernel without such filters
/// leaves them.
///
/// # Errors
/// The kernel refused the filter.
pub(super) fn forbid() -> rustix::io::Result<()> {
    let program = sock_fprog { len: FILTER.len() as u16, filter: FILTER.as_ptr().cast_mut() };
    // The flag keeps the filter from switching off speculation, which would slow the whole job down.
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW);
    // SAFETY: the kernel reads the program, which lives for ever, and writes nothing.
    #[expect(unsafe_code, reason = "no library installs a filter without allocating memory")]
    let result = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    if result == 0 {
        return Ok(());
    }
    match Errno::from_io_error(&std::io::Error::last_os_error()) {
        Some(Errno::NOSYS | Errno::INVAL) => Ok(()),
        error => Err(error.unwrap_or(Errno::IO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter answers, by the kernel's rules for its instructions.
    fn answer(architecture: u32, number: u32) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = FILTER[at];
            at += 1;
            match u32::from(code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    value = if k == ARCHITECTURE { architecture } else { number };
                }
                code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => value &= k,
                code if code == libc::BPF_RET | libc::BPF_K => return k,
                code => {
                    let is_equal = code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
                    let taken = if is_equal { value == k } else { value >= k };
                    at += usize::from(if taken { jt } else { jf });
                }
            }
        }
    }

    #[test]
    fn only_the_calls_for_keys_are_refused() {
        const OTHER_ARCHITECTURE: u32 = 0xc000_00f3;
        for (architecture, first) in FIRST_CALLS {
            for bit in [0, X32_BIT] {
                for number in [0, 1, first - 1, first + 3, first + 4, 500] {
                    assert_eq!(answer(architecture, number | bit), libc::SECCOMP_RET_ALLOW, "{number}");
                    assert_eq!(answer(OTHER_ARCHITECTURE, number | bit), libc::SECCOMP_RET_ALLOW, "{number}");
                }
                for number in first..first + 3 {
                    assert_eq!(answer(architecture, number | bit), 0x5_0000 | 38, "{number}");
                    assert_eq!(answer(OTHER_ARCHITECTURE, number | bit), libc::SECCOMP_RET_ALLOW, "{number}");
                }
            }
        }
    }
}
