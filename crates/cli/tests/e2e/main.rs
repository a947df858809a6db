//! End to end: the real binary, real clients, real applications. One module per matter.

mod cli;
mod offramp;
mod serving;
