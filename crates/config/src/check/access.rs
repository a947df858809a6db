//! Who may enter, as routes and listeners say it.

use super::routes::relay_server;
use super::{Known, Reader, reference};
use crate::error::{Problem, shown};
use crate::model::access::{FORWARD_TIMEOUT, REALM, USER_HEADER};
use crate::model::header::{Act, refused};
use crate::model::{
    BasicAuth, ClientNetworks, Credentials, ForwardAuth, HeaderName, HeaderValue, Networks, RelayTarget,
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

/// What requests of a route must show.
pub(super) fn credentials(section: &Section, known: &Known, reader: &mut Reader<'_, '_>) -> Credentials {
    Credentials { basic: basic_auth(section, reader), forward: forward_auth(section, known, reader) }
}

fn forward_auth(section: &Section, known: &Known, reader: &mut Reader<'_, '_>) -> Option<ForwardAuth> {
    let details = section.section("forward_auth")?;
    let path =
        details.text("path").map_or(Some("/".to_owned()), |text| reader.tell(&text.span, asked(text.value)));
    let headers = reader.list(details, "headers", |text: &Spanned<String>, _| {
        text.value.parse().and_then(|name| identity(name))
    });
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
    let file = file.and_then(|text| reader.tell(&text.span, reader.origin(&text.span).file(text.value)))?;
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
    match name.as_str() {
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
    if text.value.starts_with(['/', '.']) {
        let problem = Problem::new("this is a path, and not a network");
        return Err(problem.help("write file: before the path of a list of networks"));
    }
    text.value.parse().map(Networks::One)
}
