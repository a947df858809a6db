//! Sections of `--help` and of the man page beside the options: one table for both.
//!
//! [`flags`](crate::flags) describes the options themselves.

use std::fmt::Write as _;

/// A titled list of terms, each with its explanation.
pub(crate) struct HelpSection {
    /// Title as in `--help`; the man page prints it in capitals.
    pub(crate) title: &'static str,
    /// Pairs of a term and its explanation.
    pub(crate) entries: &'static [(&'static str, &'static str)],
    /// Set if the terms are commands, which are printed on lines of their own.
    pub(crate) commands: bool,
}

/// All sections, in the order of the output.
pub(crate) const SECTIONS: &[HelpSection] = &[
    HelpSection {
        title: "Examples",
        commands: true,
        entries: &[
            (
                "offramp to 3000",
                "https://localhost:8443 for the application on 127.0.0.1:3000, for this machine only",
            ),
            ("offramp to 3000 --public", "The same for other machines too"),
            (
                "offramp to unix:/run/app.sock --listen '[::]:443' --name app.home.arpa",
                "Another port and name",
            ),
            ("offramp to 3000 --http", "HTTP/2 for clients, and one event per request"),
            ("offramp to 3000 --cert site.pem --key site.key", "Your own certificate"),
            ("offramp to 3000 --send-proxy v2", "Pass the addresses of clients to the application"),
            ("offramp serve ./www", "The files below a directory at https://localhost:8443"),
            (
                "offramp serve ./www --name www.example.org --acme me@example.org",
                "A web site for everyone, with a certificate of Let's Encrypt",
            ),
            ("offramp demo", "A built-in application on https://localhost:8443"),
            (
                "offramp setup --name app.example.org --app 3000 --email me@example.org",
                "A fresh machine: configuration, user and service; --undo takes it back",
            ),
            ("offramp ca", "How to make clients trust the certificates of the local CA"),
            ("offramp ca trust", "Have this machine trust them: the system, browsers and Java"),
            ("offramp cert list", "The certificates of a configuration, and when they end"),
            ("offramp cert inspect example.org:443", "A server's certificates, and what is wrong with them"),
            (
                "offramp cert order example.org --cert site.pem --key site.key",
                "A certificate of Let's Encrypt, without a server",
            ),
            ("offramp cert renew example.org", "Have the running Offramp renew a certificate now"),
            ("offramp ui", "The page of the running Offramp, in a browser"),
            ("offramp top", "What the running Offramp does now, in this terminal"),
            ("offramp top --once --json", "The same for a script: rates of one second"),
            ("offramp notify test", "Send a message to each receiver of notifications"),
            ("offramp ctl status", "What the running Offramp does"),
            ("offramp ctl plan new.toml", "What another configuration would change"),
            ("offramp ctl apply new.toml --confirm 60s", "Apply it; it is taken back unless you confirm it"),
            ("offramp ctl server drain apps 10.0.0.7:3000", "Give a server nothing new"),
            ("offramp check -c offramp.toml", "Report every mistake in a configuration"),
            ("offramp fmt --overwrite offramp.toml", "Lay the file out in the canonical form"),
            (
                "offramp compare --old http://127.0.0.1:8080 --new https://localhost:8443 --log access.log",
                "Whether two servers answer the same, by recorded requests",
            ),
            ("offramp schema", "A JSON Schema of the configuration, for editors"),
            ("offramp run -c offramp.toml", "Several applications, as a service"),
            ("offramp to 3000 --http --log-store sqlite:access.db", "Keep requests in a store, for queries:"),
            ("offramp logs top pages --since 24h --store sqlite:access.db", "The pages of a day"),
            (
                "offramp logs ingest --format vhost --follow /var/log/nginx/access.log",
                "Follow the log of another server",
            ),
            ("offramp logs top clients --by bytes --exclude-networks 10.0.0.0/8 --json", "Who uses how much"),
        ],
    },
    HelpSection {
        title: "Exit codes",
        commands: false,
        entries: &[
            ("0", "Success: stopped by a signal, or no mistake found"),
            (
                "1",
                "Something failed: an address is in use, a file cannot be written, `fmt --check` finds fault",
            ),
            ("2", "The command line, the configuration or a file that it names is wrong; nothing runs"),
        ],
    },
    HelpSection {
        title: "Signals",
        commands: false,
        entries: &[
            ("TERM, INT", "Stop accepting, let connections finish (drain_timeout), exit; twice: at once"),
            ("HUP", "Read configuration and certificates again; keep the old ones if they are wrong"),
            ("USR1", "Reopen log files, after they were renamed"),
            ("USR2", "Have the program on disk take over without losing a connection"),
        ],
    },
    HelpSection {
        title: "Environment",
        commands: false,
        entries: &[
            ("XDG_STATE_HOME", "The default state_dir, if not root, is $XDG_STATE_HOME/offramp"),
            ("HOME", "If that is not set, it is $HOME/.local/state/offramp"),
            ("NOTIFY_SOCKET", "The socket on which systemd learns that the service is ready"),
            ("LISTEN_FDS", "Sockets that systemd has opened, with LISTEN_PID and LISTEN_FDNAMES"),
            ("WATCHDOG_USEC", "How often systemd wants a sign of life, with WATCHDOG_PID"),
            ("JOURNAL_STREAM", "If set, messages omit time and level, which the journal adds"),
        ],
    },
    HelpSection {
        title: "Files",
        commands: false,
        entries: &[
            ("./offramp.toml", "The configuration of `run` and `check`, if it exists"),
            ("/etc/offramp/offramp.toml", "Else the configuration"),
            ("/var/lib/offramp", "The default state_dir of root"),
            ("STATE_DIR/running.toml", "The configuration in force, for `run --resume`"),
            ("STATE_DIR/log-store.spool", "Events that wait for the log store"),
            ("/var/lib/offramp-setup.json", "What `setup` did, for `setup --undo`"),
            ("STATE_DIR/ca/ca.pem", "The local CA's certificate, for clients to trust"),
        ],
    },
];

/// Renders the sections for the end of `offramp --help`.
pub(crate) fn text() -> String {
    let mut out = String::new();
    for section in SECTIONS {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "{}:", section.title);
        let width = section.entries.iter().map(|(term, _)| term.len()).max().unwrap_or(0);
        for (term, explanation) in section.entries {
            let _ = if section.commands {
                writeln!(out, "  {term}\n      {explanation}")
            } else {
                writeln!(out, "  {term:width$}  {explanation}")
            };
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser as _;

    use super::SECTIONS;
    use crate::flags::Cli;

    /// Splits a command line into words; quoted parts must not contain blanks.
    fn parses(line: &str) {
        let words = line.split_whitespace().map(|word| word.trim_matches('\''));
        let parsed = Cli::try_parse_from(words);
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
    }

    #[test]
    fn every_example_is_a_command_line_that_parses() {
        for (command, _) in SECTIONS.iter().filter(|section| section.commands).flat_map(|s| s.entries) {
            parses(command);
        }
    }

    /// The lines of blocks of a shell in the Markdown pages of a folder and below it, without prompts.
    fn shell_lines(folder: &Path, lines: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                shell_lines(&path, lines);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                lines.extend(shell_lines_of(&std::fs::read_to_string(path).unwrap()));
            }
        }
    }

    fn shell_lines_of(page: &str) -> Vec<String> {
        let blocks = page.split("\n```").skip(1).step_by(2);
        let commands = blocks.filter_map(|block| match block.split_once('\n')? {
            ("sh", text) => Some(text.lines().map(str::to_owned).collect::<Vec<_>>()),
            ("console", text) => {
                Some(text.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect())
            }
            _ => None,
        });
        commands.flatten().collect()
    }

    #[test]
    fn every_command_of_the_documentation_parses() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut lines = shell_lines_of(&std::fs::read_to_string(root.join("README.md")).unwrap());
        shell_lines(&root.join("docs"), &mut lines);
        let commands: Vec<&str> = lines
            .iter()
            .map(|line| line.strip_prefix("sudo ").unwrap_or(line))
            .filter(|line| line.starts_with("offramp ") && !line.contains('\''))
            .filter_map(|line| line.split(" 2>").next()?.split(['#', '|', '>', '&', ';']).next())
            .collect();
        assert!(commands.len() > 80, "{commands:?}");
        commands.into_iter().for_each(parses);
    }

    #[test]
    fn it_fits_a_terminal() {
        for line in super::text().lines() {
            assert!(line.len() <= 100, "{line}");
        }
    }
}
