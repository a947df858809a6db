//! The types of files.

/// The media type of a file by the end of its name; text is UTF-8.
#[must_use]
pub fn media_type(name: &str) -> String {
    // The list has older names for these (RFC 9239, RFC 8081).
    let kind = match name.rsplit_once('.') {
        Some((_, "mjs")) => Some("text/javascript"),
        Some((_, "woff")) => Some("font/woff"),
        _ => mime_guess::from_path(name).first_raw(),
    };
    match kind {
        Some(kind) if kind.starts_with("text/") => format!("{kind}; charset=utf-8"),
        Some(kind) => kind.to_owned(),
        None => "application/octet-stream".to_owned(),
    }
}
