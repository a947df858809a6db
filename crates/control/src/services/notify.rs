//! Notifications for operators: a task per receiver.

use std::collections::BTreeMap;
use std::sync::Arc;

use offramp_config::model::{Name, NotifyConfig};
use offramp_observe::Log;
use offramp_process::inherited::Unwanted;
use offramp_process::{Finding, supervise};
use tokio::task::AbortHandle;

use crate::acme::Orders;
use crate::data_plane::DataPlane;
use crate::notify::{Delivering, NotifyRegistry, NotifySources, Receiver};
use crate::service::{Service, Way};

/// The tasks that tell receivers; they end when dropped.
pub(crate) struct Notifiers {
    registry: Arc<NotifyRegistry>,
    tasks: BTreeMap<Name, NotifyTask>,
    orders: Arc<Orders>,
    log: Log,
}

struct NotifyTask {
    delivering: Arc<Delivering>,
    task: AbortHandle,
}

impl Drop for NotifyTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Notifiers {
    /// A service without receivers yet.
    pub(crate) fn new(registry: Arc<NotifyRegistry>, orders: Arc<Orders>, log: Log) -> Self {
        Self { registry, tasks: BTreeMap::new(), orders, log }
    }

    /// All receivers, for other threads.
    pub(crate) fn registry(&self) -> &Arc<NotifyRegistry> {
        &self.registry
    }

    fn spawn(&self, delivering: &Arc<Delivering>, sources: &NotifySources) -> AbortHandle {
        let (delivering, sources, log) = (Arc::clone(delivering), sources.clone(), self.log.clone());
        supervise::spawn("notifications", &self.log, move || {
            Arc::clone(&delivering).run(sources.clone(), log.clone())
        })
    }
}

impl Service for Notifiers {
    type Wanted<'a> = &'a [NotifyConfig];
    type Step = Vec<Receiver>;

    fn prepare(&self, wanted: &[NotifyConfig], way: Way) -> Result<Vec<Receiver>, Vec<Finding>> {
        let (mut receivers, mut wrong) = (Vec::new(), Vec::new());
        for config in wanted {
            match Receiver::prepare(config) {
                Ok(receiver) => receivers.push(receiver),
                // The way back must not fail by a file that has gone: the receiver stays away.
                Err(findings) if way == Way::Back => log_missing(&findings, &self.log),
                Err(findings) => wrong.extend(findings),
            }
        }
        if wrong.is_empty() { Ok(receivers) } else { Err(wrong) }
    }

    fn commit(&mut self, receivers: Vec<Receiver>, plane: &DataPlane) {
        let sources = NotifySources {
            current: plane.shared.current.clone(),
            page: plane.page.clone(),
            notices: plane.shared.refusals.notices().clone(),
            orders: Arc::clone(&self.orders),
        };
        let mut before = std::mem::take(&mut self.tasks);
        for delivering in self.registry.follow(receivers) {
            let name = delivering.receiver.config.name.clone();
            let running = before.remove(&name).filter(|one| Arc::ptr_eq(&one.delivering, &delivering));
            let running = running.unwrap_or_else(|| {
                let task = self.spawn(&delivering, &sources);
                NotifyTask { delivering, task }
            });
            self.tasks.insert(name, running);
        }
    }

    async fn hand_over(&mut self, _: &mut Unwanted, _: &DataPlane) {
        self.registry.leave(&self.log);
    }
}

fn log_missing(findings: &[Finding], log: &Log) {
    for finding in findings {
        let text = finding.to_string();
        log.error("a receiver of notifications cannot be used", &[("reason", (&text).into())]);
    }
}
