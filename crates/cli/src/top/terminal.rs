//! The terminal: taken over for the screen, and given back however this ends.

use std::io::{self, Stdout};
use std::sync::Once;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// Time within which a signal to the process stops all its threads.
const STOP_DELAY: Duration = Duration::from_millis(100);

/// The terminal of standard output while the screen has it.
pub(super) struct TopTerminal {
    pub(super) screen: Terminal<CrosstermBackend<Stdout>>,
}

impl TopTerminal {
    /// Takes the terminal over. A panic gives it back before its message is written.
    pub(super) fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        enter()?;
        let screen = Terminal::new(CrosstermBackend::new(io::stdout()));
        Ok(Self { screen: screen.inspect_err(|_| give_back())? })
    }

    /// Stops the processes of this job, as the terminal itself does at Ctrl-Z, and takes the terminal over again after
    /// SIGCONT. Where no process could continue them, the kernel stops nothing (an orphaned group, POSIX.1 §2.4.3).
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        rustix::process::kill_current_process_group(rustix::process::Signal::TSTP)?;
        // Another thread may take the signal, and this one goes on until the kernel has stopped it.
        std::thread::sleep(STOP_DELAY);
        self.resume()
    }

    /// Takes the terminal over again: the shell had it, and may have changed its modes.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        give_back();
        enter()?;
        self.redraw()
    }

    /// Has the next drawing write every cell. `Terminal::clear` would ask for the position of the cursor, and another
    /// thread would read the answer.
    pub(super) fn redraw(&mut self) -> io::Result<()> {
        execute!(io::stdout(), Clear(ClearType::All))?;
        self.screen = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for TopTerminal {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide).inspect_err(|_| give_back())
}

/// Restores the modes of the terminal. A terminal that is gone cannot be restored, and needs it not.
fn give_back() {
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
