//! Access rules of routes and listeners.

use super::routes::relay_server;
use super::{KnownNames, ValueReader, reference};
use crate::error::{Problem, ProblemCollector, shown};
use crate::model::access::identity;
use crate::model::{
    BasicAuthConfig, Credentials, ForwardAuthConfig, HeaderName, Jwks, JwtAuth, KeyServer, KeySetUrl,
    RelayTarget, Satisfy,
};
use crate::raw::Section;

/// Reports country rules without a database of countries.
pub(super) fn countries(root: &Section, report: &mut ProblemCollector<'_>) {
    if root.mentions("geoip") {
        return;
    }
    for section in root.sections("listener").iter().chain(root.sections("route")) {
        let entries = ["allow", "deny"].into_iter().filter_map(|key| section.list(key)).flatten();
        for entry in entries.filter(|entry| entry.value.starts_with("country:")) {
            let problem = Problem::new("`country:` needs a database of countries");
            report.whole(&entry.span, problem.help("name it at the top: geoip = \"/path/country.mmdb\""));
        }
    }
}

/// The credentials that requests of a route must have.
pub(super) fn credentials(
    section: &Section,
    satisfy: Satisfy,
    known: &KnownNames,
    reader: &mut ValueReader<'_, '_>,
) -> Credentials {
    choice(section, satisfy, reader);
    if section.mentions("basic_auth") && section.mentions("jwt") {
        let problem = Problem::new("`basic_auth` and `jwt` both read `Authorization`");
        let help = "keep one of the two; a request can have a password or a token, and not both";
        reader.report.whole(section.key_span("jwt"), problem.help(help));
    }
    Credentials {
        basic: basic_auth(section, reader),
        jwt: jwt(section, reader),
        forward: forward_auth(section, known, reader),
        satisfy,
    }
}

/// Reports a choice of one rule: a wrong reading of `any` would open a route.
fn choice(section: &Section, satisfy: Satisfy, reader: &mut ValueReader<'_, '_>) {
    if satisfy == Satisfy::Any {
        let own = section.mentions("basic_auth") || section.mentions("jwt");
        let rules = [section.mentions("allow"), own, section.mentions("forward_auth")];
        if rules.into_iter().filter(|is| *is).count() < 2 {
            let problem = Problem::new(format!(
                "`satisfy = \"any\"` has nothing to choose from in {}",
                described(section, reader)
            ));
            let help =
                "it needs two of `allow`, `basic_auth` or `jwt`, and `forward_auth`; `deny` admits nobody";
            reader.report.whole(section.key_span("satisfy"), problem.help(help));
        }
    }
}

/// A route, by its name and its place: the key may stand in `[defaults.route]`, for many routes.
fn described(section: &Section, reader: &ValueReader<'_, '_>) -> String {
    let hosts = section.list("host").unwrap_or_default();
    let hosts: Vec<&str> = hosts.iter().map(|host| host.value.as_str()).collect();
    let path = section.text("path").map_or("", |path| path.value).trim_end_matches('/');
    let name = Some(format!("{}{path}", hosts.join(","))).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| "default".to_owned());
    format!("the route `{}` ({})", shown(&name), reader.report.source.place(section.span.start))
}

fn jwt(section: &Section, reader: &mut ValueReader<'_, '_>) -> Option<JwtAuth> {
    let details = section.section("jwt")?;
    let plain: JwtAuth = reader.filled("route.jwt", details);
    audience(details, &plain, reader);
    let mut headers: Vec<(HeaderName, String)> = Vec::new();
    for (name, claim) in details.pairs("headers") {
        let Some(field) = reader.ok_or_report(&name.span, identity(&name.value)) else { continue };
        if headers.iter().any(|(other, _)| *other == field) {
            let problem = Problem::new(format!("the field `{field}` has one claim"));
            reader.report.local(&name.span, problem.help("keep one of them"));
        } else {
            headers.push((field, claim.value.clone()));
        }
    }
    headers.sort();
    Some(JwtAuth { jwks: jwks(details, reader)?, headers, ..plain })
}

/// Reports audiences that contradict each other, and warns of tokens that enter or are refused by surprise.
fn audience(details: &Section, jwt: &JwtAuth, reader: &mut ValueReader<'_, '_>) {
    if jwt.audience.len() > 1 && jwt.audience.iter().any(|name| name == JwtAuth::ANYBODY) {
        let problem = Problem::new("`audience` has `*` beside names, which then mean nothing");
        let help = "write \"*\" alone to believe tokens for anybody, or the names alone";
        reader.report.whole(details.key_span("audience"), problem.help(help));
    }
    if jwt.issuer.is_none() && !details.mentions("audience") {
        let problem = Problem::new(
            "every token without `aud` by any issuer in `jwks` enters, and every token with `aud` is refused",
        );
        let help = "set `issuer`, and `audience` to the name of this application; `\"*\"` accepts any";
        reader.report.warn(&details.span, problem.help(help));
    } else if !details.mentions("audience") {
        let problem = Problem::new("tokens with `aud` are refused");
        let help = "set `audience` to the name of this application; `\"*\"` accepts any";
        reader.report.warn(&details.span, problem.help(help));
    }
}

/// Reads the source of the keys for tokens.
fn jwks(details: &Section, reader: &mut ValueReader<'_, '_>) -> Option<Jwks> {
    let text = details.text("jwks")?;
    if !KeySetUrl::is_meant(text.value) {
        for key in ["ca", "refresh"].into_iter().filter(|key| details.mentions(key)) {
            let problem =
                Problem::new(format!("`{key}` is for keys that a server has, and `jwks` is a file"));
            let help = "leave it out, or write a URL: a file is read at a start and at a reload";
            reader.report.local(details.key_span(key), problem.help(help));
        }
        return reader.file(details, "jwks").map(Jwks::File);
    }
    let mut server = KeyServer::at(reader.parsed(&text)?);
    reader.fill("route.jwt", details, &mut server);
    if details.mentions("ca") && !server.url.is_https() {
        let problem = Problem::new("`ca` has nothing to check: the server of `jwks` does not speak TLS");
        reader.report.local(details.key_span("ca"), problem.help("leave it out, or write https://"));
    }
    Some(Jwks::Server(server))
}

fn forward_auth(
    section: &Section,
    known: &KnownNames,
    reader: &mut ValueReader<'_, '_>,
) -> Option<ForwardAuthConfig> {
    let details = section.section("forward_auth")?;
    let plain: ForwardAuthConfig = reader.filled("route.forward_auth", details);
    if details.mentions("backend") == details.mentions("server") {
        let problem = Problem::new("`forward_auth` asks one server");
        let help = "write one of `backend` and `server`";
        reader.report.whole(&details.span, problem.help(help));
        return None;
    }
    let to = match details.text("backend") {
        Some(text) => match reference(text.value, "backend", &known.backends) {
            Ok(name) => RelayTarget::Backend(name),
            Err(problem) => {
                reader.report.whole(&text.span, problem);
                return None;
            }
        },
        None => relay_server(details, reader)?,
    };
    Some(ForwardAuthConfig { to, at: reader.at(&details.span), ..plain })
}

fn basic_auth(section: &Section, reader: &mut ValueReader<'_, '_>) -> Option<BasicAuthConfig> {
    let details = section.section("basic_auth");
    let basic = match details {
        Some(details) => reader.whole("route.basic_auth", details),
        None => reader.file(section, "basic_auth").map(BasicAuthConfig::of),
    };
    let file = details.map_or_else(|| section.text("basic_auth"), |details| details.text("file"))?;
    if matches!(file.value, "off" | "none") {
        let problem = Problem::new(format!("`{}` is no file of users", file.value));
        let help = "to let everybody in, write `basic_auth = false`; a file is written as";
        reader.report.local(&file.span, problem.help(format!("{help} \"./{}\"", file.value)));
        return None;
    }
    basic
}
