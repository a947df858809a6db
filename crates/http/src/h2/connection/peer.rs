//! SETTINGS of the peer, and its acknowledgement of ours (RFC 9113 §6.5).

use super::receive::PIECE;
use super::{Connection, Cost, FIRST_WINDOW, Handler, Role};
use crate::h2::reader::MOST;
use crate::h2::{Code, FrameHeader, Kind, Setting, Violation, flag, settings};

/// Settings of the peer, except those that encode what we send.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) stream_window: i64,
    pub(super) max_streams: usize,
    /// Maximum size of a field section, each field counted with 32 bytes more (RFC 9113 §6.5.2).
    pub(super) max_head: usize,
    /// Set once the peer's settings have arrived, and once it has acknowledged ours.
    pub(super) settings_received: bool,
    pub(super) settings_acked: bool,
}

impl Peer {
    /// Initial values of RFC 9113 §6.5.2; `max_streams` applies until the peer names its own maximum.
    pub(super) fn before_settings(max_streams: u32) -> Self {
        Self {
            stream_window: FIRST_WINDOW.into(),
            max_streams: max_streams as usize,
            max_head: usize::MAX,
            settings_received: false,
            settings_acked: false,
        }
    }
}

impl<T> Connection<T> {
    /// Records that the peer has acknowledged our settings: later frames obey our window.
    pub(super) fn agree<H: Handler<T> + ?Sized>(&mut self, on: &mut H) {
        let before = self.first_room();
        let first = !std::mem::replace(&mut self.peer.settings_acked, true);
        let less = before - self.first_room();
        if less > 0 {
            self.streams.all().for_each(|stream| stream.flow.room -= less);
        }
        if first && let Some(stall) = self.growth.agree(self.config.shared_window) {
            self.grow_first(stall, on);
        }
    }
}

impl<T: Default> Connection<T> {
    pub(super) fn settings<H: Handler<T> + ?Sized>(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        on: &mut H,
    ) -> Result<(), Violation> {
        self.peer.settings_received = true;
        if head.has(flag::ACK) {
            self.agree(on);
            let wrong =
                Violation::new(Code::FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS with a payload");
            return if payload.is_empty() { Ok(()) } else { Err(wrong) };
        }
        on.spend(Cost::Pieces((payload.len() + self.streams.len()) / PIECE));
        let all = settings(payload).map_err(|code| Violation::new(code, "invalid SETTINGS"))?;
        let mut window = None;
        for setting in all {
            match setting {
                // Only the last value applies (RFC 9113 §6.5.3), because each change visits every stream.
                Setting::InitialWindowSize(size) => window = Some(size),
                Setting::HeaderTableSize(size) => self.outgoing.encoder.limit(size as usize),
                Setting::MaxFrameSize(size) => self.outgoing.max_frame = (size as usize).min(MOST),
                Setting::MaxConcurrentStreams(most) if self.role == Role::Client => {
                    self.peer.max_streams = most as usize;
                }
                Setting::MaxHeaderListSize(size) => self.peer.max_head = size as usize,
                Setting::MaxConcurrentStreams(_)
                | Setting::EnableConnectProtocol
                | Setting::NoRfc7540Priorities => {}
            }
        }
        let pushes = |pair: &[u8; 6]| pair[..2] == [0, 2] && pair[5] == 1;
        if self.role == Role::Client && payload.as_chunks().0.iter().any(pushes) {
            return Err(Violation::protocol("SETTINGS_ENABLE_PUSH from a server"));
        }
        if let Some(size) = window {
            self.stream_windows(size, on)?;
        }
        self.outgoing.output.frame(Kind::Settings, flag::ACK, 0, &[]);
        Ok(())
    }
}
