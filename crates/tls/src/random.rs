//! Random bytes for handshakes, drawn from AWS-LC in large pieces.
//!
//! AWS-LC asks the kernel and the CPU for fresh entropy at every call, which costs about as much as an HKDF;
//! a handshake makes three calls for 4 to 32 bytes. Here each thread draws [`POOL`] bytes at a time and hands
//! them out. Bytes that were handed out are wiped.
//!
//! rustls uses this source only for values that become public: the random of its hello, session ids, and the
//! nonce and the age offset of tickets. Key exchange and signatures draw from AWS-LC directly. So nothing is
//! lost if the pool exists twice, in a copy of a running virtual machine. (A forked process would have the
//! pool twice as well; Offramp starts programs, but never runs on in a child.)

use std::cell::RefCell;

use rustls::crypto::{GetRandomFailed, SecureRandom};

/// Bytes drawn at a time: enough for some fifteen handshakes.
const POOL: usize = 1024;

/// Source of random bytes of every configuration.
#[derive(Debug)]
pub(crate) struct BufferedRandom;

thread_local! {
    static BYTES: RefCell<RandomBuffer> = const { RefCell::new(RandomBuffer { bytes: [0; POOL], left: 0 }) };
}

impl SecureRandom for BufferedRandom {
    fn fill(&self, wanted: &mut [u8]) -> Result<(), GetRandomFailed> {
        // The pool is gone during thread exit, and the source never calls back while it fills.
        let taken = BYTES.try_with(|pool| pool.try_borrow_mut().map(|mut pool| pool.take(wanted, draw)));
        match taken {
            Ok(Ok(taken)) => taken,
            _ => draw(wanted),
        }
    }
}

fn draw(bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| GetRandomFailed)
}

/// Buffer of unused random bytes.
struct RandomBuffer {
    bytes: [u8; POOL],
    /// Number of unused bytes, at the front.
    left: usize,
}

impl RandomBuffer {
    /// Takes `wanted.len()` bytes; `draw` provides new ones.
    fn take(
        &mut self,
        wanted: &mut [u8],
        mut draw: impl FnMut(&mut [u8]) -> Result<(), GetRandomFailed>,
    ) -> Result<(), GetRandomFailed> {
        if wanted.len() > POOL / 4 {
            return draw(wanted);
        }
        if wanted.len() > self.left {
            // A failed draw may leave anything in the pool.
            self.left = 0;
            draw(&mut self.bytes)?;
            self.left = POOL;
        }
        let rest = self.left - wanted.len();
        let taken = &mut self.bytes[rest..self.left];
        wanted.copy_from_slice(taken);
        taken.fill(0);
        self.left = rest;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool, and draws in which each byte differs from its neighbours.
    fn pool() -> (RandomBuffer, impl FnMut(&mut [u8]) -> Result<(), GetRandomFailed>) {
        let mut next = 0_u8;
        let draw = move |bytes: &mut [u8]| {
            for byte in bytes {
                next = next % 251 + 1;
                *byte = next;
            }
            Ok(())
        };
        (RandomBuffer { bytes: [0; POOL], left: 0 }, draw)
    }

    #[test]
    fn bytes_are_handed_out_once_and_wiped() {
        let (mut pool, mut draw) = pool();
        let mut draws = 0;
        let mut drawn = Vec::new();
        let mut handed = Vec::new();
        for length in [32, 4, 0, 32, 13, 256, 256, 256, 100, 75].into_iter().cycle().take(100) {
            let mut wanted = vec![0; length];
            let outcome = pool.take(&mut wanted, |bytes| {
                draws += 1;
                draw(bytes)?;
                drawn.push(bytes.to_vec());
                Ok(())
            });
            outcome.unwrap();
            // Unused bytes are at the front, and none that was handed out is left.
            assert_eq!(pool.bytes[..pool.left], drawn.last().unwrap()[..pool.left]);
            assert!(pool.bytes[pool.left..].iter().all(|byte| *byte == 0));
            handed.push((draws, pool.left, wanted));
        }
        for (draw, at, wanted) in &handed {
            assert_eq!(drawn[draw - 1][*at..at + wanted.len()], **wanted, "in the place that was wiped");
        }
        assert!(draws <= 100 * 110 / POOL + 3, "{draws} draws");
    }

    #[test]
    fn long_requests_are_drawn_directly() {
        let (mut pool, mut draw) = pool();
        let mut wanted = [0; POOL / 4 + 1];
        pool.take(&mut wanted, &mut draw).unwrap();
        assert!(wanted.iter().all(|byte| *byte != 0));
        assert_eq!((pool.left, pool.bytes), (0, [0; POOL]));
    }

    #[test]
    fn a_failure_yields_nothing_and_is_temporary() {
        let (mut pool, mut draw) = pool();
        pool.take(&mut [0; 200], &mut draw).unwrap();
        // Enough for these is still there.
        let fails = |bytes: &mut [u8]| {
            bytes[..8].fill(9);
            Err(GetRandomFailed)
        };
        for _ in 0..4 {
            pool.take(&mut [0; 200], fails).unwrap();
        }
        assert!(pool.take(&mut [0; 200], fails).is_err());
        assert!(pool.take(&mut [0; 4], fails).is_err());
        let mut wanted = [0; 4];
        pool.take(&mut wanted, &mut draw).unwrap();
        assert_ne!(wanted, [0; 4]);
    }

    #[test]
    fn each_thread_has_bytes_of_its_own() {
        let take = || {
            let mut bytes = [0; 64];
            BufferedRandom.fill(&mut bytes).unwrap();
            bytes
        };
        let mut all: Vec<[u8; 64]> = (0..4).map(|_| take()).collect();
        all.extend((0..4).map(|_| std::thread::spawn(take).join().unwrap()));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 8);
    }
}
