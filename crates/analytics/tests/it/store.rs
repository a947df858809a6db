//! The log store: what goes in comes out, on SQLite and on PostgreSQL.

mod answers;
mod asking;
mod bounds;
mod count;
mod failures;
mod filters;
mod keeping;
mod reconnecting;
mod requests;
mod wire_cutter;
