//! Secrets within the values of a configuration, which are not shown to others.

use crate::model::{Config, NotifyTarget, NotifyUrl, StoreUrl};

/// Puts `***` in the place of the password of the log store, and of what follows the hosts in URLs of notifications. The
/// text of such a configuration is refused where it is read. Returns the keys with something hidden.
pub fn hide_secrets(config: &mut Config) -> Vec<&'static str> {
    let mut hidden = Vec::new();
    let telemetry = &mut config.telemetry;
    if let Some(masked) = telemetry.log_store.url.as_ref().and_then(StoreUrl::masked) {
        telemetry.log_store.url = Some(masked);
        hidden.push("log_store.url");
    }
    for receiver in &mut telemetry.notify {
        if let NotifyTarget::Webhook(webhook) = &mut receiver.to
            && let Some(masked) = webhook.url.as_ref().and_then(NotifyUrl::masked)
        {
            webhook.url = Some(masked);
            hidden.push("notify.url");
        }
    }
    hidden.dedup();
    hidden
}
