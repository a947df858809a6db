//! The kernel: sockets, addresses, limits, privileges.
