//! What clients show of who they are. Names and passwords: a file of users, how their passwords are hashed, and who checks
//! them. Tokens ([`jwt`]).
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
pub use logins::Logins;
pub(crate) use logins::{KnownPasswords, Outcome};
pub use users::{Mistake, Users, user_line};
