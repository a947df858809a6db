//! Header blocks of the peer: requests, responses and trailers (RFC 9113 §8).

use http::Method;

use super::receive::PIECE;
use super::state::StreamState;
use super::streams::Stream;
use super::{Admission, Asked, Connection, Cost, Event, Handler, Reset, Role};
use crate::h1::content_length;
use crate::h2::{Code, Kind, Priority, Violation};
use crate::head::{ControlData, FieldSection, Fields, Known, Response};

/// Maximum interim responses per request. Servers that work for long send 102 now and then.
const MOST_INTERIM: u16 = 500;
/// Number of ended streams that the caller may have, besides open ones (server).
pub const LEFT_OVER: usize = 12;
/// Cost of the head of a message in pieces of work, besides its bytes.
const MESSAGE: usize = 32;
/// Cost of a field in bytes of work, besides its bytes.
const FIELD: usize = 40;

impl<T: Default> Connection<T> {
    /// Handles a whole header block. It is decoded in any case, so that the dynamic table stays in sync (RFC
    /// 9113 §4.3).
    pub(super) fn message<H: Handler<T> + ?Sized>(
        &mut self,
        id: u32,
        end: bool,
        block: &[u8],
        on: &mut H,
    ) -> Result<(), Violation> {
        on.spend(Cost::Pieces(MESSAGE + block.len() / PIECE));
        if self.role == Role::Server && id.is_multiple_of(2) {
            // Servers have these numbers (RFC 9113 §5.1.1).
            return Err(Violation::protocol("HEADERS of a client on an even stream"));
        }
        if self.role == Role::Server && id > self.streams.highest {
            return self.request(id, end, block, on);
        }
        let mut section = FieldSection::new(Fields::new(), self.config.max_head as usize);
        self.decode(&mut section, block, on)?;
        let Some(stream) = self.streams.receiving(id) else {
            return self.misplaced(id, Kind::Headers, on);
        };
        if self.role == Role::Client && !stream.responded {
            self.response(id, end, section, on);
        } else {
            self.trailers_by_peer(id, end, section, on);
        }
        Ok(())
    }

    /// Decodes a header block into `section`.
    fn decode<H: Handler<T> + ?Sized>(
        &mut self,
        section: &mut FieldSection,
        block: &[u8],
        on: &mut H,
    ) -> Result<(), Violation> {
        let mut count = 0;
        self.incoming
            .decoder
            .decode(block, |field| {
                count += 1;
                section.take(field);
            })
            .map_err(|fault| Violation::because(Code::COMPRESSION_ERROR, &fault))?;
        // A field of one byte costs nearly as much as a long one.
        on.spend(Cost::Bytes(FIELD * count + section.size().min(self.config.max_head as usize)));
        Ok(())
    }

    /// Handles the head of a request (server).
    fn request<H: Handler<T> + ?Sized>(
        &mut self,
        id: u32,
        end: bool,
        block: &[u8],
        on: &mut H,
    ) -> Result<(), Violation> {
        let mut request = on.head();
        let most = self.config.max_head as usize;
        let mut section = FieldSection::new(std::mem::take(&mut request.fields), most);
        self.decode(&mut section, block, on)?;
        let size = section.size().min(most);
        let control = section.request(&mut request);
        self.streams.highest = id;
        let length = declared_length(&request.fields);
        let says_content = length.is_some_and(|length| length > 0);
        // A CONNECT has no content (RFC 9110 §9.3.6).
        let malformed = says_content && request.method == Method::CONNECT;
        let control = control.filter(|_| !malformed);
        let control = match self.check_request(id, control, says_content && end) {
            Ok(control) => control,
            Err(unopened) => {
                on.put_back(request);
                return self.unopened(id, unopened);
            }
        };
        let asked = Asked { fields: size, streams: self.streams.len(), content: self.claimed() };
        let refused = match on.admit(asked) {
            Admission::Admitted => None,
            Admission::TooMuch => Some(1),
            Admission::Busy => Some(0),
        };
        if let Some(refused) = refused {
            on.put_back(request);
            self.counted.refused += refused;
            self.turn_away(id, Code::REFUSED_STREAM);
            return Ok(());
        }
        let windows = self.initial_windows();
        let said = || request.fields.get(Known::Priority).map(Priority::of_request);
        let priority = self.updates.take(id).or_else(said);
        let state = if end { StreamState::HalfClosedRemote } else { StreamState::Open };
        let stream = self.streams.insert(id, T::default(), state, windows, self.outgoing.output.end());
        stream.length = length;
        on.event(id, &mut stream.user, Event::Request { request, control, size, end });
        if let Some(priority) = priority {
            self.streams.prioritize(id, |_| priority);
        }
        Ok(())
    }

    /// Validates a request. `short` is set if it declares content and has none.
    fn check_request(
        &self,
        id: u32,
        control: Option<ControlData>,
        short: bool,
    ) -> Result<ControlData, Unopened> {
        let most = self.config.max_streams as usize;
        match control {
            None => Err(Unopened::Malformed),
            Some(_) if self.closing.goaway_sent.is_some_and(|last| id > last) => Err(Unopened::Late),
            Some(_) if self.streams.active >= most => Err(Unopened::TooMany),
            Some(_) if self.streams.len() >= most + LEFT_OVER => Err(Unopened::TooFast),
            Some(_) if short => Err(Unopened::Malformed),
            Some(control) => Ok(control),
        }
    }

    fn unopened(&mut self, id: u32, why: Unopened) -> Result<(), Violation> {
        match why {
            Unopened::Malformed => self.refuse(id, Code::PROTOCOL_ERROR),
            Unopened::TooMany if self.peer.settings_acked => self.refuse(id, Code::REFUSED_STREAM),
            Unopened::TooMany => {
                self.counted.refused += 1;
                self.turn_away(id, Code::REFUSED_STREAM);
            }
            Unopened::TooFast => {
                let what = "streams are reset faster than they can be cleaned up";
                return Err(Violation::new(Code::ENHANCE_YOUR_CALM, what));
            }
            // GOAWAY tells the client.
            Unopened::Late => {}
        }
        Ok(())
    }

    /// Handles the head of a response, interim or final (client).
    fn response<H: Handler<T> + ?Sized>(&mut self, id: u32, end: bool, section: FieldSection, on: &mut H) {
        let too_large = section.size() > self.config.max_head as usize;
        let Some(response) = section.response() else {
            let what = if too_large { "the head of a response is too large" } else { "a malformed response" };
            return self.fault(id, Violation::protocol(what), on);
        };
        let Some(stream) = self.streams.receiving(id) else { return };
        let head = match check_response(&response, stream, end) {
            Ok(head) => head,
            Err(violation) => return self.fault(id, violation, on),
        };
        let length = match head {
            ResponseKind::Interim => {
                stream.interim += 1;
                return on.event(id, &mut stream.user, Event::Interim(response));
            }
            ResponseKind::Final(length) => length,
        };
        stream.length = length;
        stream.responded = true;
        on.event(id, &mut stream.user, Event::Response { response, length, end });
        if end {
            self.streams.advance(id, StreamState::end_remote);
        }
    }

    /// Handles trailers, which end the content.
    fn trailers_by_peer<H: Handler<T> + ?Sized>(
        &mut self,
        id: u32,
        end: bool,
        section: FieldSection,
        on: &mut H,
    ) {
        let Some(stream) = self.streams.receiving(id) else { return };
        let whole = stream.length.is_none_or(|left| left == 0);
        let size = section.size();
        let trailers = match section.trailers() {
            Some(trailers) if end && whole => trailers,
            Some(_) if end => {
                return self.fault(
                    id,
                    Violation::protocol("less content than declared by content-length"),
                    on,
                );
            }
            Some(_) => return self.fault(id, Violation::protocol("trailers without END_STREAM"), on),
            None => return self.fault(id, Violation::protocol("malformed trailers"), on),
        };
        let streams = self.streams.len();
        let Some(stream) = self.streams.receiving(id) else { return };
        if self.role == Role::Server && !stream.lingers && !on.admit_trailers(&mut stream.user, size, streams)
        {
            // The request may have been processed, so REFUSED_STREAM would be wrong.
            self.counted.refused += 1;
            return self.end(id, Code::ENHANCE_YOUR_CALM, Reset::NoRoom, on);
        }
        if !stream.lingers {
            on.event(id, &mut stream.user, Event::End((!trailers.is_empty()).then_some(trailers)));
        }
        self.close_window(id);
    }
}

/// Reason for which a request is rejected.
#[derive(Clone, Copy)]
enum Unopened {
    /// Malformed, or not of its declared length.
    Malformed,
    /// Behind the last stream that is served.
    Late,
    /// The maximum number of streams is reached.
    TooMany,
    /// Streams are reset faster than the caller can forget them.
    TooFast,
}

/// Kind of a response head.
enum ResponseKind {
    Interim,
    /// The final response, with the length of its content.
    Final(Option<u64>),
}

/// Validates a response head against the state of its stream.
fn check_response<T>(response: &Response, stream: &Stream<T>, end: bool) -> Result<ResponseKind, Violation> {
    let status = response.status.as_u16();
    if status < 200 {
        // HTTP/2 has no 101 (RFC 9113 §8.6).
        if end || status == 101 {
            return Err(Violation::protocol("an interim response with END_STREAM or status 101"));
        }
        if stream.interim >= MOST_INTERIM {
            return Err(Violation::new(Code::ENHANCE_YOUR_CALM, "too many interim responses"));
        }
        return Ok(ResponseKind::Interim);
    }
    let Ok(said) = content_length_of(&response.fields) else {
        return Err(Violation::protocol("an invalid content-length"));
    };
    if stream.bodiless || matches!(status, 204 | 304) {
        return Ok(ResponseKind::Final(Some(0)));
    }
    if end && said.is_some_and(|length| length > 0) {
        return Err(Violation::protocol("less content than declared by content-length"));
    }
    Ok(ResponseKind::Final(said))
}

/// Content-Length of a request, if it is valid.
#[must_use]
pub fn declared_length(fields: &Fields) -> Option<u64> {
    content_length(fields.get(Known::ContentLength)?).ok()
}

/// Content-Length of a message; `Err` if it is invalid or repeated with another value.
fn content_length_of(fields: &Fields) -> Result<Option<u64>, ()> {
    let mut said = None;
    for value in fields.all(Known::ContentLength) {
        let length = match content_length(value) {
            Ok(length) => length,
            Err(_) => return Err(()),
        };
        if said.replace(length).is_some_and(|before| before != length) {
            return Err(());
        }
    }
    Ok(said)
}
