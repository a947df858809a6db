//! Restrictions of a thread and everything that it starts later: files and ports ([`bounds`], by Landlock)
//! and system calls ([`calls`], by seccomp). They last until the process ends. [`trial`] verifies them by
//! trying forbidden operations.

pub mod bounds;
pub mod calls;
pub mod trial;
