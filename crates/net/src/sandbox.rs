//! What a thread forbids itself, and all that it starts later: files and ports ([`bounds`], by Landlock) and system calls
//! ([`calls`], by seccomp). It lasts until the process ends. [`trial`] tries what should be forbidden.

pub mod bounds;
pub mod calls;
pub mod trial;
