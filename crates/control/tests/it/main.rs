//! A whole server in this process: started on free ports, reloaded, drained, without signals.

mod certificates;
mod house;
mod http;
mod metrics;
mod refusals;
mod reload;
mod serve;
