//! Where addresses are, by a file in MaxMind's format that the user gives. Offramp brings none.

use std::net::IpAddr;
use std::path::Path;

use maxminddb::{PathElement, Reader};

use crate::error::Error;

/// A GeoIP file.
pub(crate) struct Geo(Reader<Vec<u8>>);

/// Where an address is, as far as the file knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The country, as two letters (ISO 3166-1).
    pub(crate) country: Option<String>,
    /// The city's English name.
    pub(crate) city: Option<String>,
}

impl Geo {
    /// Reads a file.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let bytes = std::fs::read(path)
            .map_err(|error| Error::Io(format!("reading the GeoIP file {}", path.display()), error))?;
        let reader = Reader::from_source(bytes)
            .map_err(|error| Error::Question(format!("the GeoIP file {}: {error}", path.display())))?;
        Ok(Self(reader))
    }

    /// Where an address is.
    pub(crate) fn place(&self, address: IpAddr) -> Place {
        let Ok(found) = self.0.lookup(address) else { return Place::default() };
        let text = |path: &[PathElement<'_>]| found.decode_path::<String>(path).ok().flatten();
        Place {
            country: text(&[PathElement::Key("country"), PathElement::Key("iso_code")]),
            city: text(&[PathElement::Key("city"), PathElement::Key("names"), PathElement::Key("en")]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in which all of 128.0.0.0/1 is Tromsø, and nothing else is known.
    fn file() -> Vec<u8> {
        offramp_testkit::geoip::city("NO", "Tromsø")
    }

    #[test]
    fn places_are_found_by_address() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("city.mmdb");
        std::fs::write(&path, file()).unwrap();
        let geo = Geo::open(&path).unwrap();
        let tromso = Place { country: Some("NO".into()), city: Some("Tromsø".into()) };
        assert_eq!(geo.place("192.0.2.1".parse().unwrap()), tromso);
        assert_eq!(geo.place("10.0.0.1".parse().unwrap()), Place::default());
        assert_eq!(geo.place("2001:db8::1".parse().unwrap()), Place::default());
    }

    #[test]
    fn clients_are_shown_with_their_place_and_added_up_by_it() {
        use crate::entry::Entry;
        use crate::question::{Filter, Top};
        use crate::writer::{Options, Writer};

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("city.mmdb");
        std::fs::write(&path, file()).unwrap();
        let mut writer = Writer::open("sqlite::memory:", &Options::default()).unwrap();
        for client in ["192.0.2.1", "192.0.2.2", "10.0.0.1"] {
            let client = Some(client.parse().unwrap());
            writer.add(&Entry { time_us: 1, client, ..Entry::default() }).unwrap();
        }
        let mut questions = writer.into_questions().unwrap();
        questions.use_geoip(&path).unwrap();
        let answer = questions.top(Top::Cities, &Filter::default()).unwrap();
        let json = crate::render::render(&answer, crate::render::Style::Json);
        let expected = "[{\"city\":\"Tromsø\",\"country\":\"NO\",\"requests\":2,\"bytes\":0},\n \
                        {\"city\":null,\"country\":null,\"requests\":1,\"bytes\":0}]\n";
        assert_eq!(json, expected);
        let answer = questions.top(Top::Clients, &Filter { limit: Some(1), ..Filter::default() }).unwrap();
        assert_eq!(answer.columns, ["client", "country", "city", "requests", "bytes"]);
        let answer = questions.top(Top::Countries, &Filter { limit: Some(1), ..Filter::default() }).unwrap();
        assert_eq!(answer.columns, ["country", "requests", "bytes"]);
    }
}
