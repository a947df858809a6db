//! Names in the read model: those of routes, which fit in one store, and those of listening sockets.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Deref;
use std::sync::Arc;

/// The name of a route, and a number that stands for it. The number follows from the name: it is the same in every
/// snapshot, and that of another route is another.
#[derive(Clone, Debug)]
pub struct RouteName {
    text: Arc<str>,
    id: RouteId,
}

/// Stands for the name of a route; 0 for none. As much as 64 bits of a hash can be, it is its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteId(pub(crate) u64);

/// The number of a listening socket. Each worker has one acceptor of this number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AcceptorId(pub u32);

impl RouteName {
    pub(crate) fn id(&self) -> RouteId {
        self.id
    }
}

impl RouteId {
    /// Of this name.
    pub(crate) fn of(name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(hasher.finish().max(1))
    }
}

impl<T: Into<Arc<str>>> From<T> for RouteName {
    fn from(name: T) -> Self {
        let text = name.into();
        Self { id: RouteId::of(&text), text }
    }
}

impl Deref for RouteName {
    type Target = Arc<str>;

    fn deref(&self) -> &Arc<str> {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_follows_from_the_name() {
        let (one, same, other) =
            (RouteName::from("a.test"), RouteName::from("a.test"), "a.test/x".to_owned());
        assert_eq!((one.id(), &**one), (same.id(), &**same));
        assert_ne!(one.id(), RouteName::from(other).id());
        assert_ne!(RouteName::from("").id(), RouteId::default(), "no route is another");
    }
}
