//! Filter of system calls (seccomp(2)): an allow-list of those that Offramp uses.
//!
//! A denied call fails with `EPERM`, and the kernel logs it where it audits (`journalctl -k`, `ausearch -m
//! seccomp`). Calls that the C library tries in vain in normal operation are answered by a filter of their own,
//! which logs nothing: a caller waits up to a minute for room in a full audit queue. The process is not killed: if the list lacks a call that a C library makes in a rare case, the
//! operation in need of it reports an error and everything else goes on. An attacker in the process gains
//! nothing by that, since the call is denied either way.

mod first;

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// Restricts this thread, and everything it starts, to the list. `no_new_privs` must be set. With
/// `ports_count`, TCP connections can be made by connect(2) alone, where [`super::bounds`] checks the port.
///
/// Call it in the process that serves, not before a fork: signals are permitted to this process alone.
///
/// # Errors
/// Errors of seccomp(2). Nothing but clone3(2) is denied then.
pub fn restrict(ports_count: bool) -> Result<(), String> {
    let terms = FilterParams { routes: !may_change_the_network(), ports_count, process: std::process::id() };
    let program = program(&terms).map_err(|error| error.to_string())?;
    // This one first: the other denies seccomp(2).
    install(&first::absent(), 0)?;
    install(&program, libc::SECCOMP_FILTER_FLAG_LOG)
}

/// Adds a filter to those of this thread. The kernel runs all of them, and the strictest answer counts.
fn install(program: &BpfProgram, flags: libc::c_ulong) -> Result<(), String> {
    let mut filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|one| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k })
        .collect();
    let length = filter.len().try_into().map_err(|_| "the filter is too long".to_owned())?;
    let prog = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // Without SPEC_ALLOW, kernels before 5.16 enable mitigations against speculative execution that slow the
    // process down. They are meant for programs that run untrusted code, as browsers do; Offramp runs none.
    let flags = flags | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: `prog` is the filter and its length, which the kernel copies during the call.
    let outcome =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const prog) };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().to_string()),
    }
}

/// Returns true if this thread has CAP_NET_ADMIN or can raise it.
fn may_change_the_network() -> bool {
    // If capabilities cannot be read, assume the right exists and permit less.
    rustix::thread::capabilities(None).map_or(true, |sets| {
        (sets.effective | sets.permitted).contains(rustix::thread::CapabilitySet::NET_ADMIN)
    })
}

/// Parameters of the filter.
struct FilterParams {
    /// Permits netlink route sockets (rtnetlink(7)), by which getifaddrs(3) and resolvers ask for the
    /// addresses of the machine. Only safe without CAP_NET_ADMIN, because the same socket can change them.
    routes: bool,
    /// Set if [`super::bounds`] restricts TCP ports.
    ports_count: bool,
    /// The only process that may be signalled: this one.
    process: u32,
}

/// Builds the filter. Frequent calls come first: kernels before 5.11 run the filter for each call, later ones
/// cache the numbers that are permitted unconditionally.
fn program(terms: &FilterParams) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        HOT.iter().chain(ALLOWED).chain(OLD).map(|call| (*call, Vec::new())).collect();
    rules.extend(conditional(terms)?);
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let rest = SeccompFilter::new(rules, refused, SeccompAction::Allow, ARCHITECTURE)?;
    let rest: BpfProgram = rest.try_into()?;
    let mut program = first::program(terms.ports_count);
    program.extend(rest);
    Ok(program)
}

type Conditions = Vec<(i64, Vec<SeccompRule>)>;

/// Calls that are permitted with some arguments.
fn conditional(terms: &FilterParams) -> Result<Conditions, seccompiler::BackendError> {
    let one_of = |at: u8, values: &[u64]| {
        values.iter().map(|value| SeccompRule::new(vec![equal(at, *value)?])).collect::<Result<Vec<_>, _>>()
    };
    // No mapping is writable and executable at once, and none that was writable becomes executable. Libraries
    // that the C library loads for name lookups are mapped executable from their files. The filter cannot see
    // which files: an attacker that makes the process write a file or a memfd and map it can execute its
    // content.
    let (write, exec) = (number(libc::PROT_WRITE), number(libc::PROT_EXEC));
    let not_executable = SeccompRule::new(vec![masked(2, exec, 0)?])?;
    let only_executable = SeccompRule::new(vec![masked(2, write | exec, exec)?])?;
    let thread = number(libc::CLONE_THREAD);
    let threads = SeccompRule::new(vec![masked(0, thread | NAMESPACES, thread)?])?;
    // The process's own limits only.
    let own = SeccompRule::new(vec![masked(0, u64::from(u32::MAX), 0)?])?;
    let to_itself = SeccompRule::new(vec![equal(0, terms.process.into())?])?;
    // Neither a target process nor a signal number for events of a descriptor.
    let unlike =
        |command: &u64| SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *command);
    let without_signals = SeccompRule::new(SIGNALLING.iter().map(unlike).collect::<Result<_, _>>()?)?;
    let mut all = modes()?;
    if terms.ports_count {
        let no_connection = masked(3, FAST_OPEN.into(), 0)?;
        all.push((libc::SYS_sendmmsg, vec![SeccompRule::new(vec![no_connection])?]));
    }
    all.extend([
        (libc::SYS_socket, sockets(terms)?),
        (libc::SYS_mmap, vec![not_executable.clone(), only_executable]),
        (libc::SYS_mprotect, vec![not_executable]),
        (libc::SYS_clone, vec![threads]),
        (libc::SYS_prlimit64, vec![own]),
        (libc::SYS_prctl, one_of(0, &PRCTL.map(number))?),
        (libc::SYS_ioctl, one_of(1, &IOCTL)?),
        (libc::SYS_tgkill, vec![to_itself]),
        (libc::SYS_fcntl, vec![without_signals]),
    ]);
    Ok(all)
}

fn number(value: libc::c_int) -> u64 {
    u64::from(value.cast_unsigned())
}

/// The argument `at` is `value`, as an int of C.
fn equal(at: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(at, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

/// The bits of `mask` in the argument `at` are those of `value`.
fn masked(at: u8, mask: u64, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(at, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(mask), value)
}

/// The sockets that may be made: no raw or packet ones and no other netlink families, and no protocols that
/// Offramp does not use, such as MPTCP.
fn sockets(terms: &FilterParams) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let mut sockets = Vec::new();
    for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET] {
        let kind = masked(1, KIND_OF_SOCKET, number(kind))?;
        sockets.push(SeccompRule::new(vec![equal(0, number(libc::AF_UNIX))?, kind])?);
    }
    for family in [libc::AF_INET, libc::AF_INET6] {
        for (kind, protocol) in [
            (libc::SOCK_STREAM, 0),
            (libc::SOCK_STREAM, libc::IPPROTO_TCP),
            (libc::SOCK_DGRAM, 0),
            (libc::SOCK_DGRAM, libc::IPPROTO_UDP),
        ] {
            let kind = masked(1, KIND_OF_SOCKET, number(kind))?;
            let conditions = vec![equal(0, number(family))?, kind, equal(2, number(protocol))?];
            sockets.push(SeccompRule::new(conditions)?);
        }
    }
    if terms.routes {
        let kind = masked(1, KIND_OF_SOCKET, number(libc::SOCK_RAW))?;
        let protocol = equal(2, number(libc::NETLINK_ROUTE))?;
        sockets.push(SeccompRule::new(vec![equal(0, number(libc::AF_NETLINK))?, kind, protocol])?);
    }
    Ok(sockets)
}

/// Calls that set the mode of files and folders: no set-user-ID and no set-group-ID bit, which in a process
/// of root would leave a backdoor behind. The mode of openat2(2) is in memory, which a filter cannot read;
/// the kernel clears the bits of such a file when a process without CAP_FSETID writes to it, and this one has
/// none ([`crate::process::drop_capabilities`]).
fn modes() -> Result<Conditions, seccompiler::BackendError> {
    let without = |at: u8, bits: libc::c_int| masked(at, number(bits), 0);
    let rule = |condition| SeccompRule::new(vec![condition]);
    let mode = |at: u8| without(at, SET_ID);
    // The mode matters only for flags that create a file.
    let opened = |flags: u8| Ok(vec![rule(without(flags, CREATING)?)?, rule(mode(flags + 1)?)?]);
    Ok(vec![
        (libc::SYS_fchmod, vec![rule(mode(1)?)?]),
        (libc::SYS_fchmodat, vec![rule(mode(2)?)?]),
        (libc::SYS_mkdirat, vec![rule(mode(2)?)?]),
        (libc::SYS_openat, opened(2)?),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, vec![rule(mode(1)?)?]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mkdir, vec![rule(mode(1)?)?]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, opened(1)?),
    ])
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;
/// `AUDIT_ARCH_X86_64`, `AUDIT_ARCH_AARCH64`
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE_NUMBER: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE_NUMBER: u32 = 0xC000_00B7;

/// Mask that removes SOCK_NONBLOCK and SOCK_CLOEXEC.
const KIND_OF_SOCKET: u64 = 0xf;
/// Flags `CLONE_NEW…`, which threads do not use.
const NAMESPACES: u64 = 0x7E02_0000;
/// Permitted operations of prctl(2): names of threads and of memory, and settings that are made already.
const PRCTL: [libc::c_int; 6] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_VMA,
    libc::PR_GET_DUMPABLE,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_GET_SECCOMP,
];
/// Permitted requests of ioctl(2): FIONBIO, FIOCLEX, FIONCLEX, FIONREAD, TIOCOUTQ; and TCGETS, TCGETS2 and
/// TIOCGWINSZ, by which programs detect a terminal.
const IOCTL: [u64; 8] = [0x5421, 0x5451, 0x5450, 0x541B, 0x5411, 0x5401, 0x802C_542A, 0x5413];

/// S_ISUID and S_ISGID.
const SET_ID: libc::c_int = 0o6000;
/// Flags that create a file; O_TMPFILE without the O_DIRECTORY that it includes.
const CREATING: libc::c_int = libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY);
/// F_SETOWN, F_SETSIG and F_SETOWN_EX: the recipient and number of signals for readiness (fcntl(2)).
const SIGNALLING: [u64; 3] = [8, 10, 15];
/// MSG_FASTOPEN, TCP Fast Open: sending data connects the socket.
const FAST_OPEN: u32 = 0x2000_0000;

/// Calls made for every request.
const HOT: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_splice,
    libc::SYS_futex,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_accept4,
    libc::SYS_epoll_ctl,
    libc::SYS_close,
    libc::SYS_shutdown,
];

/// All other calls without conditions.
const ALLOWED: &[i64] = &[
    // Sockets.
    libc::SYS_accept,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_setsockopt,
    libc::SYS_socketpair,
    // Readiness and time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    // Files; access is restricted by Landlock and permissions.
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_newfstatat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_readlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_sync_file_range,
    libc::SYS_tee,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_vmsplice,
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    // Threads, signals within the process, and process information.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_get_robust_list,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_uname,
];

/// Older forms of calls, which the C library still uses on this architecture.
#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &[
    libc::SYS_access,
    libc::SYS_chown,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_inotify_init,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
    libc::SYS_utimes,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[i64] = &[];

#[cfg(test)]
mod tests;
