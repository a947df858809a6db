//! Development only: test servers, record-level TLS client, process harness.
