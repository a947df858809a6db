//! The record layer by property: whatever is sealed comes out again, however the bytes are split.

mod refusals;
mod reseal;
mod roundtrip;
