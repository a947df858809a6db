//! A whole server in this process: started on free ports, reloaded, drained, without signals.

mod certificates;
mod http;
mod instance;
mod metrics;
mod refusals;
mod reload;
mod serve;
