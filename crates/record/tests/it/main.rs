//! Properties of the record layer: sealed plaintext is opened again, however the bytes are split.

mod refusals;
mod reseal;
mod roundtrip;
