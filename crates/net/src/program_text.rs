//! The program's own code and constants in memory.
//!
//! The kernel maps 64 KiB of a file or more around each page that is touched (`fault_around_bytes`, and as much as a folio of
//! the page cache has), so a start that runs a function here and there maps most of a program of 25 MB. These pages
//! stay mapped, and count as memory of the process, until someone else needs them.

use std::ffi::c_void;
use std::ops::Range;
use std::{io, slice};

use nix::libc::{MADV_DONTNEED, PF_W, PT_LOAD, dl_iterate_phdr, dl_phdr_info, madvise};

/// Unmaps the pages of the program that nothing may write to, its code and its constants. The page cache keeps them: those
/// that are used again are mapped again, without a read, as they are touched. Call it once, after work that does not come again.
///
/// Pages that another tool has put into anonymous memory (huge pages for code, packed programs) stay: they would be gone.
///
/// # Errors
/// Errors of madvise(2): `EINVAL` where the pages are locked into memory. Or `/proc/self/maps` cannot be read.
pub fn unmap() -> io::Result<()> {
    let backed = of_files(&std::fs::read_to_string("/proc/self/maps")?);
    let parts = read_only_pages().into_iter().flat_map(|pages| overlaps(&pages, &backed));
    for pages in parts.collect::<Vec<_>>() {
        let (start, length) = (pages.start as *mut c_void, pages.len());
        // SAFETY: the pages belong to a segment without the right to write, so no page differs from the file; a thread that reads or
        // runs them meanwhile waits for the fault that maps the same bytes.
        if unsafe { madvise(start, length, MADV_DONTNEED) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The ranges of a list of mappings that files back, and that nothing may write to (proc_pid_maps(5)).
fn of_files(maps: &str) -> Vec<Range<usize>> {
    let range = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (rights, inode) = (fields.next()?, fields.nth(2)?);
        let number = |text| usize::from_str_radix(text, 16).ok();
        (!rights.contains('w') && inode != "0").then_some(number(start)?..number(end)?)
    };
    maps.lines().filter_map(range).collect()
}

/// The parts of a range that are in one of others.
fn overlaps(pages: &Range<usize>, others: &[Range<usize>]) -> Vec<Range<usize>> {
    let parts = others.iter().map(|other| pages.start.max(other.start)..pages.end.min(other.end));
    parts.filter(|part| !part.is_empty()).collect()
}

/// The whole pages of the program's segments that are mapped without the right to write (elf(5), `PT_LOAD`).
fn read_only_pages() -> Vec<Range<usize>> {
    let mut found = Vec::new();
    // SAFETY: `first_object` gets the pointer to `found` that is passed here, while nothing else uses it.
    unsafe { dl_iterate_phdr(Some(first_object), (&raw mut found).cast()) };
    found
}

/// Collects the segments of the first object, which is the program itself (`dl_iterate_phdr(3)`), and ends the walk.
unsafe extern "C" fn first_object(object: *mut dl_phdr_info, _size: usize, found: *mut c_void) -> i32 {
    // SAFETY: both pointers are valid during the call, and `found` is the list of `read_only_pages`.
    let (object, found) = unsafe { (&*object, &mut *found.cast::<Vec<Range<usize>>>()) };
    if object.dlpi_phdr.is_null() {
        return 1;
    }
    // SAFETY: the loader's headers of an object that is not unloaded.
    let headers = unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let page = rustix::param::page_size();
    for header in headers.iter().filter(|header| header.p_type == PT_LOAD && header.p_flags & PF_W == 0) {
        let start = object.dlpi_addr as usize + header.p_vaddr as usize;
        // A segment's first page may hold the end of the one before, and its last page the start of the next.
        let pages = start.next_multiple_of(page)..(start + header.p_memsz as usize) / page * page;
        if !pages.is_empty() {
            found.push(pages);
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn only_what_a_file_backs_is_unmapped() {
        let maps = "1000-3000 r--p 00000000 fe:00 42 /usr/bin/offramp\n3000-5000 r-xp 00000000 00:00 0 \n\
                    5000-6000 rw-p 00002000 fe:00 42 /usr/bin/offramp\n8000-9000 r-xp 00003000 fe:00 42 /usr/bin/off ramp\n";
        let backed = of_files(maps);
        assert_eq!(backed, [0x1000..0x3000, 0x8000..0x9000]);
        assert_eq!(overlaps(&(0x2000..0x8800), &backed), [0x2000..0x3000, 0x8000..0x8800]);
        assert_eq!(overlaps(&(0x3000..0x5000), &backed), []);
    }

    /// Code runs, and constants have their values, before and after; data that was written keeps what was written.
    #[test]
    fn a_program_goes_on_after_its_pages_were_unmapped() {
        static WRITTEN: AtomicU32 = AtomicU32::new(1);
        WRITTEN.store(2, Ordering::Relaxed);
        let code = (read_only_pages as fn() -> Vec<Range<usize>>) as usize;
        assert!(read_only_pages().iter().any(|pages| pages.contains(&code)), "the code of this test");
        let written = (&raw const WRITTEN).addr();
        assert!(!read_only_pages().iter().any(|pages| pages.contains(&written)), "no data");
        let threads: Vec<_> = (0..4)
            .map(|_| thread::spawn(|| (0..1000).map(|n| format!("{n}").len()).sum::<usize>()))
            .collect();
        for _ in 0..20 {
            unmap().unwrap();
        }
        assert!(threads.into_iter().all(|thread| thread.join().unwrap() == 2890));
        assert_eq!(WRITTEN.load(Ordering::Relaxed), 2);
    }
}
