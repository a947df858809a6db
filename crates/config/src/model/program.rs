//! Programs that get notifications.

use std::path::{Path, PathBuf};

use crate::error::{Problem, shown};

/// A program that gets each message on its standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifyProgram {
    /// The program and its arguments.
    pub command: ProgramCommand,
}

/// The absolute path of a program, and its arguments. No shell reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramCommand {
    path: PathBuf,
    arguments: Vec<String>,
}

impl ProgramCommand {
    /// The most bytes of a path and arguments: one message to the process that starts programs has them.
    pub const LONGEST: usize = 1800;

    /// Takes the words of a command.
    ///
    /// # Errors
    /// There is no path, it is not absolute, or the words are too long.
    pub fn read(words: &[String]) -> Result<Self, Problem> {
        let help = "write such as [\"/usr/local/bin/tell\", \"--urgent\"]: no shell reads it";
        let [path, arguments @ ..] = words else {
            return Err(Problem::new("a program has a path").help(help));
        };
        if !path.starts_with('/') || path.ends_with('/') {
            let problem = format!("`{}` is no absolute path of a program", shown(path));
            return Err(Problem::new(problem).help(help));
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err(Problem::new("a program and its arguments have no character NUL").help(help));
        }
        if words.iter().map(|word| word.len() + 1).sum::<usize>() > Self::LONGEST {
            let problem = format!("the program and its arguments are longer than {} bytes", Self::LONGEST);
            return Err(Problem::new(problem).help("put them into a script, and name that"));
        }
        Ok(Self { path: PathBuf::from(path), arguments: arguments.to_vec() })
    }

    /// The program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The arguments after its name.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The path and the arguments, as they are written.
    pub fn words(&self) -> Vec<String> {
        let path = self.path.to_string_lossy().into_owned();
        [path].into_iter().chain(self.arguments.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<ProgramCommand, Problem> {
        ProgramCommand::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_is_a_path_and_arguments_as_they_are() {
        let command = read(&["/bin/tell", "", "$(id)", "--to=a b"]).unwrap();
        assert_eq!(command.path(), Path::new("/bin/tell"));
        assert_eq!(command.arguments(), ["", "$(id)", "--to=a b"]);
        assert_eq!(command.words(), ["/bin/tell", "", "$(id)", "--to=a b"]);
    }

    #[test]
    fn mistakes_of_commands() {
        let long = "x".repeat(ProgramCommand::LONGEST);
        for (words, mistake) in [
            (&[][..], "has a path"),
            (&[""], "no absolute path"),
            (&["tell"], "no absolute path"),
            (&["./tell"], "no absolute path"),
            (&["/bin/"], "no absolute path"),
            (&["/bin/tell --urgent\0"], "NUL"),
            (&["/bin/tell", &long], "longer than"),
        ] {
            let problem = read(words).unwrap_err();
            assert!(problem.message().contains(mistake), "{words:?}: {problem:?}");
        }
    }
}
