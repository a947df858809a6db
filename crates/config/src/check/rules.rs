//! The HTTP keys of a route: rewriting, changes to headers, HSTS, and fixed responses.

use super::{ValueReader, headers, pages, rewrites};
use crate::error::Problem;
use crate::model::http::{REDIRECTS, WITHOUT_BODY};
use crate::model::{FixedResponse, Hsts, HttpRules, PrefixRewrite, RedirectResponse};
use crate::raw::Section;

/// Adds the keys of HTTP that have parts or conflicts to the `plain` ones.
pub(super) fn rules(section: &Section, plain: HttpRules, reader: &mut ValueReader<'_, '_>) -> HttpRules {
    let hsts = hsts(section, reader);
    let response_headers = headers::changes(section, "route.response_headers", reader);
    let said = response_headers.set.iter().chain(&response_headers.add);
    if hsts.is_some() && said.into_iter().any(|(name, _)| name.as_str() == "strict-transport-security") {
        let problem = Problem::new("`hsts` and `response_headers` both set `strict-transport-security`");
        reader.report.whole(section.key_span("hsts"), problem.help("keep one of the two"));
    }
    HttpRules {
        rewrite: rewrite(section, reader),
        rewrites: rewrites::rewrites(section, reader),
        request_headers: headers::changes(section, "route.request_headers", reader),
        response_headers,
        hsts,
        error_pages: pages::error_pages(section, plain.error_pages.intercept, reader),
        maintenance: reader.table("route.maintenance", section),
        compress: reader.table("route.compress", section),
        ..plain
    }
}

fn rewrite(section: &Section, reader: &mut ValueReader<'_, '_>) -> PrefixRewrite {
    let strip = section.bool("strip_path") == Some(true);
    if strip && section.mentions("replace_path") {
        let problem = Problem::new("a route cannot have both `strip_path` and `replace_path`");
        reader.report.local(section.key_span("replace_path"), problem.help("keep one of the two"));
        return PrefixRewrite::Keep;
    }
    let root = section.text("path").is_none_or(|path| path.value == "/") && !section.is_wrong("path");
    if strip && root {
        let problem = Problem::new("`strip_path` has no path to remove");
        let help = "add the `path` of the route, or leave it out";
        reader.report.whole(section.key_span("strip_path"), problem.help(help));
    }
    if strip {
        return PrefixRewrite::Strip;
    }
    let replacement = section.text("replace_path").and_then(|text| reader.parsed(&text));
    replacement.map_or(PrefixRewrite::Keep, PrefixRewrite::Replace)
}

fn hsts(section: &Section, reader: &mut ValueReader<'_, '_>) -> Option<Hsts> {
    let hsts: Hsts = reader.table("route.hsts", section)?;
    let default = Hsts::default();
    let details = section.section("hsts").filter(|_| hsts.preload);
    if let Some(details) = details
        && (!hsts.include_subdomains || hsts.max_age < default.max_age)
    {
        let problem = Problem::new("no preload list accepts this host");
        let help = "the preload lists require max_age = \"365d\" or more and include_subdomains = true";
        reader.report.warn(details.key_span("preload"), problem.help(help));
    }
    Some(hsts)
}

/// Reads a redirect of a route with `redirect`.
pub(super) fn redirect(section: &Section, reader: &mut ValueReader<'_, '_>) -> Option<RedirectResponse> {
    let Some(details) = section.section("redirect") else {
        return section
            .text("redirect")
            .and_then(|text| reader.parsed(&text))
            .map(RedirectResponse::permanent);
    };
    let status =
        details.integer("status").filter(|status| !REDIRECTS.iter().any(|one| u64::from(*one) == *status));
    if let Some(status) = status {
        let problem = Problem::new(format!("`{status}` is not the status of a redirect"));
        let help = "write 301, 302, 303, 307 or 308 (which keeps the method)";
        reader.report.local(details.key_span("status"), problem.help(help));
    }
    reader.whole("route.redirect", details)
}

/// Reads a fixed response of a route with `respond`.
pub(super) fn respond(section: &Section, reader: &mut ValueReader<'_, '_>) -> Option<FixedResponse> {
    let details = section.section("respond")?;
    let respond: FixedResponse = reader.filled("route.respond", details);
    let file = respond.file.is_some();
    if file && details.mentions("body") {
        let problem = Problem::new("`respond` cannot have both `body` and `file`");
        reader.report.local(details.key_span("file"), problem.help("keep one of the two"));
    }
    let key = if file { "file" } else { "body" };
    if (file || !respond.body.is_empty()) && WITHOUT_BODY.contains(&respond.status) {
        let problem = Problem::new(format!("a response with status {} has no body", respond.status));
        let help = format!("leave `{key}` out, or write another status");
        reader.report.local(details.key_span(key), problem.help(help));
    }
    if respond.content_type.as_ref().is_some_and(|kind| kind.as_str().is_empty()) {
        let problem = Problem::new("`content_type` is empty");
        reader.report.local(details.key_span("content_type"), problem.help("write one, or leave it out"));
    }
    Some(respond)
}
