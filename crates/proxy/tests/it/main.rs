//! One worker in this process, with applications of the testkit behind it.

mod backpressure;
mod endings;
mod ends_of_processes;
mod exchanges;
mod fairness;
mod limits;
mod model;
mod relaying;
mod requests;
mod servers;
mod streams;
mod test_proxy;
mod tickets;
mod traces;
mod turns;
mod uploads;
