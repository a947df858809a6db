//! The handshake and the session that follows, against a real rustls client at the other end of a socket
//! pair.

mod choice;
mod client_auth;
mod differential;
mod failures;
mod finished_with_data;
mod fixtures;
mod forged;
mod opened_together;
mod raw;
mod rejected_early_data;
mod resumption;
mod rig;
mod stream;
mod tickets_wait_for_company;
mod towards_servers;
