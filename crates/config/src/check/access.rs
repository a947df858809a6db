//! Who may enter, as routes and listeners say it.

use super::routes::relay_server;
use super::{Known, Reader, reference};
use crate::error::{Problem, Report, shown};
use crate::model::access::{FORWARD_TIMEOUT, LEEWAY, REALM, USER_HEADER};
use crate::model::header::{Act, refused};
use crate::model::{
    BasicAuth, ClientNetworks, Credentials, ForwardAuth, HeaderName, HeaderValue, Jwks, JwtAuth, KeyServer,
    KeySetUrl, Networks, RelayTarget, Satisfy,
};
use crate::raw::{Section, Spanned};

/// `allow` and `deny` of a section.
pub(super) fn networks(section: &Section, reader: &mut Reader<'_, '_>) -> ClientNetworks {
    reader.not_empty(section, "allow", "leave it out to admit clients from anywhere");
    reader.not_empty(section, "deny", "leave it out to refuse nobody");
    let allow = reader.list(section, "allow", entry);
    let deny = reader.list(section, "deny", entry);
    ClientNetworks { allow, deny }
}

/// Reports countries where there is nothing that knows the countries of addresses.
pub(super) fn countries(root: &Section, report: &mut Report<'_>) {
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

/// What requests of a route must show.
pub(super) fn credentials(section: &Section, known: &Known, reader: &mut Reader<'_, '_>) -> Credentials {
    if section.mentions("basic_auth") && section.mentions("jwt") {
        let problem = Problem::new("`basic_auth` and `jwt` both read `Authorization`");
        let help = "keep one of the two; a request can have a password or a token, and not both";
        reader.report.whole(section.key_span("jwt"), problem.help(help));
    }
    Credentials {
        basic: basic_auth(section, reader),
        jwt: jwt(section, reader),
        forward: forward_auth(section, known, reader),
        satisfy: satisfy(section, reader),
    }
}

/// One rule must be left to choose from beside another: a wrong reading of `any` would open a route.
fn satisfy(section: &Section, reader: &mut Reader<'_, '_>) -> Satisfy {
    let word = section.text("satisfy").and_then(|text| Satisfy::from_word(text.value));
    let satisfy = word.unwrap_or(Satisfy::All);
    if satisfy == Satisfy::Any {
        let own = section.mentions("basic_auth") || section.mentions("jwt");
        let rules = [section.mentions("allow"), own, section.mentions("forward_auth")];
        if rules.into_iter().filter(|is| *is).count() < 2 {
            let problem = Problem::new("`satisfy = \"any\"` has nothing to choose from");
            let help =
                "it needs two of `allow`, `basic_auth` or `jwt`, and `forward_auth`; `deny` admits nobody";
            reader.report.whole(section.key_span("satisfy"), problem.help(help));
        }
    }
    satisfy
}

fn jwt(section: &Section, reader: &mut Reader<'_, '_>) -> Option<JwtAuth> {
    let details = section.section("jwt")?;
    let issuer = details.text("issuer").map(|text| text.value.to_owned());
    let audience = jwt_audience(details, reader);
    if issuer.is_none() && !details.mentions("audience") {
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
    let mut headers: Vec<(HeaderName, String)> = Vec::new();
    for (name, claim) in details.pairs("headers") {
        let field = name.value.parse().and_then(identity);
        let Some(field) = reader.tell(&name.span, field) else { continue };
        if headers.iter().any(|(other, _)| *other == field) {
            let problem = Problem::new(format!("the field `{field}` has one claim"));
            reader.report.local(&name.span, problem.help("keep one of them"));
        } else {
            headers.push((field, claim.value.clone()));
        }
    }
    headers.sort();
    let leeway = details.duration("leeway").unwrap_or(LEEWAY);
    let keep_authorization = details.bool("keep_authorization").unwrap_or_default();
    let keep_tunnels = details.bool("keep_tunnels").unwrap_or_default();
    let jwks = jwks(details, reader)?;
    Some(JwtAuth { jwks, issuer, audience, headers, leeway, keep_authorization, keep_tunnels })
}

fn jwt_audience(details: &Section, reader: &mut Reader<'_, '_>) -> Vec<String> {
    let help = "leave it out to believe tokens without `aud`, or write \"*\" to believe tokens for anybody";
    reader.not_empty(details, "audience", help);
    let audience = reader.list(details, "audience", |text: &Spanned<String>, _| {
        if text.value.is_empty() {
            return Err(Problem::new("an audience has a name, and this one is empty").help(help));
        }
        Ok(text.value.clone())
    });
    if audience.len() > 1 && audience.iter().any(|name| name == JwtAuth::ANYBODY) {
        let problem = Problem::new("`audience` has `*` beside names, which then mean nothing");
        let help = "write \"*\" alone to believe tokens for anybody, or the names alone";
        reader.report.whole(details.key_span("audience"), problem.help(help));
    }
    audience
}

/// Where the keys of tokens come from.
fn jwks(details: &Section, reader: &mut Reader<'_, '_>) -> Option<Jwks> {
    let ca = details.text("ca");
    let ca = ca.map(|text| reader.tell(&text.span, reader.origin(&text.span).file(text.value)));
    let text = details.text("jwks")?;
    if !KeySetUrl::is_meant(text.value) {
        for key in ["ca", "refresh"].into_iter().filter(|key| details.mentions(key)) {
            let problem =
                Problem::new(format!("`{key}` is for keys that a server has, and `jwks` is a file"));
            let help = "leave it out, or write a URL: a file is read at a start and at a reload";
            reader.report.local(details.key_span(key), problem.help(help));
        }
        return reader.tell(&text.span, reader.origin(&text.span).file(text.value)).map(Jwks::File);
    }
    let url: KeySetUrl = reader.tell(&text.span, text.value.parse())?;
    if details.mentions("ca") && !url.is_https() {
        let problem = Problem::new("`ca` has nothing to check: the server of `jwks` does not speak TLS");
        reader.report.local(details.key_span("ca"), problem.help("leave it out, or write https://"));
    }
    let ca = match ca {
        Some(file) => Some(file?),
        None => None,
    };
    let refresh = details.duration("refresh").unwrap_or(KeyServer::REFRESH);
    Some(Jwks::Server(KeyServer { url, ca, refresh }))
}

fn forward_auth(section: &Section, known: &Known, reader: &mut Reader<'_, '_>) -> Option<ForwardAuth> {
    let details = section.section("forward_auth")?;
    let path =
        details.text("path").map_or(Some("/".to_owned()), |text| reader.tell(&text.span, asked(text.value)));
    let headers =
        reader.list(details, "headers", |text: &Spanned<String>, _| text.value.parse().and_then(identity));
    let timeout = details.duration("timeout").unwrap_or(FORWARD_TIMEOUT);
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
    Some(ForwardAuth { to, path: path?, headers, timeout, at: reader.at(&details.span) })
}

/// The path and query that an authentication server is asked for.
fn asked(text: &str) -> Result<String, Problem> {
    let sound = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte);
    if text.starts_with('/') && text.len() <= 2048 && text.bytes().all(sound) {
        return Ok(text.to_owned());
    }
    let problem = Problem::new(format!("`{}` is not a path", shown(text)));
    Err(problem.help("write the path of the authentication server: \"/api/authz/forward-auth\""))
}

fn basic_auth(section: &Section, reader: &mut Reader<'_, '_>) -> Option<BasicAuth> {
    let details = section.section("basic_auth");
    let file = match details {
        Some(details) => details.text("file"),
        None => section.text("basic_auth"),
    };
    let realm = details.and_then(|details| details.text("realm"));
    let realm = realm.and_then(|text| reader.tell(&text.span, self::realm(text.value)));
    let header = details.and_then(|details| field(details, "header", reader));
    let keep_authorization =
        details.and_then(|details| details.bool("keep_authorization")).unwrap_or_default();
    let file = file.and_then(|text| {
        let file = if matches!(text.value, "off" | "none") {
            let problem = Problem::new(format!("`{}` is no file of users", text.value));
            let help = "to let everybody in, write `basic_auth = false`; a file is written as";
            Err(problem.help(format!("{help} \"./{}\"", text.value)))
        } else {
            reader.origin(&text.span).file(text.value)
        };
        reader.tell(&text.span, file)
    })?;
    // The defaults are what they have to be.
    let (realm, header) = (realm.or(REALM.parse().ok())?, header.or(USER_HEADER.parse().ok())?);
    Some(BasicAuth { file, realm, header, keep_authorization })
}

/// The name of a field that servers get.
fn field(details: &Section, key: &str, reader: &mut Reader<'_, '_>) -> Option<HeaderName> {
    let text = details.text(key)?;
    reader.tell(&text.span, text.value.parse().and_then(identity))
}

/// A field that may say who the client is.
fn identity(name: HeaderName) -> Result<HeaderName, Problem> {
    match not_for_users(&name) {
        None => Ok(name),
        Some(why) => Err(Problem::new(format!("`{name}` cannot say who the client is")).help(why)),
    }
}

/// Why a field cannot say who the user is, if it cannot.
fn not_for_users(name: &HeaderName) -> Option<&'static str> {
    match name.folded().as_str() {
        "host" | "authorization" | "cookie" | "forwarded" | "x-request-id" | "via" | "expect"
        | "content-type" => Some("it says something else; write a name such as Remote-User"),
        "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-proto" | "x-forwarded-port" => {
            Some("it says something else; write a name such as Remote-User")
        }
        _ => refused(name, Act::Set),
    }
}

/// A realm, which stands between quotes (RFC 9110 §5.6.4).
fn realm(text: &str) -> Result<HeaderValue, Problem> {
    if text.is_empty() || text.len() > 255 || text.contains(['"', '\\']) {
        let problem = Problem::new(format!("`{}` is not a realm", shown(text)));
        return Err(problem.help("write 1 to 255 letters, without quotes and backslashes"));
    }
    text.parse()
}

fn entry(text: &Spanned<String>, reader: &mut Reader<'_, '_>) -> Result<Networks, Problem> {
    if let Some(path) = text.value.strip_prefix("file:") {
        return reader.origin(&text.span).file(path).map(Networks::File);
    }
    if let Some(code) = text.value.strip_prefix("country:") {
        return code.parse().map(Networks::Country);
    }
    if text.value.starts_with(['/', '.']) {
        let problem = Problem::new("this is a path, and not a network");
        return Err(problem.help("write file: before the path of a list of networks"));
    }
    text.value.parse().map(Networks::One)
}
