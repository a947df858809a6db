//! Events as messages in the framing of an output.

use std::time::SystemTime;

use crate::event::Event;
use crate::format::EventStyle;
use crate::sink::{Batch, Facility, Output, OutputFraming, SyslogHead, SyslogPriority};

/// Turns events into messages for one output.
#[derive(Debug)]
pub(crate) struct EventEncoder {
    style: EventStyle,
    to: EventFraming,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum EventFraming {
    Lines,
    Syslog(SyslogHead),
    Journal,
    Nowhere,
}

impl EventEncoder {
    /// An encoder for events of `style` in the framing of `output`.
    pub(crate) fn new(style: EventStyle, output: &Output) -> Self {
        let to = match output.framing() {
            OutputFraming::Lines if *output == Output::None => EventFraming::Nowhere,
            OutputFraming::Lines => EventFraming::Lines,
            OutputFraming::Syslog(head) => EventFraming::Syslog(head),
            OutputFraming::Journal => EventFraming::Journal,
        };
        Self { style, to, scratch: Vec::new() }
    }

    /// Returns `true` if the format has a line for this event. Without an output nothing counts as missing.
    pub(crate) fn has_place(&self, event: &Event) -> bool {
        match self.to {
            EventFraming::Lines | EventFraming::Syslog(_) => self.style.has_line(event),
            EventFraming::Journal | EventFraming::Nowhere => true,
        }
    }

    /// Appends the event to the batch, if the format has a line for it.
    pub(crate) fn add(&mut self, event: &Event, batch: &mut Batch) {
        match &self.to {
            EventFraming::Lines => self.style.write(event, &mut batch.bytes),
            EventFraming::Syslog(head) => {
                let start = batch.bytes.len();
                let priority = SyslogPriority { facility: Facility::Local0, severity: event.severity() };
                head.write(&mut batch.bytes, priority, SystemTime::now(), event.kind());
                let message = batch.bytes.len();
                self.style.write(event, &mut batch.bytes);
                if batch.bytes.len() == message {
                    batch.bytes.truncate(start);
                } else {
                    // The newline is not part of a framed message.
                    batch.bytes.pop();
                }
            }
            EventFraming::Journal => self.style.write_journal(event, &mut self.scratch, &mut batch.bytes),
            EventFraming::Nowhere => {}
        }
        batch.end_message();
    }
}
