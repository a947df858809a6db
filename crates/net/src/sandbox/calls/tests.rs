//! Verdicts of the filter in a small BPF interpreter, and its effect on a thread.

use super::*;
use crate::process::forbid_new_privileges;
use crate::sandbox::bounds::{self, SandboxRules};

/// Number of the filtered process.
const OWN: u32 = 4711;

/// Terms of a process without CAP_NET_ADMIN that may connect to any port.
const USUAL: FilterParams = FilterParams { routes: true, ports_count: false, process: OWN };

fn answer(call: i64, arguments: [u64; 6]) -> u32 {
    answer_with(&USUAL, call, arguments)
}

/// Returns true if the filter permits a call; missing arguments are 0.
fn allows(terms: &FilterParams, call: i64, arguments: &[u64]) -> bool {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    match answer_with(terms, call, all) {
        libc::SECCOMP_RET_ALLOW => true,
        REFUSED => false,
        other => panic!("{other:#x}"),
    }
}

/// Verdict of the interpreted filters on a call: the strictest, which is the lowest (seccomp(2)).
fn answer_with(terms: &FilterParams, call: i64, arguments: [u64; 6]) -> u32 {
    let (silent, logged) = (first::absent(), program(terms).unwrap());
    [silent, logged].map(|program| interpret(&program, call, arguments).0).into_iter().min().unwrap()
}

/// Returns true if the filter reads an argument of the call before it decides.
fn reads_arguments(terms: &FilterParams, call: i64) -> bool {
    [first::absent(), program(terms).unwrap()].iter().any(|program| interpret(program, call, [0; 6]).1)
}

/// The verdict, and whether an argument was read.
fn interpret(program: &BpfProgram, call: i64, arguments: [u64; 6]) -> (u32, bool) {
    let mut data = Vec::new();
    data.extend((call as u32).to_ne_bytes());
    data.extend(ARCHITECTURE_NUMBER.to_ne_bytes());
    data.extend(0_u64.to_ne_bytes());
    arguments.iter().for_each(|argument| data.extend(argument.to_ne_bytes()));
    let (mut at, mut a, mut looked) = (0, 0_u32, false);
    loop {
        let one = &program[at];
        let (code, k) = (u32::from(one.code), one.k);
        let jump = |holds: bool| 1 + usize::from(if holds { one.jt } else { one.jf });
        at += match code {
            0x20 => {
                a = u32::from_ne_bytes(data[k as usize..][..4].try_into().unwrap());
                // Offsets beyond number, architecture and instruction pointer.
                looked |= k >= 16;
                1
            }
            0x54 => {
                a &= k;
                1
            }
            0x05 => 1 + k as usize,
            0x15 => jump(a == k),
            0x25 => jump(a > k),
            0x35 => jump(a >= k),
            0x45 => jump(a & k != 0),
            0x06 => return (k, looked),
            _ => panic!("{code:#x}"),
        };
    }
}

const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

#[test]
fn the_filter_permits_the_list() {
    for call in HOT.iter().chain(ALLOWED).chain(OLD) {
        assert_eq!(answer(*call, [0; 6]), libc::SECCOMP_RET_ALLOW, "{call}");
    }
    for call in [
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_bpf,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_perf_event_open,
        libc::SYS_io_uring_setup,
        libc::SYS_userfaultfd,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_chroot,
        libc::SYS_setuid,
        libc::SYS_setresuid,
        libc::SYS_capset,
        libc::SYS_kill,
        libc::SYS_pidfd_getfd,
        libc::SYS_personality,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_kexec_load,
        libc::SYS_reboot,
        libc::SYS_seccomp,
        // Numbers of the x32 ABI.
        0x4000_0000 | libc::SYS_read,
        0x4000_0000 | libc::SYS_execve,
    ] {
        assert_eq!(answer(call, [0; 6]), REFUSED, "{call}");
    }
    assert_eq!(answer(libc::SYS_clone3, [0; 6]), libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
}

#[test]
fn calls_with_many_uses_are_decided_by_arguments() {
    let allowed = |call, arguments: &[u64]| allows(&USUAL, call, arguments);
    let flags = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
    let socket = |family: i32, kind: i32, protocol: i32| {
        allowed(libc::SYS_socket, &[family as u64, kind as u64 | flags, protocol as u64])
    };
    for family in [libc::AF_INET, libc::AF_INET6] {
        assert!(socket(family, libc::SOCK_STREAM, 0) && socket(family, libc::SOCK_STREAM, libc::IPPROTO_TCP));
        assert!(socket(family, libc::SOCK_DGRAM, 0) && socket(family, libc::SOCK_DGRAM, libc::IPPROTO_UDP));
        assert!(!socket(family, libc::SOCK_STREAM, libc::IPPROTO_MPTCP));
        assert!(!socket(family, libc::SOCK_STREAM, libc::IPPROTO_SCTP));
        assert!(!socket(family, libc::SOCK_RAW, libc::IPPROTO_TCP));
    }
    assert!(socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0) && !socket(libc::AF_UNIX, libc::SOCK_RAW, 0));
    assert!(!socket(libc::AF_PACKET, libc::SOCK_RAW, 0));
    // getifaddrs(3) opens this socket, which can only ask.
    assert!(socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE));
    for protocol in [libc::NETLINK_AUDIT, libc::NETLINK_NETFILTER, libc::NETLINK_KOBJECT_UEVENT] {
        assert!(!socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol), "{protocol}");
    }
    assert!(!socket(libc::AF_NETLINK, libc::SOCK_DGRAM, libc::NETLINK_ROUTE));
    let route = [libc::AF_NETLINK as u64, libc::SOCK_RAW as u64, libc::NETLINK_ROUTE as u64, 0, 0, 0];
    assert_eq!(answer_with(&FilterParams { routes: false, ..USUAL }, libc::SYS_socket, route), REFUSED);
    let (read, write, exec) = (1, 2, 4);
    assert!(allowed(libc::SYS_mmap, &[0, 0, read | write]) && allowed(libc::SYS_mmap, &[0, 0, read | exec]));
    assert!(!allowed(libc::SYS_mmap, &[0, 0, read | write | exec]));
    assert!(allowed(libc::SYS_mprotect, &[0, 0, read]) && !allowed(libc::SYS_mprotect, &[0, 0, read | exec]));
    // Flags of pthread_create(3) and fork(3).
    assert!(allowed(libc::SYS_clone, &[0x003d_0f00]) && !allowed(libc::SYS_clone, &[0x0120_0011]));
    assert!(!allowed(libc::SYS_clone, &[0x003d_0f00 | 0x1000_0000]));
    assert!(allowed(libc::SYS_prlimit64, &[0]) && !allowed(libc::SYS_prlimit64, &[1]));
    assert!(allowed(libc::SYS_ioctl, &[3, 0x5421]) && !allowed(libc::SYS_ioctl, &[3, 0x5412]));
    let prctl = |option: libc::c_int| allowed(libc::SYS_prctl, &[option as u64]);
    assert!(prctl(libc::PR_SET_NAME) && !prctl(libc::PR_SET_DUMPABLE) && !prctl(libc::PR_SET_SECUREBITS));
}

#[test]
fn set_id_bits_are_denied() {
    let allowed = |call, arguments: &[u64]| allows(&USUAL, call, arguments);
    let modes = [
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (libc::SYS_mkdirat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mkdir, 1),
    ];
    for (call, at) in modes {
        for (mode, passes) in
            [(0o644, true), (0o1777, true), (0o4755, false), (0o2755, false), (0o6000, false)]
        {
            let mut arguments = [0; 6];
            arguments[at] = mode;
            assert_eq!(allowed(call, &arguments), passes, "{call} {mode:o}");
        }
    }
    let opens = [
        (libc::SYS_openat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, 1),
    ];
    for (call, at) in opens {
        for (flags, mode, passes) in [
            (libc::O_RDONLY, 0o6755, true),
            (libc::O_WRONLY | libc::O_DIRECTORY, 0o6755, true),
            (libc::O_WRONLY | libc::O_CREAT, 0o640, true),
            (libc::O_WRONLY | libc::O_CREAT, 0o4755, false),
            (libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o2755, false),
            (libc::O_WRONLY | libc::O_TMPFILE, 0o600, true),
            (libc::O_WRONLY | libc::O_TMPFILE, 0o4755, false),
        ] {
            let mut arguments = [0; 6];
            (arguments[at], arguments[at + 1]) = (flags as u64, mode);
            assert_eq!(allowed(call, &arguments), passes, "{call} {flags:o} {mode:o}");
        }
    }
}

#[test]
fn signals_to_other_processes_are_denied() {
    let allowed = |call, arguments: &[u64]| allows(&USUAL, call, arguments);
    let own = u64::from(OWN);
    assert!(allowed(libc::SYS_tgkill, &[own, own + 1, 6]));
    for other in [0, 1, own + 1, u64::from(u32::MAX)] {
        assert!(!allowed(libc::SYS_tgkill, &[other, other, 0]), "{other}");
    }
    for (command, passes) in [
        (libc::F_GETFL, true),
        (libc::F_SETFL, true),
        (libc::F_DUPFD_CLOEXEC, true),
        (libc::F_SETPIPE_SZ, true),
        (libc::F_ADD_SEALS, true),
        (libc::F_SETLK, true),
        (libc::F_SETOWN, false),
        (10, false),
        (15, false),
    ] {
        assert_eq!(allowed(libc::SYS_fcntl, &[3, command as u64]), passes, "{command}");
    }
}

#[test]
fn fast_open_is_denied_where_ports_count() {
    let strict = FilterParams { ports_count: true, ..USUAL };
    let usual = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_ZEROCOPY | libc::MSG_MORE) as u64;
    for (call, at) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        let with = |flags: u64| {
            let mut arguments = [u64::MAX; 6];
            arguments[at] = flags;
            arguments
        };
        for flags in [0, usual] {
            assert!(allows(&USUAL, call, &with(flags)) && allows(&strict, call, &with(flags)), "{call}");
        }
        // The kernel reads the lower half alone.
        for flags in [u64::from(FAST_OPEN), u64::from(FAST_OPEN) | usual | 1 << 32] {
            assert!(allows(&USUAL, call, &with(flags)), "{call}");
            assert!(!allows(&strict, call, &with(flags)), "{call}");
        }
    }
}

/// Kernels since 5.11 find the calls that need no filter by the same interpretation: those permitted before
/// an argument is read.
#[test]
fn calls_of_every_request_are_permitted_by_number() {
    for call in HOT {
        assert!(!reads_arguments(&USUAL, *call), "{call}");
    }
    assert!(reads_arguments(&USUAL, libc::SYS_openat) && !reads_arguments(&USUAL, libc::SYS_openat2));
    let strict = FilterParams { ports_count: true, ..USUAL };
    for call in HOT {
        let sends = [libc::SYS_sendto, libc::SYS_sendmsg].contains(call);
        assert_eq!(reads_arguments(&strict, *call), sends, "{call}");
    }
}

/// Audited kernels log an answer of the second filter, and its caller waits while their queue is full.
#[test]
fn calls_of_normal_operation_are_refused_without_a_log_line() {
    let clone3 = |program: &BpfProgram| interpret(program, libc::SYS_clone3, [0; 6]).0;
    assert_eq!(clone3(&first::absent()), libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
    assert_eq!(clone3(&program(&USUAL).unwrap()), libc::SECCOMP_RET_ALLOW);
}

/// Runs in a thread of its own: the filter cannot be removed.
#[test]
fn a_restricted_thread_runs_and_cannot_start_programs() {
    let thread = std::thread::spawn(|| {
        forbid_new_privileges().unwrap();
        restrict(true).unwrap();
        // Threads started later inherit the filter.
        let later = std::thread::spawn(|| {
            let started = std::process::Command::new("/bin/true").status();
            (started, std::fs::read_to_string("/proc/self/status").is_ok())
        });
        later.join().unwrap()
    });
    let (started, reads) = thread.join().unwrap();
    assert_eq!(started.unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert!(reads);
}

/// getifaddrs(3) asks by a route socket, which is denied to processes that could change the network by it.
#[test]
fn addresses_can_be_listed_without_the_right_to_change_them() {
    let ask = |give_up: bool| {
        let thread = std::thread::spawn(move || {
            if give_up {
                let mut sets = rustix::thread::capabilities(None).unwrap();
                let network = rustix::thread::CapabilitySet::NET_ADMIN;
                sets.effective.remove(network);
                sets.permitted.remove(network);
                sets.inheritable.remove(network);
                rustix::thread::set_capabilities(None, sets).unwrap();
            }
            forbid_new_privileges().unwrap();
            restrict(false).unwrap();
            nix::ifaddrs::getifaddrs().is_ok()
        });
        thread.join().unwrap()
    };
    assert!(ask(true));
    assert_eq!(ask(false), !may_change_the_network());
}

/// Landlock as on a kernel that lacks it, for a thread of its own.
fn without_landlock(error: i32) -> [Option<String>; 3] {
    let thread = std::thread::spawn(move || {
        forbid_new_privileges().unwrap();
        let refused = SeccompAction::Errno(error.cast_unsigned());
        let rules = BTreeMap::from([(libc::SYS_landlock_create_ruleset, Vec::new())]);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, ARCHITECTURE).unwrap();
        install(&filter.try_into().unwrap(), 0).unwrap();
        let strict = SandboxRules { reading: true, ..SandboxRules::default() };
        [bounds::missing(false), bounds::missing(true), bounds::restrict(&strict, true).err()]
    });
    thread.join().unwrap()
}

/// The start is refused for the reason that a look beforehand gives. Needs Linux 6.7.
#[test]
fn missing_landlock_has_a_reason() {
    assert_eq!([bounds::missing(false), bounds::missing(true)], [None, None]);
    for (error, expected) in [
        (libc::ENOSYS, ["no Landlock", "since 5.13", "since 6.7"]),
        (libc::EOPNOTSUPP, ["is not enabled", "`lsm=`", "`landlock`"]),
        (libc::EPERM, ["cannot be used", "container", "not permitted"]),
    ] {
        let said = without_landlock(error).map(Option::unwrap);
        assert_eq!(said[1], said[2]);
        for part in expected {
            assert!(said.iter().any(|reason| reason.contains(part)), "{part}: {said:?}");
        }
    }
}
