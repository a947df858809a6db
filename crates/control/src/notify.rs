//! Notifications for operators: what is looked at (`conditions`), what is reported of it and when (`tracker`), in which form
//! (`message`), to whom (`receiver`, with what it needs of `files`; by `smtp` or a `program`), how often a receiver is tried
//! (`outbox`), and what goes to the next process (`left_messages`). A receiver at work is `delivering`;
//! `registry` has all.

mod conditions;
mod delivering;
mod files;
mod left_messages;
mod message;
mod outbox;
mod program;
mod receiver;
mod registry;
mod smtp;
mod tracker;

pub(crate) use conditions::NotifySources;
pub(crate) use delivering::Delivering;
pub(crate) use receiver::Receiver;
pub use receiver::TrialOutcome;
pub use registry::ReceiverView;
pub(crate) use registry::{KnownReceiver, NotifyRegistry};

use offramp_config::model::NotifyConfig;
use offramp_process::Finding;

/// Everything that is wrong with the files of receivers.
pub(crate) fn wrong_files(receivers: &[NotifyConfig]) -> Vec<Finding> {
    receivers.iter().filter_map(|config| Receiver::prepare(config).err()).flatten().collect()
}
