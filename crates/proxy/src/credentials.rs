//! Credentials of clients. Names and passwords: a file of users, the hashes of their passwords, and the threads
//! that check them. Tokens ([`jwt`]).
//!
//! A check of a password costs tens of milliseconds of CPU time on purpose, so that no worker does it itself ([`Logins`]).

mod check_queue;
mod checkers;
mod hash;
pub mod jwt;
mod logins;
mod owners;
mod throttle;
mod users;

pub use hash::PasswordHash;
pub(crate) use logins::KnownPasswords;
pub use logins::{LoginOutcome, Logins};
pub use users::{Mistake, Users, user_line};
