//! Hashes of passwords: argon2id in the PHC string format, and bcrypt.

use std::fmt;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rustls::crypto::aws_lc_rs;

/// The most memory of a hash in KiB: 256 MiB.
const MEMORY_MAX: u32 = 256 << 10;
/// The most passes over the memory, times the memory in KiB: about a second.
const WORK_MAX: u64 = 1 << 20;
/// Maximum number of lanes.
const LANES_MAX: u32 = 16;
/// The costs of bcrypt: twice the time for each. 14 is about a second.
const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 4..=14;
/// The sizes of salts and of what argon2 makes, in bytes.
const SALTS: std::ops::RangeInclusive<usize> = 8..=64;
const TAGS: std::ops::RangeInclusive<usize> = 16..=64;
/// Memory in KiB, passes and lanes of new hashes: what OWASP recommends at the least.
const NEW: ArgonCost = ArgonCost { memory: 19 << 10, passes: 2, lanes: 1 };

/// The algorithm and the parameters of a hash.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(HashScheme);

#[derive(Clone, PartialEq, Eq)]
enum HashScheme {
    Argon2id { memory: u32, passes: u32, lanes: u32, salt: Box<[u8]>, tag: Box<[u8]> },
    Bcrypt(Box<str>),
}

impl fmt::Debug for PasswordHash {
    /// Without the hash, which can be guessed at.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            HashScheme::Argon2id { .. } => "argon2id",
            HashScheme::Bcrypt(_) => "bcrypt",
        })
    }
}

/// The fault of a hash, and the byte at which it is.
pub(super) type Wrong = (usize, String);

impl PasswordHash {
    /// Reads a hash: `$argon2id$v=19$m=…,t=…,p=…$SALT$TAG`, or `$2b$COST$…`.
    ///
    /// # Errors
    /// It is neither, or it would cost too much to check.
    pub(super) fn parse(text: &str) -> Result<Self, Wrong> {
        if let Some(rest) = text.strip_prefix("$argon2id$") {
            return argon2id(rest, "$argon2id$".len()).map(Self);
        }
        if ["$2a$", "$2b$", "$2y$"].iter().any(|prefix| text.starts_with(prefix)) {
            return bcrypt(text).map(Self);
        }
        let known = ["$argon2i$", "$argon2d$", "$apr1$", "$1$", "$5$", "$6$", "$y$", "{SHA}"];
        let wrong = match known.into_iter().find(|prefix| text.starts_with(prefix)) {
            Some(prefix) => format!("hashes that begin with {prefix} are not supported"),
            None => "this is no hash of a password".to_owned(),
        };
        Err((0, format!("{wrong}: write one of argon2id or bcrypt, as `offramp password` prints it")))
    }

    /// Compares with the hash of `password`. Takes as long as the hash wants.
    #[must_use]
    pub(super) fn fits(&self, password: &[u8], blocks: &mut ArgonBlocks) -> bool {
        match &self.0 {
            HashScheme::Argon2id { memory, passes, lanes, salt, tag } => {
                let mut made = vec![0; tag.len()];
                let cost = ArgonCost { memory: *memory, passes: *passes, lanes: *lanes };
                let done = compute(password, salt, cost, &mut made, blocks);
                done && same(&made, tag)
            }
            // As other programs, by the first 72 bytes.
            HashScheme::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
        }
    }

    /// The part in which two hashes of one password differ.
    pub(super) fn identity(&self) -> &[u8] {
        match &self.0 {
            HashScheme::Argon2id { tag, .. } => tag,
            HashScheme::Bcrypt(hash) => hash.as_bytes(),
        }
    }
}

/// Hashes a password with a new salt, as a line of a file of users has it.
///
/// # Errors
/// The system has no memory, or no random numbers.
pub(super) fn hash_password(password: &[u8]) -> Result<String, String> {
    let (mut salt, mut tag) = ([0; 16], [0; 32]);
    let random = aws_lc_rs::default_provider().secure_random;
    random.fill(&mut salt).map_err(|_| "there are no random numbers".to_owned())?;
    let ArgonCost { memory, passes, lanes } = NEW;
    if !compute(password, &salt, NEW, &mut tag, &mut ArgonBlocks::default()) {
        return Err("the password cannot be hashed".to_owned());
    }
    let (salt, tag) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(tag));
    Ok(format!("$argon2id$v=19$m={memory},t={passes},p={lanes}${salt}${tag}"))
}

/// The memory in which argon2 works, kept from hash to hash: a new block for each costs thousands of page faults.
#[derive(Default)]
pub(super) struct ArgonBlocks(Vec<Block>);

impl ArgonBlocks {
    /// A block that holds no memory yet.
    pub(super) fn is_empty(&self) -> bool {
        self.0.capacity() == 0
    }

    /// At least `count` blocks; `None` where the system has no memory. What a hash before has left in them does not
    /// matter: argon2 writes each block before it reads it (RFC 9106 §3.2).
    fn reserve(&mut self, count: usize) -> Option<&mut [Block]> {
        if self.0.len() < count {
            // The old ones go first: the two sizes are never held together.
            self.0 = Vec::new();
            self.0.try_reserve_exact(count).ok()?;
            self.0.resize(count, Block::default());
        }
        self.0.get_mut(..count)
    }
}

/// The cost parameters of argon2id (RFC 9106 §3.1).
#[derive(Clone, Copy)]
struct ArgonCost {
    /// Memory of a hash in KiB.
    memory: u32,
    passes: u32,
    lanes: u32,
}

fn compute(
    password: &[u8],
    salt: &[u8],
    ArgonCost { memory, passes, lanes }: ArgonCost,
    into: &mut [u8],
    blocks: &mut ArgonBlocks,
) -> bool {
    let Ok(params) = Params::new(memory, passes, lanes, Some(into.len())) else { return false };
    let Some(blocks) = blocks.reserve(params.block_count()) else { return false };
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon2.hash_password_into_with_memory(password, salt, into, blocks).is_ok()
}

/// Compares two texts in a time that does not depend on where they differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

/// `at` is where `rest` begins.
fn argon2id(rest: &str, mut at: usize) -> Result<HashScheme, Wrong> {
    let wrong = |at, what: &str| Err((at, what.to_owned()));
    let parts: Vec<&str> = rest.split('$').collect();
    let [version, parameters, salt, tag] = parts[..] else {
        return wrong(at, "a hash of argon2id has four parts behind its name: $v=19$m=…,t=…,p=…$SALT$HASH");
    };
    if version != "v=19" {
        return wrong(at, "the version of argon2id must be v=19");
    }
    at += version.len() + 1;
    let number = |part: Option<&str>, name: &str| {
        let digits = part?.strip_prefix(name)?.strip_prefix('=')?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u32>().ok())?
    };
    let mut fields = parameters.split(',');
    let (memory, passes, lanes) =
        (number(fields.next(), "m"), number(fields.next(), "t"), number(fields.next(), "p"));
    let (Some(memory), Some(passes), Some(lanes), None) = (memory, passes, lanes, fields.next()) else {
        return wrong(at, "the parameters must be m=…,t=…,p=…");
    };
    if memory > MEMORY_MAX || lanes > LANES_MAX || u64::from(memory) * u64::from(passes) > WORK_MAX {
        let most = format!(
            "this hash costs too much to check: at most m={MEMORY_MAX} (KiB), p={LANES_MAX}, and m times t at most {WORK_MAX}"
        );
        return Err((at, most));
    }
    if Params::new(memory, passes, lanes, None).is_err() {
        return wrong(at, "these parameters are too small: m is 8 times p at the least, t and p are 1");
    }
    at += parameters.len() + 1;
    let decoded = |text: &str, sizes: std::ops::RangeInclusive<usize>| {
        STANDARD_NO_PAD.decode(text).ok().filter(|bytes| sizes.contains(&bytes.len()))
    };
    let Some(salt_bytes) = decoded(salt, SALTS) else {
        return wrong(at, "the salt must be 8 to 64 bytes in base64");
    };
    at += salt.len() + 1;
    let Some(tag) = decoded(tag, TAGS) else {
        return wrong(at, "the hash must be 16 to 64 bytes in base64");
    };
    Ok(HashScheme::Argon2id { memory, passes, lanes, salt: salt_bytes.into(), tag: tag.into() })
}

fn bcrypt(text: &str) -> Result<HashScheme, Wrong> {
    const COST: usize = "$2b$".len();
    const REST: usize = "$2b$12$".len();
    let cost = text.get(COST..COST + 2).and_then(|digits| digits.parse::<u32>().ok());
    let Some(cost) = cost.filter(|_| text.get(COST + 2..REST) == Some("$")) else {
        return Err((COST, "the cost of bcrypt has two digits: $2b$12$…".to_owned()));
    };
    if !BCRYPT_COSTS.contains(&cost) {
        let (least, most) = (BCRYPT_COSTS.start(), BCRYPT_COSTS.end());
        return Err((COST, format!("the cost of bcrypt must be {least:02} to {most}")));
    }
    let rest = &text[REST..];
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    if rest.len() != 53 || !rest.bytes().all(sound) || text.parse::<bcrypt::HashParts>().is_err() {
        return Err((REST, "behind the cost of bcrypt come 53 letters of salt and hash".to_owned()));
    }
    Ok(HashScheme::Bcrypt(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `wonderland`, as small as it may be, made by the reference implementation's Python binding.
    const SMALL: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$";

    #[test]
    fn what_is_made_fits_its_password_alone() {
        let text = hash_password("schöne Grüße".as_bytes()).unwrap();
        assert!(text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
        let hash = PasswordHash::parse(&text).unwrap();
        assert!(
            hash.fits("schöne Grüße".as_bytes(), &mut ArgonBlocks::default())
                && !hash.fits(b"", &mut ArgonBlocks::default())
                && !hash.fits(b"schoene", &mut ArgonBlocks::default())
        );
        assert_ne!(hash_password(b"x").unwrap(), hash_password(b"x").unwrap());
    }

    /// RFC 9106 has no vector without a secret; this one is of the reference implementation's tests.
    #[test]
    fn hashes_of_other_programs_fit() {
        let argon2 = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
        assert!(PasswordHash::parse(argon2).unwrap().fits(b"password", &mut ArgonBlocks::default()));
        assert!(
            !PasswordHash::parse(argon2).unwrap().fits(b"differentpassword", &mut ArgonBlocks::default())
        );
        // Of the test vectors of bcrypt's author (crypt_blowfish).
        for (hash, password) in [
            ("$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "U*U"),
            ("$2a$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK", "U*U*"),
        ] {
            let hash = PasswordHash::parse(hash).unwrap();
            assert!(
                hash.fits(password.as_bytes(), &mut ArgonBlocks::default())
                    && !hash.fits(b"U*", &mut ArgonBlocks::default()),
                "{hash:?}"
            );
        }
    }

    /// Of `password` with two sizes of memory, made by the reference implementation.
    #[test]
    fn blocks_are_kept_and_grow() {
        let large = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
        let large = PasswordHash::parse(large).unwrap();
        let mut blocks = ArgonBlocks::default();
        let (small, mut tag) = (ArgonCost { memory: 64, passes: 1, lanes: 1 }, [0; 32]);
        assert!(blocks.is_empty() && compute(b"a", b"somesalt", small, &mut tag, &mut blocks));
        let fresh = tag;
        assert_eq!(blocks.0.len(), 64);
        for _ in 0..2 {
            assert!(large.fits(b"password", &mut blocks) && !large.fits(b"other", &mut blocks));
            assert_eq!(blocks.0.len(), 256);
            assert!(compute(b"a", b"somesalt", small, &mut tag, &mut blocks) && tag == fresh);
        }
    }

    #[test]
    fn what_is_no_hash_or_costs_too_much_is_refused_with_its_place() {
        let tag = "A".repeat(43);
        for (text, at, part) in [
            ("", 0, "no hash"),
            ("secret", 0, "no hash"),
            ("$apr1$x$y", 0, "$apr1$ are not supported"),
            ("$argon2i$v=19$m=8,t=1,p=1$c29tZXNhbHQ$", 0, "$argon2i$"),
            ("$argon2id$v=19", 10, "four parts"),
            ("$argon2id$v=16$m=8,t=1,p=1$c29tZXNhbHQ$", 10, "v=19"),
            ("$argon2id$v=19$m=8,t=1$c29tZXNhbHQ$", 15, "parameters"),
            ("$argon2id$v=19$m=8,t=1,p=+1$c29tZXNhbHQ$", 15, "parameters"),
            ("$argon2id$v=19$m=4294967295,t=1,p=1$c29tZXNhbHQ$", 15, "too much"),
            ("$argon2id$v=19$m=262144,t=5,p=1$c29tZXNhbHQ$", 15, "too much"),
            ("$argon2id$v=19$m=8,t=200000,p=1$c29tZXNhbHQ$", 15, "too much"),
            ("$argon2id$v=19$m=65536,t=1,p=200$c29tZXNhbHQ$", 15, "too much"),
            ("$argon2id$v=19$m=8,t=0,p=1$c29tZXNhbHQ$", 15, "too small"),
            ("$argon2id$v=19$m=8,t=1,p=1$$", 27, "salt"),
            ("$2b$31$", 4, "04 to 14"),
            ("$2b$x", 4, "two digits"),
            ("$2b$10$short", 7, "53 letters"),
        ] {
            let text = if text.ends_with("c29tZXNhbHQ$") { format!("{text}{tag}") } else { text.to_owned() };
            let (place, wrong) = PasswordHash::parse(&text).unwrap_err();
            assert!(place == at && wrong.contains(part), "{text}: {place} {wrong}");
        }
        assert!(PasswordHash::parse(&format!("{SMALL}{tag}")).is_ok());
        assert!(PasswordHash::parse(SMALL).unwrap_err().1.contains("16 to 64"));
    }
}
