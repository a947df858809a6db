//! The HTTP keys of a route: rewriting, changes to headers, HSTS, and fixed responses.

use super::{Reader, compress, headers, pages, rewrites};
use crate::error::Problem;
use crate::model::http::{REDIRECTS, WITHOUT_BODY};
use crate::model::{
    EncodedSlashes, FilePath, HeaderValue, Hsts, HttpRules, PathForm, Redirect, Respond, Rewrite,
    RouteLimits, Size,
};
use crate::raw::{Section, Spanned};

/// What is done to requests and responses.
pub(super) fn rules(section: &Section, reader: &mut Reader<'_, '_>) -> HttpRules {
    let hsts = hsts(section, reader);
    let response_headers = headers::changes(section, "response_headers", reader);
    let said = response_headers.set.iter().chain(&response_headers.add);
    if hsts.is_some() && said.into_iter().any(|(name, _)| name.as_str() == "strict-transport-security") {
        let problem = Problem::new("`hsts` and `response_headers` both set `strict-transport-security`");
        reader.report.whole(section.key_span("hsts"), problem.help("keep one of the two"));
    }
    HttpRules {
        rewrite: rewrite(section, reader),
        paths: PathForm {
            normalize: section.bool("normalize_path").unwrap_or_default(),
            encoded_slashes: section
                .text("encoded_slashes")
                .and_then(|text| EncodedSlashes::from_word(text.value))
                .unwrap_or_default(),
        },
        rewrites: rewrites::rewrites(section, reader),
        request_headers: headers::changes(section, "request_headers", reader),
        upgrade: section
            .mentions("upgrade")
            .then(|| reader.list(section, "upgrade", |text: &Spanned<String>, _| text.value.parse())),
        keep_original_url: section.bool("keep_original_url").unwrap_or_default(),
        response_headers,
        hsts,
        max_body: section.size("max_body").map(Size::new),
        limits: RouteLimits {
            response_timeout: section.duration("response_timeout"),
            request_body_timeout: section.duration("request_body_timeout"),
            min_body_rate: section.size("min_body_rate").map(Size::new),
            idle_timeout: section.duration("idle_timeout"),
        },
        error_pages: pages::error_pages(section, reader),
        maintenance: pages::maintenance(section, reader),
        redirects: redirects(section, reader),
        compress: compress::compress(section, reader),
        mirror: None,
    }
}

fn rewrite(section: &Section, reader: &mut Reader<'_, '_>) -> Rewrite {
    let strip = section.bool("strip_path") == Some(true);
    if strip && section.mentions("replace_path") {
        let problem = Problem::new("a route cannot have both `strip_path` and `replace_path`");
        reader.report.local(section.key_span("replace_path"), problem.help("keep one of the two"));
        return Rewrite::Keep;
    }
    let root = section.text("path").is_none_or(|path| path.value == "/") && !section.is_wrong("path");
    if strip && root {
        let problem = Problem::new("`strip_path` has no path to remove");
        let help = "add the `path` of the route, or leave it out";
        reader.report.whole(section.key_span("strip_path"), problem.help(help));
    }
    if strip {
        return Rewrite::Strip;
    }
    let replacement = section.text("replace_path").and_then(|text| reader.parsed(&text));
    replacement.map_or(Rewrite::Keep, Rewrite::Replace)
}

fn redirects(section: &Section, reader: &mut Reader<'_, '_>) -> Option<FilePath> {
    let text = section.text("redirects")?;
    let file = reader.origin(&text.span).file(text.value);
    reader.tell(&text.span, file)
}

fn hsts(section: &Section, reader: &mut Reader<'_, '_>) -> Option<Hsts> {
    let Some(details) = section.section("hsts") else {
        return section.bool("hsts")?.then(Hsts::default);
    };
    let default = Hsts::default();
    let hsts = Hsts {
        max_age: details.duration("max_age").unwrap_or(default.max_age),
        include_subdomains: details.bool("include_subdomains").unwrap_or(default.include_subdomains),
        preload: details.bool("preload").unwrap_or(default.preload),
    };
    if hsts.preload && (!hsts.include_subdomains || hsts.max_age < default.max_age) {
        let problem = Problem::new("no preload list accepts this host");
        let help = "the preload lists require max_age = \"365d\" or more and include_subdomains = true";
        reader.report.warn(details.key_span("preload"), problem.help(help));
    }
    Some(hsts)
}

/// A redirect, of which the key is there.
pub(super) fn redirect(section: &Section, reader: &mut Reader<'_, '_>) -> Option<Redirect> {
    let Some(details) = section.section("redirect") else {
        return section.text("redirect").and_then(|text| reader.parsed(&text)).map(Redirect::permanent);
    };
    let to = details.text("to").and_then(|text| reader.parsed(&text)).map(Redirect::permanent);
    let Some(status) = details.integer("status") else {
        return to;
    };
    match u16::try_from(status).ok().filter(|status| REDIRECTS.contains(status)) {
        Some(status) => to.map(|redirect| Redirect { status, ..redirect }),
        None => {
            let problem = Problem::new(format!("`{status}` is not the status of a redirect"));
            let help = "write 301, 302, 303, 307 or 308 (which keeps the method)";
            reader.report.local(details.key_span("status"), problem.help(help));
            None
        }
    }
}

/// A fixed response, of which the key is there.
pub(super) fn respond(section: &Section, reader: &mut Reader<'_, '_>) -> Option<Respond> {
    let details = section.section("respond")?;
    let default = Respond::default();
    let status = details.integer("status").and_then(|status| u16::try_from(status).ok());
    let status = status.unwrap_or(default.status);
    let body = details.text("body").map_or(default.body, |text| text.value.to_owned());
    let file = match details.text("file") {
        Some(text) => {
            let file = reader.origin(&text.span).file(text.value);
            Some(reader.tell(&text.span, file)?)
        }
        None => None,
    };
    if file.is_some() && details.mentions("body") {
        let problem = Problem::new("`respond` cannot have both `body` and `file`");
        reader.report.local(details.key_span("file"), problem.help("keep one of the two"));
    }
    let key = if file.is_some() { "file" } else { "body" };
    if (file.is_some() || !body.is_empty()) && WITHOUT_BODY.contains(&status) {
        let problem = Problem::new(format!("a response with status {status} has no body"));
        let help = format!("leave `{key}` out, or write another status");
        reader.report.local(details.key_span(key), problem.help(help));
    }
    let content_type: Option<HeaderValue> = match details.text("content_type") {
        Some(text) => Some(reader.parsed(&text)?),
        None => None,
    };
    if content_type.as_ref().is_some_and(|kind| kind.as_str().is_empty()) {
        let problem = Problem::new("`content_type` is empty");
        reader.report.local(details.key_span("content_type"), problem.help("write one, or leave it out"));
    }
    Some(Respond { status, body, file, content_type })
}
