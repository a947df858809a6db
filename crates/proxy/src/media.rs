//! The types of files.

/// The media type of a file by the end of its name; text is UTF-8.
#[must_use]
pub fn media_type(name: &str) -> String {
    match mime_guess::from_path(name).first_raw() {
        Some(kind) if kind.starts_with("text/") => format!("{kind}; charset=utf-8"),
        Some(kind) => kind.to_owned(),
        None => "application/octet-stream".to_owned(),
    }
}
