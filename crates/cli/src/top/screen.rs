//! The loop of the screen: messages change the model, and the model is drawn.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Receiver;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

use super::feed::TopFeed;
use super::model::{TopEffect, TopMessage, TopModel};
use super::terminal::TopTerminal;
use super::view::{self, TopPalette};
use crate::ctl::client::AdminClient;
use crate::failure::Failure;
use crate::flags::top::TopArguments;

/// Time between two drawings that no key has caused: requests may end at any rate.
const PAUSE: Duration = Duration::from_millis(250);

/// Shows the screen until it is left, or a signal ends it.
///
/// # Errors
/// No Offramp answers at first, or the terminal cannot be used.
pub(super) fn run(client: AdminClient, arguments: &TopArguments, colour: bool) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&error))?;
    LocalSet::new().block_on(&runtime, async {
        // A wrong address fails with advice before the screen changes.
        client.probe().await?;
        let model = TopModel::new(&client.address().to_string(), arguments.interval.name());
        let (feed, inbox) = TopFeed::start(Rc::new(client), arguments.interval.name());
        let palette = TopPalette { colour };
        let show = async {
            let signals = TopSignals::new()?;
            let terminal = TopTerminal::take()?;
            feed.read_keys();
            TopScreen { model, feed, terminal, palette }.show(inbox, signals).await
        };
        show.await.map_err(|error: io::Error| failed(&error))
    })
}

fn failed(error: &io::Error) -> Failure {
    Failure::runtime(format_args!("error: cannot show anything on this terminal: {error}"))
}

/// Signals that end the screen, and that of the shell that continues it.
struct TopSignals {
    ends: [Signal; 4],
    continues: Signal,
}

impl TopSignals {
    fn new() -> io::Result<Self> {
        let ends = [
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::quit())?,
        ];
        let continues = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;
        Ok(Self { ends, continues })
    }

    /// Waits for a signal; returns true for one that ends the screen.
    async fn next(&mut self) -> bool {
        let [terminate, hangup, interrupt, quit] = &mut self.ends;
        tokio::select! {
            _ = terminate.recv() => true,
            _ = hangup.recv() => true,
            _ = interrupt.recv() => true,
            _ = quit.recv() => true,
            _ = self.continues.recv() => false,
        }
    }
}

/// The model and its surroundings.
struct TopScreen {
    model: TopModel,
    feed: TopFeed,
    terminal: TopTerminal,
    palette: TopPalette,
}

impl TopScreen {
    async fn show(mut self, mut inbox: Receiver<TopMessage>, mut signals: TopSignals) -> io::Result<()> {
        self.draw()?;
        let mut drawn = Instant::now();
        // Time of the next drawing, if something has changed.
        let mut due = None;
        loop {
            let first = tokio::select! {
                message = inbox.recv() => message,
                ends = signals.next() => {
                    if ends {
                        return Ok(());
                    }
                    self.terminal.resume()?;
                    Some(TopMessage::Resize)
                }
                () = sleep_until(due.unwrap_or(drawn)), if due.is_some() => None,
            };
            let mut is_urgent = first.is_none();
            let mut next = first;
            while let Some(message) = next {
                is_urgent |= message.is_by_user();
                if self.take(message)? {
                    return Ok(());
                }
                next = inbox.try_recv().ok();
            }
            self.feed.want(self.model.wanted());
            if is_urgent {
                self.draw()?;
                (drawn, due) = (Instant::now(), None);
            } else {
                due = due.or(Some(drawn + PAUSE));
            }
        }
    }

    /// Passes a message to the model and carries out what follows; returns true at the end.
    fn take(&mut self, message: TopMessage) -> io::Result<bool> {
        match self.model.update(message) {
            None => {}
            Some(TopEffect::Quit) => return Ok(true),
            Some(TopEffect::Suspend) => self.terminal.suspend()?,
            Some(TopEffect::Redraw) => self.terminal.redraw()?,
            Some(TopEffect::Ask(ask)) => self.feed.ask(ask),
        }
        Ok(false)
    }

    fn draw(&mut self) -> io::Result<()> {
        let height = self.terminal.screen.size()?.height;
        self.model.arrange(view::table_height(height));
        self.terminal.screen.draw(|frame| view::draw(frame, &self.model, self.palette))?;
        Ok(())
    }
}
