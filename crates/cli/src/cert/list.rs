//! `cert list`: the certificates of a configuration.

use std::time::SystemTime;

use offramp_certs::inspect::{self, CertificateFields, date};
use offramp_certs::{Certificate, CertificateOrigin};
use offramp_control::{Listed, inventory};
use serde_json::json;

use crate::check;
use crate::failure::Failure;
use crate::flags::cert::CertList;
use crate::surroundings::{self, print, say};
use crate::text_table::text_table;

/// Prints the certificates as a table, or as JSON lines with `--json`.
///
/// # Errors
/// The configuration has mistakes, or a certificate cannot be used.
pub(super) fn list(arguments: CertList) -> Result<(), Failure> {
    let path = check::find(arguments.file)?;
    let config = check::load(&path, &surroundings::environment())?;
    let now = SystemTime::now();
    let found = inventory(&config, now);
    let rows: Vec<Row> = found.listed.iter().map(|listed| Row::of(listed, now)).collect();
    let text = if arguments.json { rows.iter().map(Row::json).collect() } else { table(&rows) };
    print(text.as_bytes())?;
    for warning in &found.warnings {
        say(&format!("warning: {warning}"));
    }
    if found.errors.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = found.errors.iter().map(|error| format!("error: {error}")).collect();
    Err(Failure::usage(lines.join("\n")))
}

/// One certificate of the listing.
struct Row {
    names: Vec<String>,
    source: &'static str,
    file: String,
    issuer: String,
    not_after: SystemTime,
    /// Whole days until expiry; negative after it.
    days_left: i64,
    key: String,
    routes: Vec<String>,
}

impl Row {
    fn of(listed: &Listed, now: SystemTime) -> Self {
        let certificate: &Certificate = &listed.certificate;
        let leaf = certificate.certified_key.cert.first().map(|der| inspect::read(der));
        let issuer =
            leaf.and_then(Result::ok).map(|CertificateFields { issuer, .. }| issuer).unwrap_or_default();
        let names = certificate.names.iter().map(ToString::to_string);
        let names = names.chain(certificate.addresses.iter().map(ToString::to_string)).collect();
        let days =
            |time: std::time::Duration| i64::try_from(time.as_secs() / (24 * 3600)).unwrap_or(i64::MAX);
        Row {
            names,
            source: certificate.source.kind(),
            file: match &certificate.source {
                CertificateOrigin::Files { cert, .. } => cert.display().to_string(),
                CertificateOrigin::LocalCa { path } | CertificateOrigin::Acme { path } => {
                    path.display().to_string()
                }
                _ => String::new(),
            },
            issuer,
            not_after: certificate.not_after,
            days_left: match certificate.not_after.duration_since(now) {
                Ok(left) => days(left),
                Err(since) => -1 - days(since.duration()),
            },
            key: certificate.description.key_algorithm.to_string(),
            routes: listed.routes.clone(),
        }
    }

    fn json(&self) -> String {
        let Row { names, source, file, issuer, not_after, days_left, key, routes } = self;
        let not_after = date(*not_after);
        let row = json!({
            "names": names, "source": source, "file": file, "issuer": issuer, "not_after": not_after,
            "days_left": days_left, "key": key, "routes": routes,
        });
        format!("{row}\n")
    }
}

fn table(rows: &[Row]) -> String {
    let titles = ["NAMES", "DAYS", "KEY", "SOURCE", "ISSUER", "ROUTES", "FILE"];
    let mut lines = vec![titles.map(str::to_owned).to_vec()];
    for row in rows {
        lines.push(vec![
            abbreviated(&row.names),
            row.days_left.to_string(),
            row.key.clone(),
            row.source.to_owned(),
            row.issuer.clone(),
            abbreviated(&row.routes),
            row.file.clone(),
        ]);
    }
    text_table(&lines, |_| false)
}

/// Joins the first names; the others are only counted.
fn abbreviated(names: &[String]) -> String {
    const SHOWN: usize = 3;
    match names {
        [] => "-".to_owned(),
        few if few.len() <= SHOWN => few.join(","),
        many => format!("{} and {} more", many[..SHOWN].join(","), many.len() - SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_however_many_lines_there_are() {
        let row = |number: usize| Row {
            names: vec![format!("a{number}.test")],
            source: "file",
            file: "f.pem".to_owned(),
            issuer: "CN=Ä".to_owned(),
            not_after: SystemTime::UNIX_EPOCH,
            days_left: -1,
            key: "EC256".to_owned(),
            routes: Vec::new(),
        };
        // The time must be linear in the number of lines; quadratic time would take minutes.
        let rows: Vec<Row> = (0..50_000).map(row).collect();
        let text = table(&rows);
        assert_eq!(text.lines().count(), 50_001);
        let before = |line: &str, end: &str| line.strip_suffix(end).map(|rest| rest.chars().count());
        let header = before(text.lines().next().unwrap(), "FILE");
        assert!(header.is_some());
        assert!(text.lines().skip(1).all(|line| before(line, "f.pem") == header));
    }
}
