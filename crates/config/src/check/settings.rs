//! Conflicts between plain values: keys without their requirements, fields both omitted and hashed, listeners
//! open to the public.

use crate::error::{Problem, ProblemCollector};
use crate::keys;
use crate::model::{Config, ListenAddress, Policy, TlsVersionLimit};
use crate::raw::Section;
use crate::settings::{NEEDS, lacks};

/// Reports every conflict between plain values. `wrong` are the sections with invalid values, of which
/// nothing counts as missing.
pub(super) fn between(root: &Section, wrong: &[&str], config: &Config, report: &mut ProblemCollector<'_>) {
    needs(root, wrong, config, report);
    fields(root, config, report);
    admin(root, config, report);
    versions(root, config, report);
}

fn needs(root: &Section, wrong: &[&str], config: &Config, report: &mut ProblemCollector<'_>) {
    for need in NEEDS {
        let Some((section, name)) = need.path.split_once('.') else { continue };
        let Some(typed) = root.section(section).filter(|_| !wrong.contains(&section)) else { continue };
        // A missing required key of the section is reported as such.
        let required = keys::in_section(section)
            .any(|key| key.default == keys::Default::Required && !typed.mentions(key.name()));
        if !required && typed.mentions(name) && lacks(need.path, config).is_some() {
            let problem = Problem::new(format!("`{name}` has no effect without {}", need.with));
            report.whole(typed.key_span(name), problem.help(format!("add {}, or leave it out", need.with)));
        }
    }
}

fn fields(root: &Section, config: &Config, report: &mut ProblemCollector<'_>) {
    let Some(section) = root.section("access_log") else { return };
    for name in section.list("hash").unwrap_or_default() {
        if config.telemetry.access_log.omit.iter().any(|other| other.as_str() == name.value) {
            let problem = Problem::new(format!("the field `{}` is hashed and left out", name.value));
            report.local(&name.span, problem.help("keep it in one of `hash` and `omit`"));
        }
    }
}

fn versions(root: &Section, config: &Config, report: &mut ProblemCollector<'_>) {
    for (route, section) in config.routes.iter().zip(root.sections("route")) {
        let (newest, older, _) = route.tls.over(&config.tls);
        if let (false, false, Some(details)) = (newest, older, section.section("tls")) {
            let problem = Problem::new("no version of TLS is left: `modern` is TLS 1.3 only");
            let help = "change `policy` or `max_version`, of the route or of [tls]";
            report.whole(
                details.key_span(if details.mentions("policy") { "policy" } else { "max_version" }),
                problem.help(help),
            );
        }
    }
    let Some(section) = root.section("tls") else { return };
    if config.tls.policy == Policy::Modern && config.tls.max_version == TlsVersionLimit::Tls12 {
        let problem = Problem::new("no version of TLS is left: `modern` is TLS 1.3 only");
        let help = "write policy = \"intermediate\", or leave `max_version` out";
        report.whole(section.key_span("max_version"), problem.help(help));
    }
}

fn admin(root: &Section, config: &Config, report: &mut ProblemCollector<'_>) {
    let (Some(endpoint), Some(section)) = (&config.admin.endpoint, root.section("admin")) else { return };
    let admin = &config.admin;
    if let ListenAddress::Ip(address) = &endpoint.address
        && !address.ip().to_canonical().is_loopback()
        && admin.enabled
        && (admin.certificate.is_none() || (admin.token_file.is_none() && admin.users.is_none()))
    {
        let problem = Problem::new(format!("other machines can connect to the admin interface at {address}"));
        let help = "this needs TLS and a login: write `certificate`, and `token_file` or `users` too, or an address of \
                    this machine alone, \"127.0.0.1:9901\" or \"unix:/path\"";
        report.whole(section.key_span("address"), problem.help(help));
    }
}
