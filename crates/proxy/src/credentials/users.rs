//! A file of users: lines `name:hash`.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use super::hash::{PasswordHash, hash_password};

/// The most users of a file.
const USERS_MAX: usize = 100_000;
/// The longest name in bytes.
const NAME_MAX: usize = 255;
/// The longest password that a line is made for, in bytes. A request can have longer ones.
const PASSWORD_MAX: usize = 1024;
/// Hash for names without a user, if there is no user at all: as costly as a new hash.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// The users of a file.
#[derive(Debug)]
pub struct Users {
    by_name: HashMap<Box<str>, usize>,
    hashes: Vec<PasswordHash>,
    /// The hash that all names are checked against where there is no user.
    nobody: PasswordHash,
    /// Chooses the hash that the password of an unknown name is checked against.
    chooser: RandomState,
}

/// The fault of a file of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// Message for the operator.
    pub text: String,
}

/// The line of a user with this password.
///
/// # Errors
/// No line can have this name, the password is empty or longer than 1 KiB, or nothing can be hashed.
pub fn user_line(name: &str, password: &[u8]) -> Result<String, String> {
    if name.contains(':') || name.starts_with('#') {
        return Err("a name has no `:`, and does not begin with `#`".to_owned());
    }
    if password.is_empty() || password.len() > PASSWORD_MAX {
        return Err(format!("a password has 1 to {PASSWORD_MAX} bytes"));
    }
    let line = format!("{name}:{}", hash_password(password)?);
    match Users::parse(&line) {
        Ok(users) if users.len() == 1 => Ok(line),
        Ok(_) => Err("the name is empty".to_owned()),
        Err(mistakes) => Err(mistakes.into_iter().map(|mistake| mistake.text).collect::<Vec<_>>().join(", ")),
    }
}

impl Users {
    /// Reads a file: a user in each line. Empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// Every mistake.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let nobody =
            PasswordHash::parse(NOBODY).map_err(|(at, text)| vec![Mistake { line: 0, column: at, text }])?;
        let (by_name, hashes, chooser) = Default::default();
        let mut users = Self { by_name, hashes, nobody, chooser };
        for (line, number) in text.lines().zip(1..) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            if let Err((at, text)) = users.add(line) {
                // Places are those of ASCII, or the first byte of something.
                let column = line.get(..at).map_or(at, |before| before.chars().count()) + 1;
                mistakes.push(Mistake { line: number, column, text });
            }
        }
        if mistakes.is_empty() { Ok(users) } else { Err(mistakes) }
    }

    /// Number of users with a hash.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns true without users.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// The part of a user's hash in which it differs from that of another password; `None` for names without a user.
    #[must_use]
    pub fn identity(&self, name: &str) -> Option<&[u8]> {
        self.by_name.get(name).map(|at| self.hashes[*at].identity())
    }

    /// The hash that a password of this name is checked against, and true if there is such a user. A name without a
    /// user gets the hash of some user, always the same one, so that the time of a check says nothing.
    pub(super) fn hash(&self, name: &str) -> (PasswordHash, bool) {
        if let Some(at) = self.by_name.get(name) {
            return (self.hashes[*at].clone(), true);
        }
        match self.hashes.len() {
            0 => (self.nobody.clone(), false),
            count => (self.hashes[self.chooser.hash_one(name) as usize % count].clone(), false),
        }
    }

    fn add(&mut self, line: &str) -> Result<(), (usize, String)> {
        let Some((name, hash)) = line.split_once(':') else {
            return Err((0, "a line must be `name:hash`".to_owned()));
        };
        if name.is_empty() || name.len() > NAME_MAX {
            return Err((0, format!("a name has 1 to {NAME_MAX} bytes")));
        }
        if let Some(at) = name.find(|c: char| c.is_control()) {
            return Err((at, "a name has no control characters".to_owned()));
        }
        if name.trim() != name {
            return Err((0, "a name neither begins nor ends with a blank".to_owned()));
        }
        if self.hashes.len() >= USERS_MAX {
            return Err((0, format!("there are more than {USERS_MAX} users")));
        }
        let hash = PasswordHash::parse(hash.trim_end()).map_err(|(at, text)| (name.len() + 1 + at, text))?;
        if self.by_name.insert(name.into(), self.hashes.len()).is_some() {
            return Err((0, "another line has this name".to_owned()));
        }
        self.hashes.push(hash);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::ArgonBlocks;
    use super::*;

    const SMALL: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    const BCRYPT: &str = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

    #[test]
    fn users_have_their_hashes_and_strangers_somebodys() {
        let users = Users::parse(&format!("# staff\n\nanna:{BCRYPT}\r\nbernd müller:{SMALL}\n")).unwrap();
        assert_eq!(users.len(), 2);
        let (anna, known) = users.hash("anna");
        assert!(known && anna.fits(b"U*U", &mut ArgonBlocks::default()));
        assert!(users.hash("bernd müller").1);
        for stranger in ["", "Anna", "carla", "anna "] {
            let (hash, known) = users.hash(stranger);
            assert!(!known && hash == users.hash(stranger).0, "{stranger}");
        }
        let kinds: std::collections::HashSet<_> =
            (0..100).map(|n| format!("{:?}", users.hash(&format!("n{n}")).0)).collect();
        assert_eq!(kinds.len(), 2, "strangers take as long as any user");
        let nobody = Users::parse("").unwrap();
        assert!(nobody.is_empty() && !nobody.hash("anna").1);
    }

    #[test]
    fn lines_are_made_for_names_that_lines_can_have() {
        let line = user_line("anna", b"secret").unwrap();
        assert!(Users::parse(&line).unwrap().hash("anna").0.fits(b"secret", &mut ArgonBlocks::default()));
        for name in ["", "a:b", "#a", " a", "a\nb", &"a".repeat(256)] {
            assert!(user_line(name, b"secret").is_err(), "{name}");
        }
        for password in [&b""[..], &[b'a'; PASSWORD_MAX + 1]] {
            assert!(user_line("anna", password).is_err());
        }
    }

    #[test]
    fn mistakes_have_line_and_column() {
        let text = format!("anna:{BCRYPT}\nx\n:{SMALL}\nb:secret\nanna:{SMALL}\né:$argon2id$v=18$a$b$c\n");
        let mistakes = Users::parse(&text).unwrap_err();
        let places: Vec<_> = mistakes.iter().map(|mistake| (mistake.line, mistake.column)).collect();
        assert_eq!(places, [(2, 1), (3, 1), (4, 3), (5, 1), (6, 13)], "{mistakes:?}");
        assert!(mistakes[3].text.contains("another line"));
        let mistakes = Users::parse(&format!("a\tb:{SMALL}\n b:{SMALL}")).unwrap_err();
        assert_eq!((mistakes[0].column, mistakes[1].column), (2, 1), "{mistakes:?}");
    }
}
