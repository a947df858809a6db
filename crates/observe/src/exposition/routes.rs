//! Figures by route, backend and server. Figures that do not apply to the mode of a route (`tcp` or `http`)
//! are left out.

use super::{Distribution, FamilyWriter, MetricVisitor, seconds};
use crate::histogram;
use crate::names;
use crate::series::{CODES, Labels, METHODS, SetTotals};

pub(super) fn write(families: &mut FamilyWriter<'_, impl MetricVisitor>, sets: &[SetTotals]) {
    let http = || sets.iter().filter(|set| set.all_requests() > 0);
    let cells = http().flat_map(|set| {
        let places = (0..METHODS.len()).flat_map(|method| (0..CODES.len()).map(move |code| (method, code)));
        places.map(move |(method, code)| {
            let [route, backend, server] = names_of(&set.labels);
            ([route, backend, server, METHODS[method], CODES[code]], set.requests(method, code))
        })
    });
    families.table(&names::REQUESTS, cells.filter(|(_, count)| *count > 0));
    let histogram = |set, cells| (names_of(set), distribution(cells));
    families.histograms(&names::REQUEST_DURATION, http().map(|set| histogram(&set.labels, set.duration())));
    let answered = http().map(|set| histogram(&set.labels, set.first_byte()));
    families.histograms(&names::REQUEST_FIRST_BYTE, answered.filter(|(_, times)| times.count > 0));
    let tried = || http().filter(|set| set.tries() > 0);
    families.table(&names::REQUEST_TRIES, tried().map(|set| (names_of(&set.labels), set.tries())));
    families.table(&names::REQUEST_RETRIES, tried().map(|set| (names_of(&set.labels), set.retries())));
    let waited = tried().map(|set| (names_of(&set.labels), seconds(set.queue_micros())));
    families.table(&names::REQUEST_QUEUE, waited);
    let tcp = sets.iter().filter(|set| set.connections() > 0);
    families.table(&names::ROUTE_CONNECTIONS, tcp.map(|set| (names_of(&set.labels), set.connections())));
    let bytes = sets.iter().flat_map(|set| {
        let [route, backend, server] = names_of(&set.labels);
        let moved = set.traffic();
        [("client_to_server", moved.from_client), ("server_to_client", moved.to_client)]
            .map(|(way, bytes)| ([route, backend, server, way], bytes))
    });
    families.table(&names::ROUTE_BYTES, bytes);
}

fn names_of(labels: &Labels) -> [&str; 3] {
    [&labels.route, &labels.backend, &labels.server]
}

fn distribution(cells: &[u64]) -> Distribution {
    let mut count = 0;
    let buckets = histogram::bounds().zip(cells).map(|(bound, cell)| {
        count += cell;
        (bound, count)
    });
    let buckets = buckets.collect();
    Distribution { buckets, count: count + cells[histogram::BOUNDS], sum: seconds(cells[histogram::SUM]) }
}
