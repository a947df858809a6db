//! A whole server in this process: started on free ports, reloaded, drained, without signals.

mod house;
mod metrics;
mod refusals;
mod reload;
mod serve;
