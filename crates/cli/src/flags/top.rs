//! Arguments of `offramp top`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::ctl::ReachOptions;

/// Arguments of `offramp top`.
#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// The time between two figures
    #[arg(long, short, value_name = "TIME", default_value = "1s")]
    pub(crate) interval: TopInterval,
    /// Print the figures of one interval as tables, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// With --once: print one JSON object, as GET /v1/figures has it
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
    /// No colours, as with NO_COLOR in the environment
    #[arg(long)]
    pub(crate) no_color: bool,
    #[command(flatten)]
    pub(crate) reach: ReachOptions,
}

/// Times between two figures that the admin interface offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopInterval {
    #[value(name = "500ms")]
    HalfSecond,
    #[value(name = "1s")]
    Second,
    #[value(name = "2s")]
    TwoSeconds,
    #[value(name = "5s")]
    FiveSeconds,
    #[value(name = "10s")]
    TenSeconds,
}

impl TopInterval {
    /// The interval as it is typed, which is also the parameter of the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HalfSecond => "500ms",
            Self::Second => "1s",
            Self::TwoSeconds => "2s",
            Self::FiveSeconds => "5s",
            Self::TenSeconds => "10s",
        }
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(match self {
            Self::HalfSecond => 500,
            Self::Second => 1_000,
            Self::TwoSeconds => 2_000,
            Self::FiveSeconds => 5_000,
            Self::TenSeconds => 10_000,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_typed_as_they_are_asked_for() {
        for interval in TopInterval::value_variants() {
            let typed = interval.to_possible_value().unwrap();
            assert_eq!(typed.get_name(), interval.name());
            assert_eq!(offramp_config::parse_duration(interval.name()).unwrap(), interval.duration());
        }
    }
}
