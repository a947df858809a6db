//! Beginning of the filter: calls that are decided by their number alone, or nearly so. Calls of every
//! request are here, because a filter compares one number after the other.

use nix::libc;
use seccompiler::{BpfProgram, sock_filter};

use super::{ARCHITECTURE_NUMBER, FAST_OPEN, HOT};

/// A jump target of the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JumpTarget {
    Allow,
    Refuse,
    SendTo,
    SendMsg,
    Flags,
    Rest,
}

/// Step of the program. [`FilterStep::At`] marks a jump target and has no instruction.
#[derive(Clone, Copy)]
enum FilterStep {
    Load(u32),
    IfEqual(u32, JumpTarget),
    UnlessEqual(u32, JumpTarget),
    IfBits(u32, JumpTarget),
    Go(JumpTarget),
    Return(u32),
    At(JumpTarget),
}

/// Instructions before the generated filter, which checks the architecture itself. With `ports_count`,
/// sending calls must not connect: TCP Fast Open would reach any port.
///
/// Without it, sendto(2) and sendmsg(2) are permitted by number, so that the kernel does not run the filter
/// for them.
pub(super) fn program(ports_count: bool) -> BpfProgram {
    let number = |call: libc::c_long| call as u32;
    let sending = [(libc::SYS_sendto, JumpTarget::SendTo), (libc::SYS_sendmsg, JumpTarget::SendMsg)];
    let sending = sending.into_iter().filter(|_| ports_count);
    let is_looked_at = |call: i64| sending.clone().any(|(sends, _)| sends == call);
    let mut steps = vec![
        FilterStep::Load(OF_ARCHITECTURE),
        FilterStep::UnlessEqual(ARCHITECTURE_NUMBER, JumpTarget::Rest),
        FilterStep::Load(OF_NUMBER),
    ];
    let hot = HOT.iter().filter(|call| !is_looked_at(**call));
    steps.extend(hot.map(|call| FilterStep::IfEqual(number(*call), JumpTarget::Allow)));
    steps.extend(sending.clone().map(|(call, label)| FilterStep::IfEqual(number(call), label)));
    // Denied by [`absent`].
    steps.push(FilterStep::IfEqual(number(libc::SYS_clone3), JumpTarget::Allow));
    steps.extend([
        FilterStep::Go(JumpTarget::Rest),
        FilterStep::At(JumpTarget::SendTo),
        FilterStep::Load(of_argument(3)),
        FilterStep::Go(JumpTarget::Flags),
        FilterStep::At(JumpTarget::SendMsg),
        FilterStep::Load(of_argument(2)),
        FilterStep::At(JumpTarget::Flags),
        FilterStep::IfBits(FAST_OPEN, JumpTarget::Refuse),
        FilterStep::At(JumpTarget::Allow),
        FilterStep::Return(libc::SECCOMP_RET_ALLOW),
        FilterStep::At(JumpTarget::Refuse),
        FilterStep::Return(libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
        FilterStep::At(JumpTarget::Rest),
    ]);
    assemble(&steps)
}

/// Filter that answers clone3(2) as a kernel without it: its flags are in memory, which a filter cannot read.
/// The C library tries it for every thread, and then uses clone(2).
pub(super) fn absent() -> BpfProgram {
    assemble(&[
        FilterStep::Load(OF_ARCHITECTURE),
        FilterStep::UnlessEqual(ARCHITECTURE_NUMBER, JumpTarget::Allow),
        FilterStep::Load(OF_NUMBER),
        FilterStep::UnlessEqual(libc::SYS_clone3 as u32, JumpTarget::Allow),
        FilterStep::Return(libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
        FilterStep::At(JumpTarget::Allow),
        FilterStep::Return(libc::SECCOMP_RET_ALLOW),
    ])
}

/// Offsets in `struct seccomp_data`: number of the call, architecture, and the lower half of an argument,
/// which is all of it for an `int`. Both supported architectures are little-endian.
const OF_NUMBER: u32 = 0;
const OF_ARCHITECTURE: u32 = 4;
const fn of_argument(number: u32) -> u32 {
    16 + 8 * number
}

/// Assembles the instructions of these steps. Jumps go forward, and the program is far shorter than the 256
/// instructions that a jump can skip.
fn assemble(steps: &[FilterStep]) -> BpfProgram {
    let instructions =
        |steps: &[FilterStep]| steps.iter().filter(|step| !matches!(step, FilterStep::At(_))).count();
    // Number of instructions between a step and a jump target.
    let way = |from: usize, to: JumpTarget| {
        let place = steps.iter().position(|step| matches!(step, FilterStep::At(label) if *label == to));
        instructions(&steps[from + 1..place.unwrap_or(steps.len())])
    };
    let one = |code: u32, jt: usize, jf: usize, k: u32| sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: jf as u8,
        k,
    };
    let jump = libc::BPF_JMP | libc::BPF_K;
    let instruction = |(at, step): (usize, &FilterStep)| match *step {
        FilterStep::Load(offset) => Some(one(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)),
        FilterStep::IfEqual(value, to) => Some(one(jump | libc::BPF_JEQ, way(at, to), 0, value)),
        FilterStep::UnlessEqual(value, to) => Some(one(jump | libc::BPF_JEQ, 0, way(at, to), value)),
        FilterStep::IfBits(bits, to) => Some(one(jump | libc::BPF_JSET, way(at, to), 0, bits)),
        FilterStep::Go(to) => Some(one(jump | libc::BPF_JA, 0, 0, way(at, to) as u32)),
        FilterStep::Return(answer) => Some(one(libc::BPF_RET | libc::BPF_K, 0, 0, answer)),
        FilterStep::At(_) => None,
    };
    steps.iter().enumerate().filter_map(instruction).collect()
}
