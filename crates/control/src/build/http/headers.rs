//! Changes to the fields of requests and responses, as a snapshot has them.

use http::HeaderValue;
use offramp_config::model::{self, HeaderChanges, HeaderField, HeaderVariable, TemplatePart};
use offramp_proxy::{FieldTemplate, FieldValue, FieldVariable, HeaderRules, TemplatePiece};
use offramp_sources::access::field_name;

/// The changes of a route, compiled.
pub(super) fn rules(changes: &HeaderChanges) -> Result<HeaderRules, String> {
    let field = |(name, value): &HeaderField| Ok((field_name(name)?, template(value)?));
    let fields = |fields: &[HeaderField]| fields.iter().map(field).collect::<Result<Vec<_>, String>>();
    Ok(HeaderRules {
        remove: changes.remove.iter().map(field_name).collect::<Result<_, _>>()?,
        set: fields(&changes.set)?,
        add: fields(&changes.add)?,
    })
}

/// The value of a field, compiled where it has variables.
fn template(template: &model::HeaderTemplate) -> Result<FieldValue, String> {
    match &template.parts()[..] {
        [] => Ok(HeaderValue::from_static("").into()),
        [TemplatePart::Text(text)] => HeaderValue::from_str(text)
            .map(Into::into)
            .map_err(|error| format!("the value of a header field: {error}")),
        parts => Ok(FieldValue::Template(FieldTemplate::new(parts.iter().map(|part| match part {
            TemplatePart::Text(text) => TemplatePiece::from(text.as_str()),
            TemplatePart::Variable(variable) => TemplatePiece::Variable(self::variable(*variable)),
        })))),
    }
}

fn variable(variable: HeaderVariable) -> FieldVariable {
    match variable {
        HeaderVariable::Client => FieldVariable::Client,
        HeaderVariable::ClientPort => FieldVariable::ClientPort,
        HeaderVariable::Host => FieldVariable::Host,
        HeaderVariable::Scheme => FieldVariable::Scheme,
        HeaderVariable::Method => FieldVariable::Method,
        HeaderVariable::Path => FieldVariable::Path,
        HeaderVariable::Query => FieldVariable::Query,
        HeaderVariable::Uri => FieldVariable::Uri,
        HeaderVariable::Id => FieldVariable::Id,
        HeaderVariable::Route => FieldVariable::Route,
        HeaderVariable::Server => FieldVariable::Server,
        HeaderVariable::TlsVersion => FieldVariable::TlsVersion,
        HeaderVariable::TlsCipher => FieldVariable::TlsCipher,
        HeaderVariable::TlsSni => FieldVariable::TlsSni,
        HeaderVariable::CertificateName => FieldVariable::CertificateName,
        HeaderVariable::CertificateSubject => FieldVariable::CertificateSubject,
        HeaderVariable::CertificateIssuer => FieldVariable::CertificateIssuer,
        HeaderVariable::CertificateSerial => FieldVariable::CertificateSerial,
        HeaderVariable::CertificateDns => FieldVariable::CertificateDns,
        HeaderVariable::CertificateUri => FieldVariable::CertificateUri,
        HeaderVariable::CertificateFingerprint => FieldVariable::CertificateFingerprint,
        HeaderVariable::CertificateEnd => FieldVariable::CertificateEnd,
    }
}

pub(super) fn value(value: &model::HeaderValue) -> Result<HeaderValue, String> {
    HeaderValue::from_str(value.as_str()).map_err(|error| format!("the value of a header field: {error}"))
}
