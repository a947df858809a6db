//! The configuration language: keys, parsing, checking, differences.
