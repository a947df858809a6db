//! Header blocks of the peer: requests, responses and trailers (RFC 9113 §8).

use http::Method;

use super::receive::PIECE;
use super::streams::{Remote, Stream};
use super::{Admission, Asked, Connection, Cost, Event, Handler, Reset, Role};
use crate::h1::content_length;
use crate::h2::{Code, Priority, Violation};
use crate::head::{ControlData, FieldSection, Fields, Known, Response};

/// The most interim responses to one request. Whoever works for long says so with 102 once in a while.
const MOST_INTERIM: u16 = 500;
/// Streams that the user has and that are over, besides those that may be open (server).
pub const LEFT_OVER: usize = 12;
/// What it costs to take in the head of a message, in pieces of work, besides its bytes.
const MESSAGE: usize = 32;
/// What a field costs, as bytes of work, besides its bytes.
const FIELD: usize = 40;

impl<T: Default> Connection<T> {
    /// A whole block of fields. It is decoded whatever becomes of it, so that the table stays the peer's
    /// (RFC 9113 §4.3).
    pub(super) fn message<H: Handler<T> + ?Sized>(
        &mut self,
        id: u32,
        end: bool,
        block: &[u8],
        on: &mut H,
    ) -> Result<(), Violation> {
        on.spend(Cost::Pieces(MESSAGE + block.len() / PIECE));
        if self.is_request(id) {
            return self.request(id, end, block, on);
        }
        let mut section = FieldSection::new(Fields::new(), self.config.max_head as usize);
        self.decode(&mut section, block, on)?;
        if self.is_idle(id) {
            return Err(Violation::protocol("HEADERS on a stream that was not opened"));
        }
        let Some(stream) = self.streams.live(id) else {
            return self.late_fields(id);
        };
        match stream.remote {
            Remote::Head => self.response(id, end, section, on),
            Remote::Content => self.trailers_by_peer(id, end, section, on),
            Remote::Ended => {
                let what = "HEADERS behind the end of a stream";
                self.fault(id, Violation::new(Code::STREAM_CLOSED, what), on);
            }
        }
        Ok(())
    }

    /// Whether fields that come on a stream are the head of a request (server).
    fn is_request(&self, id: u32) -> bool {
        self.role == Role::Server && !id.is_multiple_of(2) && id > self.streams.highest
    }

    /// Decodes a block.
    fn decode<H: Handler<T> + ?Sized>(
        &mut self,
        section: &mut FieldSection,
        block: &[u8],
        on: &mut H,
    ) -> Result<(), Violation> {
        let mut count = 0;
        self.decoder
            .decode(block, |field| {
                count += 1;
                section.take(field);
            })
            .map_err(|fault| Violation::because(Code::COMPRESSION_ERROR, &fault))?;
        // A field of a byte costs nearly as much as a long one.
        on.spend(Cost::Bytes(FIELD * count + section.size().min(self.config.max_head as usize)));
        Ok(())
    }

    /// A request (server).
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
        // What follows a CONNECT is no content (RFC 9110 §9.3.6).
        let malformed = says_content && request.method == Method::CONNECT;
        let control = control.filter(|_| !malformed);
        let control = match self.judge_request(id, control, says_content && end) {
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
        let windows = (self.peer.stream_window, self.first_room(), self.config.stream_window);
        let said = || request.fields.get(Known::Priority).map(Priority::of_request);
        let priority = self.updates.take(id).or_else(said);
        let stream = self.streams.insert(id, T::default(), windows, self.output.end());
        stream.remote = if end { Remote::Ended } else { Remote::Content };
        stream.length = length;
        on.event(id, &mut stream.user, Event::Request { request, control, size, end });
        if let Some(priority) = priority {
            self.streams.prioritize(id, |_| priority);
        }
        Ok(())
    }

    /// Whether a request may begin as far as the protocol goes. `short`: it has no content, though it says so.
    fn judge_request(
        &self,
        id: u32,
        control: Option<ControlData>,
        short: bool,
    ) -> Result<ControlData, Unopened> {
        let most = self.config.max_streams as usize;
        match control {
            None => Err(Unopened::Malformed),
            Some(_) if self.closing.said.is_some_and(|last| id > last) => Err(Unopened::Late),
            Some(_) if self.streams.active >= most => Err(Unopened::TooMany),
            Some(_) if self.streams.len() >= most + LEFT_OVER => Err(Unopened::TooFast),
            Some(_) if short => Err(Unopened::Malformed),
            Some(control) => Ok(control),
        }
    }

    fn unopened(&mut self, id: u32, why: Unopened) -> Result<(), Violation> {
        match why {
            Unopened::Malformed => self.refuse(id, Code::PROTOCOL_ERROR),
            Unopened::TooMany if self.peer.agreed => self.refuse(id, Code::REFUSED_STREAM),
            Unopened::TooMany => {
                self.counted.refused += 1;
                self.turn_away(id, Code::REFUSED_STREAM);
            }
            Unopened::TooFast => {
                let what = "streams are reset faster than they can be ended";
                return Err(Violation::new(Code::ENHANCE_YOUR_CALM, what));
            }
            // The client hears of it by GOAWAY.
            Unopened::Late => {}
        }
        Ok(())
    }

    /// The head of a response, final or not (client).
    fn response<H: Handler<T> + ?Sized>(&mut self, id: u32, end: bool, section: FieldSection, on: &mut H) {
        let too_large = section.size() > self.config.max_head as usize;
        let Some(response) = section.response() else {
            let what = if too_large { "the head of a response is too large" } else { "a malformed response" };
            return self.fault(id, Violation::protocol(what), on);
        };
        let Some(stream) = self.streams.live(id) else { return };
        let head = match judge(&response, stream, end) {
            Ok(head) => head,
            Err(violation) => return self.fault(id, violation, on),
        };
        let length = match head {
            Judged::Interim => {
                stream.interim += 1;
                return on.event(id, &mut stream.user, Event::Interim(response));
            }
            Judged::Final(length) => length,
        };
        stream.length = length;
        stream.remote = if end { Remote::Ended } else { Remote::Content };
        on.event(id, &mut stream.user, Event::Response { response, length, end });
        if end {
            self.streams.settle(id);
        }
    }

    /// Fields behind content, which end it.
    fn trailers_by_peer<H: Handler<T> + ?Sized>(
        &mut self,
        id: u32,
        end: bool,
        section: FieldSection,
        on: &mut H,
    ) {
        let Some(stream) = self.streams.live(id) else { return };
        let whole = stream.length.is_none_or(|left| left == 0);
        let size = section.size();
        let trailers = match section.trailers() {
            Some(trailers) if end && whole => trailers,
            Some(_) if end => return self.fault(id, Violation::protocol("less content than was said"), on),
            Some(_) => return self.fault(id, Violation::protocol("trailers that do not end a message"), on),
            None => return self.fault(id, Violation::protocol("malformed trailers"), on),
        };
        let streams = self.streams.len();
        let Some(stream) = self.streams.live(id) else { return };
        if self.role == Role::Server && !stream.lingers && !on.admit_trailers(&mut stream.user, size, streams)
        {
            // Somebody may have seen the request, so that it is not refused as one that was not looked at.
            self.counted.refused += 1;
            return self.end(id, Code::ENHANCE_YOUR_CALM, Reset::NoRoom, on);
        }
        if !stream.lingers {
            on.event(id, &mut stream.user, Event::End((!trailers.is_empty()).then_some(trailers)));
        }
        self.ended(id);
    }
}

/// Why a request does not begin.
#[derive(Clone, Copy)]
enum Unopened {
    /// It is none, or not as long as it says.
    Malformed,
    /// It comes behind the last one that is served.
    Late,
    /// There are as many streams as may be.
    TooMany,
    /// Streams are reset faster than the user can forget them.
    TooFast,
}

/// What the head of a response is.
enum Judged {
    Interim,
    /// The final one, and the length of its content.
    Final(Option<u64>),
}

/// Whether a head can be the next one on a stream.
fn judge<T>(response: &Response, stream: &Stream<T>, end: bool) -> Result<Judged, Violation> {
    let status = response.status.as_u16();
    if status < 200 {
        // The protocol is changed in another way (RFC 9113 §8.6).
        if end || status == 101 {
            return Err(Violation::protocol("an interim response that cannot be one"));
        }
        if stream.interim >= MOST_INTERIM {
            return Err(Violation::new(Code::ENHANCE_YOUR_CALM, "too many interim responses"));
        }
        return Ok(Judged::Interim);
    }
    let Ok(said) = said_length(&response.fields) else {
        return Err(Violation::protocol("a content-length that cannot be"));
    };
    if stream.bodiless || matches!(status, 204 | 304) {
        return Ok(Judged::Final(Some(0)));
    }
    if end && said.is_some_and(|length| length > 0) {
        return Err(Violation::protocol("less content than was said"));
    }
    Ok(Judged::Final(said))
}

/// The length that a request declares of its content, where it does so in order.
#[must_use]
pub fn declared_length(fields: &Fields) -> Option<u64> {
    content_length(fields.get(Known::ContentLength)?).ok()
}

/// The length that the fields of a message say: `Err` where they say none that can be, or two.
fn said_length(fields: &Fields) -> Result<Option<u64>, ()> {
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
