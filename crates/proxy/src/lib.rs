//! One connection, from accept to close: workers, routes, relay, limits.
