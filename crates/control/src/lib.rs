//! Changing the running house: build, apply, reload, signals.
