//! The networks of countries, from a database in MaxMind's format that the user gives.
//!
//! The database is read whole and given up again: what remains are the networks of the countries that are named, which are
//! looked up as those of any list.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use maxminddb::{PathElement, Reader, WithinOptions};
use offramp_config::model::{Cidr, Country};

/// The largest database, in bytes. Those of cities have 100 MiB.
const DATABASE_MAX: u64 = 512 << 20;
/// The most networks of a database; a broken one could have any number.
const NETWORKS_MAX: usize = 16 << 20;

/// The networks of each of these countries.
///
/// # Errors
/// The file is no such database, or knows no network of one of them.
pub(super) fn read(path: &Path, wanted: &BTreeSet<Country>) -> Result<HashMap<Country, Arc<[Cidr]>>, String> {
    let name = path.display();
    let mut bytes = Vec::new();
    let file = File::open(path).and_then(|file| file.take(DATABASE_MAX + 1).read_to_end(&mut bytes));
    file.map_err(|error| format!("cannot read {name}: {error}"))?;
    if bytes.len() as u64 > DATABASE_MAX {
        return Err(format!("{name} has more than {} MiB", DATABASE_MAX >> 20));
    }
    let found = networks(bytes, wanted).map_err(|error| format!("{name}: {error}"))?;
    let unknown: Vec<String> =
        wanted.iter().filter(|country| !found.contains_key(country)).map(ToString::to_string).collect();
    if !unknown.is_empty() {
        return Err(format!("{name} knows no network of {}", unknown.join(", ")));
    }
    Ok(found.into_iter().map(|(country, networks)| (country, networks.into())).collect())
}

fn networks(bytes: Vec<u8>, wanted: &BTreeSet<Country>) -> Result<HashMap<Country, Vec<Cidr>>, String> {
    let broken = |error: maxminddb::MaxMindDbError| error.to_string();
    let reader = Reader::from_source(bytes).map_err(broken)?;
    let mut found: HashMap<Country, Vec<Cidr>> = HashMap::new();
    // Many networks have the same record.
    let mut records: HashMap<usize, Option<Country>> = HashMap::new();
    for (network, count) in reader.networks(WithinOptions::default()).map_err(broken)?.zip(1..) {
        if count > NETWORKS_MAX {
            return Err(format!("it has more than {NETWORKS_MAX} networks"));
        }
        let network = network.map_err(broken)?;
        let Some(record) = network.offset() else { continue };
        let country = match records.get(&record) {
            Some(known) => *known,
            None => {
                let code = network.decode_path::<String>(&CODE).map_err(broken)?;
                let country = code.and_then(|code| code.parse().ok()).filter(|code| wanted.contains(code));
                records.insert(record, country);
                country
            }
        };
        let Some(country) = country else { continue };
        let place = network.network().map_err(broken)?;
        found.entry(country).or_default().extend(Cidr::new(place.ip(), place.prefix()));
    }
    Ok(found)
}

/// The path of the country's code in a record.
const CODE: [PathElement<'static>; 2] = [PathElement::Key("country"), PathElement::Key("iso_code")];

#[cfg(test)]
mod tests {
    use offramp_testkit::geoip;

    use super::*;

    fn found(bytes: &[u8], wanted: &[&str]) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("country.mmdb");
        std::fs::write(&path, bytes).unwrap();
        let wanted = wanted.iter().map(|code| code.parse().unwrap()).collect();
        let read = read(&path, &wanted).map_err(|error| error.replace(&*path.to_string_lossy(), "file"))?;
        let mut lines: Vec<String> = read
            .iter()
            .map(|(country, networks)| {
                let networks: Vec<String> =
                    networks.iter().map(|one| format!("{}/{}", one.address(), one.prefix())).collect();
                format!("{country} {}", networks.join(" "))
            })
            .collect();
        lines.sort();
        Ok(lines)
    }

    #[test]
    fn networks_of_the_countries_that_are_named_are_found() {
        let file = geoip::halves("NO", "SE");
        assert_eq!(found(&file, &["NO"]).unwrap(), ["NO 0.0.0.0/1"]);
        assert_eq!(found(&file, &["se", "NO"]).unwrap(), ["NO 0.0.0.0/1", "SE 128.0.0.0/1"]);
        assert_eq!(found(&file, &["SE", "DK", "FI"]).unwrap_err(), "file knows no network of DK, FI");
    }

    #[test]
    fn what_is_no_database_is_refused() {
        let file = geoip::halves("NO", "SE");
        for broken in [&b""[..], b"\0", &file[..file.len() / 2], &file[10..]] {
            assert!(found(broken, &["NO"]).is_err());
        }
        // The nodes lead in circles, or anywhere.
        for byte in 0..6 {
            for value in [0, 1, 2, 0x7f, 0xff] {
                let mut file = file.clone();
                file[byte] = value;
                let _ = found(&file, &["NO"]);
            }
        }
        assert!(read(Path::new("/nowhere"), &BTreeSet::new()).unwrap_err().contains("cannot read /nowhere"));
    }
}
