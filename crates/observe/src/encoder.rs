//! Events as messages in the framing of an output.

use std::time::SystemTime;

use crate::event::Event;
use crate::format::EventStyle;
use crate::sink::{Batch, Facility, Framing, Output, SyslogHead};

/// Turns events into messages for one output.
#[derive(Debug)]
pub(crate) struct Encoder {
    style: EventStyle,
    to: To,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum To {
    Lines,
    Syslog(SyslogHead),
    Journal,
    Nowhere,
}

impl Encoder {
    /// For events in `style` on their way to `output`.
    pub(crate) fn new(style: EventStyle, output: &Output) -> Self {
        let to = match output.framing() {
            Framing::Lines if *output == Output::None => To::Nowhere,
            Framing::Lines => To::Lines,
            Framing::Syslog(head) => To::Syslog(head),
            Framing::Journal => To::Journal,
        };
        Self { style, to, scratch: Vec::new() }
    }

    /// Whether the event has a place in the output; where there is no output, nothing is missed.
    pub(crate) fn has_place(&self, event: &Event) -> bool {
        match self.to {
            To::Lines | To::Syslog(_) => self.style.has_line(event),
            To::Journal | To::Nowhere => true,
        }
    }

    /// Adds the event to the batch, unless it has no line in the format.
    pub(crate) fn add(&mut self, event: &Event, batch: &mut Batch) {
        match &self.to {
            To::Lines => self.style.write(event, &mut batch.bytes),
            To::Syslog(head) => {
                let start = batch.bytes.len();
                let priority = (Facility::Local0, event.severity());
                head.write(&mut batch.bytes, priority, SystemTime::now(), event.kind());
                let message = batch.bytes.len();
                self.style.write(event, &mut batch.bytes);
                if batch.bytes.len() == message {
                    batch.bytes.truncate(start);
                } else {
                    // A message is no line.
                    batch.bytes.pop();
                }
            }
            To::Journal => self.style.write_journal(event, &mut self.scratch, &mut batch.bytes),
            To::Nowhere => {}
        }
        batch.end_message();
    }
}
