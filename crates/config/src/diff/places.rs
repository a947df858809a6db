//! Transfer of places from a configuration to an equivalent one that was printed and parsed again.

use crate::keys;
use crate::model::Config;

impl Config {
    /// Takes over the places of `old` for everything that is equal.
    pub fn keep_places(&mut self, old: &Self) {
        keep(&mut self.telemetry.notify, &old.telemetry.notify);
        keep(&mut self.certificates, &old.certificates);
        keep(&mut self.authorities, &old.authorities);
        keep(&mut self.listeners, &old.listeners);
        keep(&mut self.routes, &old.routes);
        keep(&mut self.backends, &old.backends);
        // The default user need not exist.
        if self.process.user == old.process.user {
            self.process.user.clone_from(&old.process.user);
        }
        for (key, binding) in keys::settings() {
            if (binding.get)(self) == (binding.get)(old) {
                self.origins.set(key.path, old.origins.of(key.path).cloned());
            }
        }
    }
}

/// Replaces items by equal ones of `old`, which differ in their places only.
fn keep<T: PartialEq + Clone>(new: &mut [T], old: &[T]) {
    // Unchanged items have kept their distance from the start or from the end.
    let (count, had) = (new.len(), old.len());
    for (index, item) in new.iter_mut().enumerate() {
        let from_end = (index + had).checked_sub(count).and_then(|at| old.get(at));
        let same = old.get(index).filter(|one| *one == item).or_else(|| from_end.filter(|one| *one == item));
        if let Some(same) = same {
            item.clone_from(same);
        }
    }
}
