//! The path and query that a server gets, by the rule of a route.

use offramp_http::head::Request;

use crate::snapshot::http::Rewrite;

/// Returns the new path and query, where they change; with `normalize`, from the normal form whatever the rule.
pub(super) fn rewrite(rule: &Rewrite, normalize: bool, request: &Request) -> Option<String> {
    let (path, normal) = (request.path(), request.normal_path());
    let (rest, with) = match rule {
        Rewrite::Keep if normalize && path != normal => (normal, ""),
        Rewrite::Keep => return None,
        Rewrite::Strip(cut) => (behind(*cut, normalize, path, normal)?, ""),
        Rewrite::Replace(cut, with) => (behind(*cut, normalize, path, normal)?, &**with),
    };
    let mut path = String::with_capacity(with.len() + rest.len() + 1);
    path.push_str(with.strip_suffix('/').filter(|_| rest.starts_with('/')).unwrap_or(with));
    if !path.ends_with('/') && !rest.starts_with('/') && (path.is_empty() || !rest.is_empty()) {
        path.push('/');
    }
    path.push_str(rest);
    if let Some(query) = request.query() {
        path.push('?');
        path.push_str(query);
    }
    Some(path)
}

/// The part of a path behind the first `cut` bytes of its normal form: as it came, if it came with these bytes and what
/// is left has the same meaning by itself.
fn behind<'r>(cut: usize, normalize: bool, path: &'r str, normal: &'r str) -> Option<&'r str> {
    let (prefix, of_normal) = normal.split_at_checked(cut)?;
    let as_it_came = path.strip_prefix(prefix).filter(|rest| {
        !normalize && !rest.starts_with("//") && offramp_http::path::normalize(rest).text == of_normal
    });
    Some(as_it_came.unwrap_or(of_normal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_rewritten() {
        let asked = |target: &str| {
            let mut request = Request::new();
            request.set_target(target.as_bytes());
            request.normalize();
            request
        };
        let of = |rule: &Rewrite, target: &str| rewrite(rule, false, &asked(target));
        let (strip, replace) = (Rewrite::Strip("/app".len()), Rewrite::Replace("/app".len(), "/new".into()));
        for (target, stripped, replaced) in [
            ("/app/x?q=1", "/x?q=1", "/new/x?q=1"),
            ("/app", "/", "/new"),
            ("/app?q", "/?q", "/new?q"),
            ("/app/", "/", "/new/"),
            ("/app/a%7Eb//c", "/a%7Eb//c", "/new/a%7Eb//c"),
            ("/app//admin", "/admin", "/new/admin"),
            ("/app///admin", "/admin", "/new/admin"),
            ("/app/%2e/admin", "/%2e/admin", "/new/%2e/admin"),
            ("/%61pp/x%7E", "/x~", "/new/x~"),
            ("//app/x", "/x", "/new/x"),
            ("/y/../app/x", "/x", "/new/x"),
            ("/app/../app/x", "/x", "/new/x"),
            ("/app/x/../..//app/y", "/y", "/new/y"),
            ("/./app", "/", "/new"),
            ("/app/a%2fb", "/a%2fb", "/new/a%2fb"),
            ("/%61pp/a%2fb", "/a%2Fb", "/new/a%2Fb"),
        ] {
            assert_eq!(of(&strip, target).as_deref(), Some(stripped), "{target}");
            assert_eq!(of(&replace, target).as_deref(), Some(replaced), "{target}");
        }
        let root = Rewrite::Replace("/app".len(), "/".into());
        assert_eq!(of(&root, "/app/x").as_deref(), Some("/x"));
        assert_eq!(of(&root, "/app").as_deref(), Some("/"));
        let slash = Rewrite::Strip("/app/".len());
        assert_eq!(of(&slash, "/app/x").as_deref(), Some("/x"));
        assert_eq!(of(&Rewrite::Keep, "//app"), None);
        assert_eq!(of(&strip, "*"), None);
        assert_eq!(of(&Rewrite::Replace(0, "/v2".into()), "/x").as_deref(), Some("/v2/x"));
        let normal = |rule: &Rewrite, target: &str| rewrite(rule, true, &asked(target));
        assert_eq!(normal(&Rewrite::Keep, "/a/b?q"), None);
        assert_eq!(normal(&Rewrite::Keep, "//%61/./b?q=%61").as_deref(), Some("/a/b?q=%61"));
        assert_eq!(normal(&strip, "/app/a%7Eb//c").as_deref(), Some("/a~b/c"));
        assert_eq!(normal(&Rewrite::Keep, "*"), None);
    }
}
