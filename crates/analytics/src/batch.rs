//! Identities of batches in the store, by which a batch is committed once however often it is sent.

/// The identity of a batch: the store records the latest one of each source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BatchId {
    /// Increases with every start of the source.
    pub(crate) generation: u64,
    /// Increases with every batch.
    pub(crate) number: u64,
}

impl BatchId {
    pub(crate) fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.generation.to_be_bytes());
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Parses the stored form; `None` for other values.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (generation, number) = bytes.split_first_chunk::<8>()?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        Some(Self { generation: u64::from_be_bytes(*generation), number })
    }
}

/// The prefix of sources that only one process uses; upkeep removes old ones.
pub(crate) const BATCH_SOURCE: &str = "batch-";
