//! Content of the peer, and windows in both directions (RFC 9113 §5.2, §6.1, §6.9).

use super::streams::{Blocked, Remote};
use super::{Connection, Event, FIRST_WINDOW, Handler, LAST, Role};
use crate::h2::reader::DataPiece;
use crate::h2::{Code, FrameHeader, Framed, Violation, flag};

/// How large a window may become (RFC 9113 §6.9.1).
const MOST_WINDOW: i64 = LAST as i64;

impl<T> Connection<T> {
    /// What the peer may send on a new stream: until it has heard our settings, the window of the RFC (RFC 9113 §6.9.2).
    /// A server has heard them when it gets the first request, which comes behind them.
    pub(super) fn first_room(&self) -> i64 {
        let window = self.config.stream_window;
        let heard = self.peer.agreed || self.role == Role::Client;
        if heard { window.into() } else { window.max(FIRST_WINDOW).into() }
    }

    /// The peer has heard our settings. Frames behind that keep to our window.
    pub(super) fn agree(&mut self) {
        if !self.peer.agreed {
            self.growth.agree();
        }
        let before = self.first_room();
        self.peer.agreed = true;
        let less = before - self.first_room();
        if less > 0 {
            self.streams.all().for_each(|stream| stream.flow.room -= less);
        }
    }
}

impl<T: Default> Connection<T> {
    /// Some of the data of a frame, or a frame without any.
    pub(super) fn data_piece<H: Handler<T> + ?Sized>(
        &mut self,
        data: &DataPiece,
        bytes: &[u8],
        on: &mut H,
    ) -> Result<(), Violation> {
        let head = &data.head;
        if data.first {
            self.allow(head, data.framed.length)?;
            if head.stream == 0 {
                return Err(Violation::protocol("DATA on no stream"));
            }
            self.data_begins(head, data.framed, on)?;
        }
        self.frames += u64::from(data.last);
        let ends = data.last && head.has(flag::END_STREAM);
        let shared = self.config.shared_window;
        // No more than a frame.
        let n = bytes.len() as u32;
        let Some(stream) = self.streams.live(head.stream).filter(|stream| stream.remote == Remote::Content)
        else {
            // Nobody has it. Where the window is not shared it was given back at once.
            if shared {
                self.give_back(n);
            }
            return Ok(());
        };
        let wanted = stream.flow.wanted;
        if n > 0 && wanted {
            stream.flow.held += n;
            if stream.flow.apart {
                self.flow.apart += n;
            }
            on.event(head.stream, &mut stream.user, Event::Data(bytes));
        }
        if !wanted {
            stream.flow.dropped = stream.flow.dropped.saturating_add(n);
            stream.flow.owed += n;
        }
        if ends {
            if stream.length.is_none_or(|left| left == 0) {
                if !stream.lingers {
                    on.event(head.stream, &mut stream.user, Event::End(None));
                }
                self.ended(head.stream);
            } else {
                self.fault(head.stream, Violation::protocol("less content than was said"), on);
            }
        }
        if !wanted {
            self.say_window(head.stream);
            if shared {
                self.give_back(n);
            }
        }
        Ok(())
    }

    fn data_begins<H: Handler<T> + ?Sized>(
        &mut self,
        head: &FrameHeader,
        framed: Framed,
        on: &mut H,
    ) -> Result<(), Violation> {
        let id = head.stream;
        // A head has 24 bits of length.
        let (all, padding) = (head.length as i64, (head.length - framed.length) as u32);
        self.flow.room -= all;
        if self.flow.room < 0 {
            return Err(Violation::new(Code::FLOW_CONTROL_ERROR, "more data than the connection's window"));
        }
        self.give_back(if self.config.shared_window { padding } else { head.length as u32 });
        if self.is_idle(id) {
            return Err(Violation::protocol("DATA on a stream that was not opened"));
        }
        let Some(stream) = self.streams.live(id) else {
            self.late_data(id);
            return Ok(());
        };
        match stream.remote {
            Remote::Content => {}
            Remote::Head => {
                self.fault(id, Violation::protocol("DATA before the head of a response"), on);
                return Ok(());
            }
            Remote::Ended => {
                let what = "DATA behind the end of a stream";
                self.fault(id, Violation::new(Code::STREAM_CLOSED, what), on);
                return Ok(());
            }
        }
        let flow = &mut stream.flow;
        flow.room -= all;
        if flow.room < 0 {
            return Err(Violation::new(Code::FLOW_CONTROL_ERROR, "more data than the stream's window"));
        }
        flow.owed += padding;
        self.growth.came(id, head.length);
        if flow.owed >= flow.target / 2 && flow.is_open() && !head.has(flag::END_STREAM) {
            let owed = std::mem::take(&mut flow.owed);
            flow.room += i64::from(owed);
            self.output.window(id, owed);
        }
        let long = stream.length.is_some_and(|left| left < framed.length as u64);
        stream.length = stream.length.map(|left| left.saturating_sub(framed.length as u64));
        if framed.length > 0 {
            self.counted.traffic.data(framed.length);
        }
        if long {
            self.fault(id, Violation::protocol("more content than was said"), on);
        }
        Ok(())
    }

    /// WINDOW_UPDATE came; stream 0 is the connection.
    pub(super) fn window_grows<H: Handler<T> + ?Sized>(
        &mut self,
        id: u32,
        more: u32,
        on: &mut H,
    ) -> Result<(), Violation> {
        if id == 0 {
            if more == 0 {
                return Err(Violation::protocol("WINDOW_UPDATE of 0"));
            }
            self.flow.window += i64::from(more);
            if self.flow.window > MOST_WINDOW {
                return Err(Violation::new(Code::FLOW_CONTROL_ERROR, "the connection's window is too large"));
            }
            self.streams.call(self.flow.window, on);
            return Ok(());
        }
        if self.is_idle(id) {
            return Err(Violation::protocol("WINDOW_UPDATE on a stream that was not opened"));
        }
        let window = self.flow.window;
        let Some(stream) = self.streams.live(id) else { return Ok(()) };
        stream.flow.window += i64::from(more);
        if more == 0 {
            self.fault(id, Violation::protocol("WINDOW_UPDATE of 0"), on);
        } else if stream.flow.window > MOST_WINDOW {
            self.fault(id, Violation::new(Code::FLOW_CONTROL_ERROR, "the stream's window is too large"), on);
        } else if stream.flow.blocked == Blocked::Windows && stream.flow.window > 0 {
            if window > 0 {
                stream.flow.blocked = Blocked::No;
                on.event(id, &mut stream.user, Event::Writable);
            } else {
                self.streams.window_awaited = true;
            }
        }
        Ok(())
    }

    /// The peer gives streams another window at their begin, which changes those that are open (RFC 9113 §6.9.2).
    pub(super) fn stream_windows<H: Handler<T> + ?Sized>(
        &mut self,
        size: u32,
        on: &mut H,
    ) -> Result<(), Violation> {
        let more = i64::from(size) - std::mem::replace(&mut self.peer.stream_window, size.into());
        for stream in self.streams.all().filter(|stream| stream.is_live() && !stream.sent_all) {
            stream.flow.window += more;
            if stream.flow.window > MOST_WINDOW {
                return Err(Violation::new(Code::FLOW_CONTROL_ERROR, "a stream's window is too large"));
            }
        }
        if more > 0 {
            self.streams.window_awaited = true;
            self.streams.call(self.flow.window, on);
        }
        Ok(())
    }
}
