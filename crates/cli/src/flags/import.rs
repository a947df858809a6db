//! Arguments of `offramp import`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use clap::{Args, ValueHint};
use offramp_import::ForeignLanguage;

/// Arguments of `offramp import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// The configuration of the other proxy; what it includes is read too
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "list")]
    pub(crate) files: Vec<PathBuf>,
    /// The language of the file [default: guessed from its name]
    #[arg(long, value_name = "LANGUAGE", value_parser = language())]
    pub(crate) from: Option<ForeignLanguage>,
    /// Write the configuration to this file, which must not exist [default: print it]
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Exit with 0 even if something was not taken
    #[arg(long)]
    pub(crate) partial: bool,
    /// List what was taken, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Print every directive of a language that is known, and how it is handled
    #[arg(long, value_name = "LANGUAGE", value_parser = language(), conflicts_with_all = ["files", "output"])]
    pub(crate) list: Option<ForeignLanguage>,
}

/// The names of languages.
fn language() -> impl clap::builder::TypedValueParser<Value = ForeignLanguage> {
    let words = ForeignLanguage::ALL.iter().map(|language| language.word());
    PossibleValuesParser::new(words.collect::<Vec<_>>()).try_map(|word| {
        let found = ForeignLanguage::ALL.iter().copied().find(|language| language.word() == word);
        found.ok_or("no such language")
    })
}
