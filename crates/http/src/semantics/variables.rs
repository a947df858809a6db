//! VariableValues of fields that are made for each message: text with variables in it.
//!
//! A template is compiled once, with the configuration. It refuses to know where values come from: [`VariableValues`] says that.

/// What can stand in a template for something that is known of a request or of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldVariable {
    /// The address of the client.
    Client,
    /// Source port of the client.
    ClientPort,
    /// The host that was asked for, without port.
    Host,
    /// Scheme: `https` or `http`.
    Scheme,
    /// Method of the request.
    Method,
    /// The path as it came.
    Path,
    /// The query as it came, without the `?`.
    Query,
    /// Path and query as they came.
    Uri,
    /// The id of the request.
    Id,
    /// The name of the route.
    Route,
    /// The address of the server that made the response.
    Server,
    /// The version of TLS.
    TlsVersion,
    /// Cipher suite of the connection.
    TlsCipher,
    /// The server name that the client asked TLS for.
    TlsSni,
    /// The common name of the client's certificate.
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
    /// The SHA-256 of the certificate.
    CertificateFingerprint,
    /// The end of its validity.
    CertificateEnd,
}

/// The values of variables for one message.
pub trait VariableValues {
    /// Writes the value of a variable behind `out`; nothing where there is none.
    fn write(&self, variable: FieldVariable, out: &mut Vec<u8>);
}

/// No values: for rules that have no variables.
pub struct NoValues;

impl VariableValues for NoValues {
    fn write(&self, _: FieldVariable, _: &mut Vec<u8>) {}
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePiece {
    /// Text as it is, which may stand in the value of a field.
    Text(Box<[u8]>),
    /// The value of a variable.
    Variable(FieldVariable),
}

impl From<&str> for TemplatePiece {
    fn from(text: &str) -> Self {
        Self::Text(text.as_bytes().into())
    }
}

/// The value of a field with variables in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTemplate(Box<[TemplatePiece]>);

impl FieldTemplate {
    /// A template of these pieces.
    pub fn new(pieces: impl IntoIterator<Item = TemplatePiece>) -> Self {
        Self(pieces.into_iter().collect())
    }

    /// The value for one message. Bytes of variables that would end a field, or that no value may have (RFC 9110 §5.5),
    /// become blanks; there are none at its ends.
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
    fn whatever_a_variable_says_stays_within_its_value() {
        let template = FieldTemplate::new([
            TemplatePiece::Variable(FieldVariable::TlsSni),
            TemplatePiece::from(";"),
            TemplatePiece::from(""),
        ]);
        for byte in 0..=255_u8 {
            let bytes = &*Vec::leak(vec![b'a', byte, b'b']);
            let value = template.fill(&Anything(bytes));
            assert!(crate::h1::is_text(&value) && value.len() == 4, "{}", value.escape_ascii());
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
