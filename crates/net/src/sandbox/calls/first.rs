//! The beginning of the filter: what is decided by the number alone, or nearly so, before everything else. Calls of
//! every request are here, because a filter looks at one number after the other.

use nix::libc;
use seccompiler::{BpfProgram, sock_filter};

use super::{ARCHITECTURE_NUMBER, FAST_OPEN, HOT};

/// A place that can be jumped to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Allow,
    Refuse,
    Absent,
    SendTo,
    SendMsg,
    Flags,
    Rest,
}

/// A step of the program. A [`Step::At`] is only a place.
#[derive(Clone, Copy)]
enum Step {
    Load(u32),
    IfEqual(u32, Label),
    UnlessEqual(u32, Label),
    IfBits(u32, Label),
    Go(Label),
    Return(u32),
    At(Label),
}

/// What comes before the rest of the filter, which looks at the architecture itself. With `ports_count` what sends
/// must not connect by it: TCP Fast Open would reach any port.
///
/// Without it sendto(2) and sendmsg(2) are allowed by their number, so that the kernel does not run the filter for them.
pub(super) fn program(ports_count: bool) -> BpfProgram {
    let number = |call: libc::c_long| call as u32;
    let sending = [(libc::SYS_sendto, Label::SendTo), (libc::SYS_sendmsg, Label::SendMsg)];
    let sending = sending.into_iter().filter(|_| ports_count);
    let is_looked_at = |call: i64| sending.clone().any(|(sends, _)| sends == call);
    let mut steps = vec![
        Step::Load(OF_ARCHITECTURE),
        Step::UnlessEqual(ARCHITECTURE_NUMBER, Label::Rest),
        Step::Load(OF_NUMBER),
    ];
    let hot = HOT.iter().filter(|call| !is_looked_at(**call));
    steps.extend(hot.map(|call| Step::IfEqual(number(*call), Label::Allow)));
    steps.extend(sending.clone().map(|(call, label)| Step::IfEqual(number(call), label)));
    steps.extend([Step::IfEqual(number(libc::SYS_clone3), Label::Absent), Step::Go(Label::Rest)]);
    steps.extend([
        Step::At(Label::SendTo),
        Step::Load(of_argument(3)),
        Step::Go(Label::Flags),
        Step::At(Label::SendMsg),
        Step::Load(of_argument(2)),
        Step::At(Label::Flags),
        Step::IfBits(FAST_OPEN, Label::Refuse),
        Step::At(Label::Allow),
        Step::Return(libc::SECCOMP_RET_ALLOW),
        Step::At(Label::Refuse),
        Step::Return(libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
        // Its flags are in memory, where a filter does not look. The C library then uses clone(2).
        Step::At(Label::Absent),
        Step::Return(libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
        Step::At(Label::Rest),
    ]);
    assemble(&steps)
}

/// Where `struct seccomp_data` has the number of the call, the architecture, and the lower half of an argument, which
/// is all of it where it is an `int`. Both architectures of this program have the lower half first.
const OF_NUMBER: u32 = 0;
const OF_ARCHITECTURE: u32 = 4;
const fn of_argument(number: u32) -> u32 {
    16 + 8 * number
}

/// The instructions of these steps. Jumps lead forward, and there are far fewer than the 256 that one can pass over.
fn assemble(steps: &[Step]) -> BpfProgram {
    let instructions = |steps: &[Step]| steps.iter().filter(|step| !matches!(step, Step::At(_))).count();
    // How many instructions are between a step and a place.
    let way = |from: usize, to: Label| {
        let place = steps.iter().position(|step| matches!(step, Step::At(label) if *label == to));
        instructions(&steps[from + 1..place.unwrap_or(steps.len())])
    };
    let one = |code: u32, jt: usize, jf: usize, k: u32| sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: jf as u8,
        k,
    };
    let jump = libc::BPF_JMP | libc::BPF_K;
    let instruction = |(at, step): (usize, &Step)| match *step {
        Step::Load(offset) => Some(one(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)),
        Step::IfEqual(value, to) => Some(one(jump | libc::BPF_JEQ, way(at, to), 0, value)),
        Step::UnlessEqual(value, to) => Some(one(jump | libc::BPF_JEQ, 0, way(at, to), value)),
        Step::IfBits(bits, to) => Some(one(jump | libc::BPF_JSET, way(at, to), 0, bits)),
        Step::Go(to) => Some(one(jump | libc::BPF_JA, 0, 0, way(at, to) as u32)),
        Step::Return(answer) => Some(one(libc::BPF_RET | libc::BPF_K, 0, 0, answer)),
        Step::At(_) => None,
    };
    steps.iter().enumerate().filter_map(instruction).collect()
}
