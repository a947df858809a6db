//! Imports as their users meet them: configurations of others, the text that comes out, and the report.

mod bad_input;
mod cases;
mod documents;
mod size;
