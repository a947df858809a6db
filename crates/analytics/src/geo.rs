//! Locations of addresses from a file in MaxMind's format. The user provides the file; Offramp has none.

use std::net::IpAddr;
use std::path::Path;

use maxminddb::{PathElement, Reader};

use crate::error::Error;

/// An open GeoIP file.
pub(crate) struct Geo(Reader<Vec<u8>>);

/// The location of an address, as far as the file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GeoLocation {
    /// The country's two-letter code (ISO 3166-1).
    pub(crate) country: Option<String>,
    /// The city's English name.
    pub(crate) city: Option<String>,
}

impl Geo {
    /// Opens a GeoIP file.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let bytes = std::fs::read(path)
            .map_err(|error| Error::Io(format!("reading the GeoIP file {}", path.display()), error))?;
        let reader = Reader::from_source(bytes)
            .map_err(|error| Error::Question(format!("the GeoIP file {}: {error}", path.display())))?;
        Ok(Self(reader))
    }

    /// Looks up an address.
    pub(crate) fn place(&self, address: IpAddr) -> GeoLocation {
        let Ok(found) = self.0.lookup(address) else { return GeoLocation::default() };
        let text = |path: &[PathElement<'_>]| found.decode_path::<String>(path).ok().flatten();
        GeoLocation {
            country: text(&[PathElement::Key("country"), PathElement::Key("iso_code")]),
            city: text(&[PathElement::Key("city"), PathElement::Key("names"), PathElement::Key("en")]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with Tromsø for all of 128.0.0.0/1, and nothing else.
    fn file() -> Vec<u8> {
        offramp_testkit::geoip::city("NO", "Tromsø")
    }

    #[test]
    fn places_are_found_by_address() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("city.mmdb");
        std::fs::write(&path, file()).unwrap();
        let geo = Geo::open(&path).unwrap();
        let tromso = GeoLocation { country: Some("NO".into()), city: Some("Tromsø".into()) };
        assert_eq!(geo.place("192.0.2.1".parse().unwrap()), tromso);
        assert_eq!(geo.place("10.0.0.1".parse().unwrap()), GeoLocation::default());
        assert_eq!(geo.place("2001:db8::1".parse().unwrap()), GeoLocation::default());
    }

    #[test]
    fn clients_are_shown_with_their_place_and_added_up_by_it() {
        use crate::entry::LogEntry;
        use crate::question::{RequestFilter, Top};
        use crate::writer::{Options, Writer};

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("city.mmdb");
        std::fs::write(&path, file()).unwrap();
        let mut writer = Writer::open("sqlite::memory:", &Options::default()).unwrap();
        for client in ["192.0.2.1", "192.0.2.2", "10.0.0.1"] {
            let client = Some(client.parse().unwrap());
            writer.add(&LogEntry { time_us: 1, client, ..LogEntry::default() }).unwrap();
        }
        let mut questions = writer.into_questions().unwrap();
        questions.use_geoip(&path).unwrap();
        let answer = questions.top(Top::Cities, &RequestFilter::default()).unwrap();
        let json = crate::render::render(&answer, crate::render::Style::Json);
        let expected = "[{\"city\":\"Tromsø\",\"country\":\"NO\",\"requests\":2,\"bytes\":0},\n \
                        {\"city\":null,\"country\":null,\"requests\":1,\"bytes\":0}]\n";
        assert_eq!(json, expected);
        let answer = questions
            .top(Top::Clients, &RequestFilter { limit: Some(1), ..RequestFilter::default() })
            .unwrap();
        assert_eq!(answer.columns, ["client", "country", "city", "requests", "bytes"]);
        let answer = questions
            .top(Top::Countries, &RequestFilter { limit: Some(1), ..RequestFilter::default() })
            .unwrap();
        assert_eq!(answer.columns, ["country", "requests", "bytes"]);
    }
}
