//! The ways from the value of a key to the model.

use crate::settings::FieldBinding;

/// The column of a key that says what reads its value. Only [`KeyReading::Field`] needs no further code: reading,
/// printing, comparing and the check of the default follow from it. The others say why that is not enough.
#[derive(Debug)]
pub(crate) enum KeyReading {
    /// One plain value of a field: `in Route.bandwidth` in the row.
    Field(FieldBinding),
    /// A table whose keys have rows of their own, or a short form of such a table.
    Table,
    /// Several keys together choose a variant of an enum, and no field has the value of one alone:
    /// `own Alternatives`. They are read in `check` and written in `print`.
    Alternatives,
    /// A table with names that users choose, which no row can bind: `own Pairs`. It is read in `check` and written
    /// in `print`.
    Pairs,
    /// The value is replaced by what it names before the model is made: `own Expansion`.
    Expansion,
}

impl KeyReading {
    /// The field of the model that has the value, for keys with one plain value.
    pub(crate) fn field(&self) -> Option<&FieldBinding> {
        match self {
            KeyReading::Field(field) => Some(field),
            _ => None,
        }
    }
}
