//! The language as its users meet it: files, messages, printed configurations, documentation.

mod access;
mod authorities;
mod blessed;
mod documentation;
mod effects;
mod fixtures;
mod formatting;
mod includes;
mod language;
mod mistakes;
mod packages;
mod properties;
mod schema;
mod servers;
mod sharing;
mod strategies;
