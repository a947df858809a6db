//! TLS record protection, in place and without I/O.
