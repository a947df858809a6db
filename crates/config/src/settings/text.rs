//! Fields with a text that has the rules of one key alone, read by a function that the row of the key names.

use super::{Misfit, Scalar, WrittenValue, plain, repeated, several};
use crate::error::Problem;

/// A function that reads the text of one key, or of one element of its list.
pub(crate) type Parse<T> = fn(&str) -> Result<T, Problem>;

/// A field whose text is read by a function of its key. The function says in both directions which type `T` has.
pub(crate) trait TextField<T> {
    fn fetch_text(&self, parse: Parse<T>) -> Option<Scalar>;
    fn store_text(&mut self, value: Option<&WrittenValue<'_>>, parse: Parse<T>) -> Vec<Misfit>;
}

/// One text, or the mistake that it is.
fn one<T>(written: &WrittenValue<'_>, parse: Parse<T>, misfits: &mut Vec<Misfit>) -> Option<T> {
    let read = match written.value {
        Scalar::Text(text) => parse(text),
        other => Err(plain::unfit(other)),
    };
    read.map_err(|problem| misfits.push(Misfit { element: None, problem })).ok()
}

impl<T: ToString> TextField<T> for T {
    fn fetch_text(&self, _: Parse<T>) -> Option<Scalar> {
        Some(Scalar::Text(self.to_string()))
    }

    fn store_text(&mut self, value: Option<&WrittenValue<'_>>, parse: Parse<T>) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        if let Some(read) = value.and_then(|value| one(value, parse, &mut misfits)) {
            *self = read;
        }
        misfits
    }
}

impl<T: ToString> TextField<T> for Option<T> {
    fn fetch_text(&self, _: Parse<T>) -> Option<Scalar> {
        self.as_ref().map(|value| Scalar::Text(value.to_string()))
    }

    fn store_text(&mut self, value: Option<&WrittenValue<'_>>, parse: Parse<T>) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        *self = value.and_then(|value| one(value, parse, &mut misfits));
        misfits
    }
}

impl<T: ToString + PartialEq> TextField<T> for Vec<T> {
    fn fetch_text(&self, _: Parse<T>) -> Option<Scalar> {
        Some(Scalar::List(self.iter().map(ToString::to_string).collect()))
    }

    fn store_text(&mut self, value: Option<&WrittenValue<'_>>, parse: Parse<T>) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        if let Some(value) = value {
            let clash = |one: &T, other: &T| (one == other).then(|| repeated(value.name));
            *self = several(value, &mut misfits, |text, _| parse(text), clash);
        }
        misfits
    }
}
