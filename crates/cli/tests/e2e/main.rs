//! End to end: the real binary, real clients, real applications. One module per matter.

mod browser;
mod cli;
mod documents;
#[allow(dead_code)]
mod house;
mod offramp;
mod serving;
