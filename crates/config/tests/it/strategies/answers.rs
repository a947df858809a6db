//! Strategies of what routes answer by themselves, and of their limits.

use offramp_config::model::{
    ErrorPageFiles, FilePath, HttpRules, LimitOverrides, MaintenanceMode, PathRewrite, PlainRules, Size,
    StatusRange,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{distinct, duration, file};

/// Rules that have nothing else.
pub(super) fn answers() -> impl Strategy<Value = HttpRules> {
    let rule = select(vec![(r"^/(\d+)", "/x?y=$1"), (r#"/(?<a>["'])"#, "/${a}$$"), ("", "/")]);
    let rule = rule.prop_map(|(pattern, to)| PathRewrite { pattern: pattern.to_owned(), to: to.to_owned() });
    let files = (error_pages(), option::of(file()));
    (limits(), files, option::of(maintenance()), vec(rule, 0..3)).prop_map(
        |(limits, (error_pages, redirects), maintenance, rewrites)| HttpRules {
            plain: PlainRules { limits, ..PlainRules::default() },
            error_pages,
            redirects,
            maintenance,
            rewrites,
            ..HttpRules::default()
        },
    )
}

fn limits() -> impl Strategy<Value = LimitOverrides> {
    let time = || option::of(duration(1, 1_000_000));
    (time(), time(), option::of(0..1_u64 << 30)).prop_map(|(one, other, rate)| LimitOverrides {
        response_timeout: one,
        request_body_timeout: other,
        min_body_rate: rate.map(Size::new),
        idle_timeout: one,
    })
}

fn maintenance() -> impl Strategy<Value = MaintenanceMode> {
    let allow = vec(select(vec!["10.0.0.0/8", "::1"]), 0..2);
    (duration(1000, 1_000_000), allow).prop_map(|(retry_after, mut allow)| {
        // Each may stand there once.
        distinct(&mut allow);
        MaintenanceMode { retry_after, allow: allow.iter().map(|network| network.parse().unwrap()).collect() }
    })
}

fn error_pages() -> impl Strategy<Value = ErrorPageFiles> {
    let page = (select(vec!["404", "410", "4xx", "5xx"]), file());
    (vec(page, 0..4), any::<bool>()).prop_map(|(pages, intercept)| {
        let mut files: Vec<(StatusRange, FilePath)> =
            pages.into_iter().map(|(status, file)| (status.parse().unwrap(), file)).collect();
        files.sort_by_key(|(status, _)| (status.last() - status.first(), *status));
        ErrorPageFiles { intercept: intercept && !files.is_empty(), files }
    })
}
