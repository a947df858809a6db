//! Templates of field values: text with variables.
//!
//! A template is compiled once, with the configuration. [`VariableValues`] provides the values.

/// A variable of a request or its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldVariable {
    /// IP address of the client.
    Client,
    /// Source port of the client.
    ClientPort,
    /// Requested host, without port.
    Host,
    /// Scheme: `https` or `http`.
    Scheme,
    /// Method of the request.
    Method,
    /// Path as received, not normalised.
    Path,
    /// Query as received, without the `?`.
    Query,
    /// Path and query as received.
    Uri,
    /// Identifier of the request.
    Id,
    /// Name of the route.
    Route,
    /// Address of the server that sent the response.
    Server,
    /// TLS version of the connection.
    TlsVersion,
    /// Cipher suite of the connection.
    TlsCipher,
    /// Server name that the client requested in TLS.
    TlsSni,
    /// Common name of the client certificate.
    CertificateName,
    /// Subject of the client certificate.
    CertificateSubject,
    /// Issuer of the client certificate.
    CertificateIssuer,
    /// Serial number of the client certificate.
    CertificateSerial,
    /// DNS names of the client certificate.
    CertificateDns,
    /// URIs of the client certificate.
    CertificateUri,
    /// SHA-256 of the client certificate.
    CertificateFingerprint,
    /// End of the client certificate's validity.
    CertificateEnd,
}

/// Values of variables for one message.
pub trait VariableValues {
    /// Appends the value of a variable to `out`; nothing if it has none.
    fn write(&self, variable: FieldVariable, out: &mut Vec<u8>);
}

/// No values: for rules without variables.
pub struct NoValues;

impl VariableValues for NoValues {
    fn write(&self, _: FieldVariable, _: &mut Vec<u8>) {}
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePiece {
    /// Literal text, valid in a field value.
    Text(Box<[u8]>),
    /// Placeholder for the value of a variable.
    Variable(FieldVariable),
}

impl From<&str> for TemplatePiece {
    fn from(text: &str) -> Self {
        Self::Text(text.as_bytes().into())
    }
}

/// A field value with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTemplate(Box<[TemplatePiece]>);

impl FieldTemplate {
    /// Creates a template of these pieces.
    pub fn new(pieces: impl IntoIterator<Item = TemplatePiece>) -> Self {
        Self(pieces.into_iter().collect())
    }

    /// Computes the value for one message. Bytes of variables that are not permitted in field values (RFC
    /// 9110 §5.5) become spaces; surrounding whitespace is removed.
    #[must_use]
    pub fn fill(&self, values: &impl VariableValues) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        for piece in &self.0 {
            match piece {
                TemplatePiece::Text(text) => out.extend_from_slice(text),
                TemplatePiece::Variable(variable) => {
                    let start = out.len();
                    values.write(*variable, &mut out);
                    for byte in out[start..].iter_mut().filter(|byte| byte.is_ascii_control()) {
                        *byte = b' ';
                    }
                }
            }
        }
        let blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
        let end = out.len() - out.iter().rev().take_while(blank).count();
        out.truncate(end);
        let front = out.iter().take_while(blank).count();
        out.drain(..front);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Anything(&'static [u8]);

    impl VariableValues for Anything {
        fn write(&self, _: FieldVariable, out: &mut Vec<u8>) {
            out.extend_from_slice(self.0);
        }
    }

    #[test]
    fn variables_cannot_end_their_field() {
        let template = FieldTemplate::new([
            TemplatePiece::Variable(FieldVariable::TlsSni),
            TemplatePiece::from(";"),
            TemplatePiece::from(""),
        ]);
        for byte in 0..=255_u8 {
            let bytes = &*Vec::leak(vec![b'a', byte, b'b']);
            let value = template.fill(&Anything(bytes));
            assert!(crate::field::is_text(&value) && value.len() == 4, "{}", value.escape_ascii());
        }
        let alone = FieldTemplate::new([TemplatePiece::Variable(FieldVariable::Host)]);
        for (said, value) in [
            (&b""[..], &b""[..]),
            (b" \t a \r\n", b"a"),
            (b"\r\n", b""),
            (b"\r\n\r\nHTTP/1.1 200", b"HTTP/1.1 200"),
        ] {
            assert_eq!(alone.fill(&Anything(said)), value);
        }
    }
}
