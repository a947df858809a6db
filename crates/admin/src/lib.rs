//! The admin interface: answers from the log store and about the running process over plain HTTP, for operators.
//!
//! It has a thread and an event loop of its own, so that neither a slow client nor a long question holds up
//! traffic or reloads. Whoever reaches it reads the log: it belongs on a loopback address or a Unix socket. The API
//! about the running process is for root and the own user, or for those who have the token; what it changes,
//! `control` changes, as with any other request.
//!
//! | question | module |
//! | --- | --- |
//! | who may connect, and for how long? | `serve` |
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
mod refusal;
mod serve;
mod service;

pub use api::Control;
pub use desk::Store;
pub use error::Error;
pub use grafana::target_names;
pub use serve::{Admin, Mount, Settings};
