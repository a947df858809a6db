//! A program on a pseudo-terminal, and the screen that a user of it sees.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use offramp_testkit::process::require;

use crate::support::instance::PATIENCE;

/// Between two looks at a screen.
const POLL: Duration = Duration::from_millis(20);

/// A shell on a pseudo-terminal of its own.
pub(crate) struct PtyShell {
    script: Child,
    keyboard: ChildStdin,
    home: PathBuf,
    emulator: Arc<Mutex<vt100::Parser>>,
}

impl PtyShell {
    /// Runs this line of sh(1) on a terminal with this many rows and columns; it writes the terminal's name into a file
    /// `terminal` of the home.
    pub(crate) fn start(home: &Path, line: &str, rows: u16, columns: u16) -> Self {
        let mut command = Command::new(require("script", "bsdutils"));
        let line = format!("stty rows {rows} cols {columns}; tty > terminal; {line}");
        command.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]).current_dir(home);
        command.env("HOME", home).env("SHELL", "/bin/sh").env("TERM", "xterm-256color").env("TZ", "UTC");
        command.env_remove("NO_COLOR").env_remove("NOTIFY_SOCKET");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut script = command.spawn().unwrap();
        let (keyboard, mut output) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let emulator = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let screen = Arc::clone(&emulator);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                screen.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..length]);
            }
        });
        Self { script, keyboard, home: home.to_owned(), emulator }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    /// The text of the screen.
    pub(crate) fn text(&self) -> String {
        self.with(vt100::Screen::contents)
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.emulator.lock().unwrap_or_else(PoisonError::into_inner).screen())
    }

    /// Waits until the screen has all of these parts, and gives its text.
    pub(crate) fn until(&self, parts: &[&str]) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.text();
            if parts.iter().all(|part| text.contains(part)) {
                return text;
            }
            assert!(Instant::now() < deadline, "waited in vain for {parts:?} on\n{text}");
            std::thread::sleep(POLL);
        }
    }

    /// Makes the terminal this large.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.emulator.lock().unwrap_or_else(PoisonError::into_inner).screen_mut().set_size(rows, columns);
        let terminal = fs::read_to_string(self.home.join("terminal")).unwrap();
        let size = ["rows".to_owned(), rows.to_string(), "cols".to_owned(), columns.to_string()];
        let done = Command::new("stty").args(["-F", terminal.trim()]).args(size).status().unwrap();
        assert!(done.success(), "{terminal}");
    }

    /// Waits for the end of the shell, and returns its exit code.
    pub(crate) fn code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.script.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.text());
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for PtyShell {
    fn drop(&mut self) {
        // The terminal goes with script, and its end ends what runs on it.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}
