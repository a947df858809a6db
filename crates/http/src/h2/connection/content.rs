//! Content of the peer, and windows in both directions (RFC 9113 §5.2, §6.1, §6.9).

use super::streams::{Blocked, InitialWindows};
use super::{Connection, Event, FIRST_WINDOW, Handler, LAST, Role};
use crate::h2::reader::DataPiece;
use crate::h2::{Code, FrameHeader, Framed, Kind, Violation, flag};

/// Maximum size of a window (RFC 9113 §6.9.1).
const MOST_WINDOW: i64 = LAST as i64;

impl<T> Connection<T> {
    /// Receive window of a new stream: until the peer has seen our settings, at least the initial window of RFC 9113
    /// §6.9.2. A server has seen them by the time it receives the first request, which follows them.
    pub(super) fn first_room(&self) -> i64 {
        let window = self.config.stream_window;
        let acked = self.peer.settings_acked || self.role == Role::Client;
        if acked { window.into() } else { window.max(FIRST_WINDOW).into() }
    }

    /// Windows of a new stream.
    pub(super) fn initial_windows(&self) -> InitialWindows {
        InitialWindows {
            send: self.peer.stream_window,
            receive: self.first_room(),
            target: self.config.stream_window,
        }
    }
}

impl<T: Default> Connection<T> {
    /// Handles a piece of a DATA frame, or a frame without data.
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
                return Err(Violation::protocol("DATA on stream 0"));
            }
            self.data_begins(head, data.framed, on)?;
        }
        self.incoming.frames += u64::from(data.last);
        let ends = data.last && head.has(flag::END_STREAM);
        let shared = self.config.shared_window;
        // At most the size of a frame.
        let n = bytes.len() as u32;
        let Some(stream) = self.streams.receiving(head.stream) else {
            // No stream takes the data. An unshared window was reopened already.
            if shared {
                self.give_back(n);
            }
            return Ok(());
        };
        let wanted = stream.flow.dropped.is_none();
        if n > 0 && wanted {
            stream.flow.held += n;
            if stream.flow.apart {
                self.flow.apart += n;
            }
            on.event(head.stream, &mut stream.user, Event::Data(bytes));
        }
        if let Some(dropped) = &mut stream.flow.dropped {
            *dropped = dropped.saturating_add(n);
            stream.flow.owed += n;
        }
        if ends {
            if stream.length.is_none_or(|left| left == 0) {
                if !stream.lingers {
                    on.event(head.stream, &mut stream.user, Event::End(None));
                }
                self.close_window(head.stream);
            } else {
                let short = Violation::protocol("less content than declared by content-length");
                self.fault(head.stream, short, on);
            }
        }
        if !wanted {
            self.announce_window(head.stream);
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
        // The length of a frame has 24 bits.
        let (all, padding) = (head.length as i64, (head.length - framed.length) as u32);
        let shared = self.config.shared_window;
        self.flow.room -= all;
        if self.flow.room < 0 {
            return Err(Violation::new(Code::FLOW_CONTROL_ERROR, "more data than the connection's window"));
        }
        self.give_back(if shared { padding } else { head.length as u32 });
        let Some(stream) = self.streams.receiving(id) else {
            return self.misplaced(id, Kind::Data, on);
        };
        if self.role == Role::Client && !stream.responded {
            self.fault(id, Violation::protocol("DATA before the head of a response"), on);
            return Ok(());
        }
        let flow = &mut stream.flow;
        flow.room -= all;
        if flow.room < 0 {
            return Err(Violation::new(Code::FLOW_CONTROL_ERROR, "more data than the stream's window"));
        }
        flow.owed += padding;
        if !self.peer.settings_acked && shared {
            self.growth.came_early(id);
        }
        flow.came = self.growth.came(id, head.length);
        if flow.owed >= flow.worth_announcing() && flow.is_open() && !head.has(flag::END_STREAM) {
            let owed = std::mem::take(&mut flow.owed);
            flow.room += i64::from(owed);
            self.outgoing.output.window(id, owed);
        }
        let long = stream.length.is_some_and(|left| left < framed.length as u64);
        stream.length = stream.length.map(|left| left.saturating_sub(framed.length as u64));
        if framed.length > 0 {
            self.counted.traffic.data(framed.length);
        }
        if long {
            self.fault(id, Violation::protocol("more content than declared by content-length"), on);
        }
        Ok(())
    }

    /// Handles WINDOW_UPDATE of the connection.
    pub(super) fn connection_window_grows<H: Handler<T> + ?Sized>(
        &mut self,
        more: u32,
        on: &mut H,
    ) -> Result<(), Violation> {
        if more == 0 {
            return Err(Violation::protocol("WINDOW_UPDATE of 0"));
        }
        self.flow.window += i64::from(more);
        if self.flow.window > MOST_WINDOW {
            return Err(Violation::new(Code::FLOW_CONTROL_ERROR, "the connection's window is too large"));
        }
        self.streams.call(self.flow.window, on);
        Ok(())
    }

    /// Handles WINDOW_UPDATE of a stream.
    pub(super) fn stream_window_grows<H: Handler<T> + ?Sized>(&mut self, id: u32, more: u32, on: &mut H) {
        let window = self.flow.window;
        let Some(stream) = self.streams.live(id) else { return };
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
    }

    /// Handles a change of the initial window, which applies to open streams, too (RFC 9113 §6.9.2).
    pub(super) fn stream_windows<H: Handler<T> + ?Sized>(
        &mut self,
        size: u32,
        on: &mut H,
    ) -> Result<(), Violation> {
        let more = i64::from(size) - std::mem::replace(&mut self.peer.stream_window, size.into());
        for stream in self.streams.all().filter(|stream| stream.state().sends()) {
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
