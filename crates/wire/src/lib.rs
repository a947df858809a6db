//! Bytes before trust: PROXY headers, ClientHello, protocol sniffing.
