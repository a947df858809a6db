//! Message content in parts: data, and optional trailers (RFC 9110 §6.4, §6.5).

use bytes::Bytes;

use crate::head::Fields;

/// A part of the content of a message.
#[derive(Debug, Clone)]
pub enum Frame {
    /// A piece of the data.
    Data(Bytes),
    /// The trailers, which come last.
    Trailers(Box<Fields>),
}

impl Frame {
    /// Number of data bytes; 0 for trailers.
    #[must_use]
    pub fn data_len(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Trailers(_) => 0,
        }
    }

    /// Returns the data.
    ///
    /// # Errors
    /// The trailers, if this part holds those.
    pub fn into_data(self) -> Result<Bytes, Box<Fields>> {
        match self {
            Self::Data(data) => Ok(data),
            Self::Trailers(trailers) => Err(trailers),
        }
    }
}
