//! What the kernel says about a tree of processes: CPU time, memory, system calls.

pub(crate) mod cpu;
pub(crate) mod memory;
pub(crate) mod syscalls;
pub(crate) mod tree;
