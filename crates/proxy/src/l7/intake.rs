//! What hyper reads from and writes to on an HTTP/1 connection: the client behind a guard.
//!
//! The guard looks at every byte before hyper sees it. What it refuses never arrives there: reading then
//! waits for ever, and whoever drives the connection finds the refusal in [`Intake::refused`] when the
//! responses to what came before have gone. Interim responses, which hyper has no way to send, are written
//! here between two of its writes, where nothing of it is under way.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use offramp_net::clock::coarse_ms;
use offramp_wire::Http1Fault;
use offramp_wire::http1::{Guard, Head, Outcome, Phase, Version};

use super::interim::Interim;
use super::transport::Transport;

/// What the guard and the requests behind it tell each other.
pub(crate) struct Gate {
    guard: RefCell<Guard>,
    /// Requests that passed the guard.
    pub(crate) passed: Cell<u64>,
    /// When the head that is coming began, in milliseconds of the coarse clock; 0 while none is.
    pub(crate) head_since: Cell<u64>,
    /// When the head that passed last had begun, where it did not come at once; else 0.
    pub(crate) began: Cell<u64>,
    /// The last request that passed.
    pub(crate) last: Cell<Passed>,
    /// When a byte was last read or written, in milliseconds of the coarse clock.
    pub(crate) moved: Cell<u64>,
    /// Whether everything that hyper wrote has reached the kernel.
    pub(crate) drained: Cell<bool>,
    /// Whether a request that was under way has told of what was refused.
    pub(crate) told: Cell<bool>,
    /// Whether reading waits for the answer to a request for another protocol.
    pub(crate) stopped: Cell<Stop>,
    /// Who reads.
    reader: RefCell<Option<Waker>>,
}

/// What is remembered of a request's head.
#[derive(Clone, Copy, Default)]
pub(crate) struct Passed {
    /// Whether another protocol was asked for.
    pub(crate) switches: bool,
    /// Whether the client waits for `100 Continue`.
    pub(crate) expects: bool,
    /// Whether it is HTTP/1.0, which knows no interim responses.
    pub(crate) http10: bool,
}

/// Why nothing more is given to hyper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stop {
    /// More may come.
    #[default]
    Not,
    /// The guard refused what came.
    Refused(Http1Fault),
    /// The client began with HTTP/2.
    Http2,
}

impl Gate {
    pub(crate) fn new(limits: offramp_wire::http1::Limits) -> Rc<Self> {
        Rc::new(Self {
            guard: RefCell::new(Guard::new(limits)),
            passed: Cell::new(0),
            head_since: Cell::new(0),
            began: Cell::new(0),
            last: Cell::default(),
            moved: Cell::new(coarse_ms()),
            drained: Cell::new(true),
            told: Cell::new(false),
            stopped: Cell::default(),
            reader: RefCell::default(),
        })
    }

    /// What the connection is in the middle of.
    pub(crate) fn phase(&self) -> Phase {
        self.guard.borrow().phase()
    }

    /// The answer to a request for another protocol was an ordinary one.
    pub(crate) fn stayed(&self) {
        self.guard.borrow_mut().stayed();
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// The protocol changes.
    pub(crate) fn switched(&self) {
        self.guard.borrow_mut().switched();
    }

    fn note(&self, head: &Head) {
        self.passed.set(self.passed.get() + 1);
        self.last.set(Passed {
            switches: head.switches,
            expects: head.expects_continue,
            http10: head.version == Version::Http10,
        });
    }
}

/// The client's connection as hyper has it.
pub(crate) struct Intake {
    pub(crate) transport: Transport,
    gate: Rc<Gate>,
    interim: Arc<Interim>,
    /// Bytes that the guard has not let pass yet, where they lie in more than one record.
    held: Vec<u8>,
    /// How many bytes at the front of `held`, or of what has arrived, may pass.
    passing: usize,
    /// Bytes of an interim response that the client has not taken yet.
    unsent: Vec<u8>,
    /// How the client's direction ended.
    pub(crate) failed: Option<io::Error>,
    /// Whether it ended in order.
    pub(crate) ended: bool,
}

impl Intake {
    pub(crate) fn new(transport: Transport, gate: Rc<Gate>, interim: Arc<Interim>) -> Self {
        Self {
            transport,
            gate,
            interim,
            held: Vec::new(),
            passing: 0,
            unsent: Vec::new(),
            failed: None,
            ended: false,
        }
    }

    /// What the guard has not let pass.
    pub(crate) fn take_held(&mut self) -> Vec<u8> {
        self.passing = 0;
        std::mem::take(&mut self.held)
    }

    /// Finds out how many bytes may pass, reading more where it must; 0 at the end.
    fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut fresh = !self.held.is_empty();
        loop {
            if self.passing > 0 {
                return Poll::Ready(Ok(self.passing));
            }
            if self.gate.stopped.get() != Stop::Not {
                return Poll::Pending;
            }
            if self.held.is_empty() {
                let over = self.gate.phase() == Phase::Over;
                let bytes = ready!(self.transport.poll_fill(cx))?;
                if bytes.is_empty() {
                    return Poll::Ready(Ok(0));
                }
                self.gate.moved.set(coarse_ms());
                if over {
                    let n = bytes.len();
                    self.transport.consume(n);
                    continue;
                }
                self.passing = inspect(&self.gate, bytes, cx);
                if self.passing == 0 {
                    // What is kept is appended to: the guard needs it in one piece.
                    self.held.extend_from_slice(bytes);
                    let n = bytes.len();
                    self.transport.consume(n);
                }
                continue;
            }
            if fresh {
                fresh = false;
                self.passing = inspect(&self.gate, &self.held, cx);
                continue;
            }
            if self.gate.phase() == Phase::Deciding {
                return Poll::Pending;
            }
            let bytes = ready!(self.transport.poll_fill(cx))?;
            if bytes.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.gate.moved.set(coarse_ms());
            self.held.extend_from_slice(bytes);
            let n = bytes.len();
            self.transport.consume(n);
            fresh = true;
        }
    }

    /// Sends what is left of an interim response.
    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let n = ready!(self.transport.poll_write_vectored(cx, &[IoSlice::new(&self.unsent)]))?;
            self.unsent.drain(..n);
        }
        Poll::Ready(Ok(()))
    }
}

/// Has the guard look at `bytes`, all of which have come and not passed. Stops behind the first message that
/// ends, so that a request is passed on only when the one before it was.
fn inspect(gate: &Gate, bytes: &[u8], cx: &Context<'_>) -> usize {
    let mut guard = gate.guard.borrow_mut();
    let mut pass = 0;
    loop {
        let inspected = guard.inspect(&bytes[pass..]);
        pass += inspected.pass;
        match inspected.outcome {
            Outcome::Wait => break,
            Outcome::Head(head) => {
                gate.note(&head);
                gate.began.set(gate.head_since.replace(0));
                if head.framing.is_empty() {
                    break;
                }
            }
            Outcome::End => break,
            // Nothing that follows is a request; it is dropped by the next read.
            Outcome::Over => break,
            Outcome::Http2 => {
                gate.stopped.set(Stop::Http2);
                break;
            }
            Outcome::Refused(fault) => {
                gate.stopped.set(Stop::Refused(fault));
                break;
            }
        }
    }
    match guard.phase() {
        Phase::Head if gate.head_since.get() == 0 => gate.head_since.set(coarse_ms().max(1)),
        Phase::Deciding => *gate.reader.borrow_mut() = Some(cx.waker().clone()),
        _ => {}
    }
    pass
}

impl Read for Intake {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match ready!(this.poll_pass(cx)) {
            Ok(0) => this.ended = true,
            Ok(pass) => {
                let n = pass.min(buffer.remaining());
                if this.held.is_empty() {
                    let Poll::Ready(bytes) = this.transport.poll_fill(cx)? else {
                        // What was lent a moment ago is still there.
                        return Poll::Pending;
                    };
                    buffer.put_slice(&bytes[..n]);
                    this.transport.consume(n);
                } else {
                    buffer.put_slice(&this.held[..n]);
                    this.held.drain(..n);
                    if this.held.is_empty() {
                        this.held = Vec::new();
                    }
                }
                this.passing = pass - n;
            }
            Err(error) => {
                let kind = error.kind();
                this.failed = Some(error);
                return Poll::Ready(Err(kind.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Intake {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // What was drained begins anew with the head of a response: what comes before it goes first.
        if this.gate.drained.replace(false) && this.interim.is_waiting() {
            this.interim.take(&mut this.unsent);
        }
        ready!(this.poll_unsent(cx))?;
        let n = ready!(this.transport.poll_write_vectored(cx, parts))?;
        this.gate.moved.set(coarse_ms());
        Poll::Ready(Ok(n))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// hyper flushes only when it has written all that it has: the place for interim responses.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.interim.is_waiting() {
            this.interim.take(&mut this.unsent);
            this.gate.drained.set(false);
        }
        ready!(this.poll_unsent(cx))?;
        ready!(this.transport.poll_flush(cx))?;
        this.gate.drained.set(true);
        Poll::Ready(Ok(()))
    }

    /// The end is told by whoever drives the connection.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
