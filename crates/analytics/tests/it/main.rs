//! Tests of the crate from outside: whole stores, whole imports.

mod store;
