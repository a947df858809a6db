//! The content of a message on its way: data in pieces, and trailers perhaps (RFC 9110 §6.4, §6.5).

use bytes::Bytes;

use crate::head::Fields;

/// A part of the content of a message.
#[derive(Debug, Clone)]
pub enum Frame {
    /// Some of the data.
    Data(Bytes),
    /// The trailers, which come last.
    Trailers(Box<Fields>),
}

impl Frame {
    /// How many bytes of data it has.
    #[must_use]
    pub fn data_len(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Trailers(_) => 0,
        }
    }

    /// The data.
    ///
    /// # Errors
    /// The trailers, where it is these.
    pub fn into_data(self) -> Result<Bytes, Box<Fields>> {
        match self {
            Self::Data(data) => Ok(data),
            Self::Trailers(trailers) => Err(trailers),
        }
    }
}
