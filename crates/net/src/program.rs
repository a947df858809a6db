//! The pages of the program itself in the memory of the process.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Gives back the code that the start needed: reading the configuration, checking it, opening everything. The kernel
/// maps code in pieces of 64 KiB around each page that is needed, so most of the program is resident after the start
/// though little of it is used from then on. It stays in the kernel's cache as long as there is memory for it, and comes
/// back from there when it is called. Gives how many bytes were looked at.
///
/// # Errors
/// What the kernel says; nothing is given back then.
pub fn give_code_back() -> io::Result<usize> {
    let program = fs::read_link("/proc/self/exe")?;
    let mut bytes = 0;
    for range in code(&fs::read_to_string("/proc/self/maps")?, &program) {
        bytes += range.len();
        // SAFETY: the range is a mapping of this program's code, which is never written: position-independent code
        // needs no relocation. What is dropped is read again from the file, which the kernel keeps from being written
        // while it runs.
        let given = unsafe {
            let start = std::ptr::with_exposed_provenance_mut(range.start);
            nix::libc::madvise(start, range.len(), nix::libc::MADV_DONTNEED)
        };
        if given != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(bytes)
}

/// The mappings of `program` that may be executed and not written, in the text of `/proc/self/maps` (proc(5)).
fn code(maps: &str, program: &Path) -> Vec<Range<usize>> {
    let range = |line: &str| {
        let mut fields = line.splitn(6, ' ');
        let (range, permissions) = (fields.next()?, fields.next()?);
        let path = fields.nth(3)?.trim_start();
        let (start, end) = range.split_once('-')?;
        let is_code = permissions == "r-xp" && Path::new(path) == program;
        let [start, end] = [start, end].map(|number| usize::from_str_radix(number, 16).ok());
        is_code.then_some(start?..end?)
    };
    maps.lines().filter_map(range).filter(|range| !range.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_is_given_back() {
        let maps = "\
55d0a0000000-55d0a0100000 r--p 00000000 fe:00 1234                       /usr/local/bin/offramp
55d0a0100000-55d0a1100000 r-xp 00100000 fe:00 1234                       /usr/local/bin/offramp
55d0a1100000-55d0a1160000 r--p 01100000 fe:00 1234                       /usr/local/bin/offramp
55d0a1160000-55d0a1170000 rw-p 01160000 fe:00 1234                       /usr/local/bin/offramp
55d0a2000000-55d0a2021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000010000 r-xp 00000000 fe:00 99                         /usr/lib/libc.so.6
7f0000020000-7f0000030000 r-xp 00000000 00:00 0
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
";
        let found = code(maps, Path::new("/usr/local/bin/offramp"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0], 0x55d0_a010_0000..0x55d0_a110_0000);
        assert!(code("nonsense\n- r-xp\n", Path::new("/x")).is_empty());
    }

    #[test]
    fn the_program_runs_on() {
        assert!(give_code_back().unwrap() > 0);
        let sorted: Vec<u32> = std::collections::BTreeSet::from([3, 1, 2]).into_iter().collect();
        assert_eq!(format!("{sorted:?}"), "[1, 2, 3]");
        assert!(give_code_back().unwrap() > 0);
    }
}
