//! Choosing and reaching a server.
