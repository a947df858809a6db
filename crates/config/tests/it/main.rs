//! The language as its users meet it: files, messages, printed configurations, documentation.

mod access;
mod blessed;
mod documentation;
mod includes;
mod language;
mod mistakes;
mod properties;
mod sharing;
mod strategies;
