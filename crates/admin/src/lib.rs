//! The admin interface: answers from the log store and about the running process over HTTP, for operators.
//!
//! It has a thread and an event loop of its own, so that neither a slow client nor a long question holds up
//! traffic or reloads. Whoever reaches it without TLS reads the log: that belongs on a loopback address or a Unix socket.
//! With TLS everything needs the token. The API
//! about the running process is for root and the own user, or for those who have the token; what it changes,
//! `control` changes, as with any other request.
//!
//! | question | module |
//! | --- | --- |
//! | where does it listen, and how does it end? | `serve` |
//! | how long may a connection take for what? | `talk` |
//! | how many connections at once, and who makes room? | `places` |
//! | how is it encrypted? | `tls` |
//! | which request gets which answer? | `service`, `origin` (browsers), `refusal` |
//! | who asks the log store, and how many at once? | `desk` |
//! | what does an operator ask about the running process, and who may? | `api`, `caller` |
//! | what does Grafana ask, and what does it get? | `grafana` |

mod api;
mod caller;
mod desk;
mod error;
mod grafana;
mod origin;
mod places;
mod refusal;
mod serve;
mod service;
mod talk;
mod tls;

pub use api::Control;
pub use desk::Store;
pub use error::Error;
pub use grafana::target_names;
pub use serve::{Admin, Mount, Settings};
pub use tls::Identity;
