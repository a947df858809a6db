//! The files of access rules: lists of networks, users with their passwords, and keys of token issuers. Servers
//! that have such keys are only named here; [`crate::jwks`] asks them.
//!
//! They are read with the configuration: at start, for a reload and for a check. A change of certificates alone uses
//! what was read then.

mod countries;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use offramp_certs::client_auth::load_roots;
use offramp_config::Config;
use offramp_config::model::{
    Cidr, ClientNetworks, Country, FilePath, HeaderName, Jwks, JwtAuth, KeyServer, Networks, RouteConfig,
    Satisfy, parse_networks,
};
use offramp_process::Finding;
use offramp_proxy::credentials::jwt::{Jwt, JwtAudience, JwtRules, KeySet, KeySource};
use offramp_proxy::credentials::{Mistake, Users};
use offramp_proxy::{Access, AddressRules, BasicAuth, ForwardAuth, HeaderRules, NetworkSet};

use crate::jwks::{KeySetOrigin, KnownKeys, Provider};

/// The largest list, in bytes: a million networks.
const LIST_MAX: u64 = 64 << 20;
/// The largest file of users, in bytes.
const USERS_MAX: u64 = 32 << 20;
/// The largest set of keys, in bytes.
const KEYS_MAX: u64 = 1 << 20;
/// The most mistakes of a file that are reported.
const MOST_MISTAKES: usize = 10;

/// Everything that was read.
#[derive(Clone, Debug, Default)]
pub struct AccessFiles {
    networks: HashMap<PathBuf, Arc<[Cidr]>>,
    users: HashMap<PathBuf, Arc<Users>>,
    keys: HashMap<PathBuf, Arc<KeySet>>,
    /// The servers that have keys of tokens.
    providers: HashMap<KeySetOrigin, Arc<Provider>>,
    countries: HashMap<Country, Arc<[Cidr]>>,
}

/// Every file of access rules, and the users of the admin interface, which it reads itself ([`read_users`]).
pub fn files(config: &Config) -> Vec<&FilePath> {
    let geoip =
        config.geoip.iter().filter(|_| entries(config).any(|entry| matches!(entry, Networks::Country(_))));
    let authorities = key_servers(config).filter_map(|server| server.ca.as_ref());
    let of_admin = config.admin.users.iter().filter(|_| config.admin.enabled);
    let of_routes = lists(config).chain(user_files(config)).chain(key_sets(config));
    of_routes.chain(authorities).chain(geoip).chain(of_admin).collect()
}

fn jwks(config: &Config) -> impl Iterator<Item = &Jwks> {
    config.routes.iter().filter_map(|route| Some(&route.credentials.jwt.as_ref()?.jwks))
}

fn key_sets(config: &Config) -> impl Iterator<Item = &FilePath> {
    jwks(config).filter_map(|jwks| match jwks {
        Jwks::File(file) => Some(file),
        Jwks::Server(_) => None,
    })
}

fn key_servers(config: &Config) -> impl Iterator<Item = &KeyServer> {
    jwks(config).filter_map(|jwks| match jwks {
        Jwks::File(_) => None,
        Jwks::Server(server) => Some(server),
    })
}

fn user_files(config: &Config) -> impl Iterator<Item = &FilePath> {
    config.routes.iter().filter_map(|route| Some(&route.credentials.basic.as_ref()?.file))
}

/// Every entry of `allow` and `deny`.
fn entries(config: &Config) -> impl Iterator<Item = &Networks> {
    let of_listeners = config.listeners.iter().map(|listener| &listener.networks);
    let all = of_listeners.chain(config.routes.iter().map(|route| &route.networks));
    all.flat_map(ClientNetworks::entries)
}

/// Every list of networks.
fn lists(config: &Config) -> impl Iterator<Item = &FilePath> {
    entries(config).filter_map(|entry| match entry {
        Networks::File(file) => Some(file),
        Networks::One(_) | Networks::Country(_) => None,
    })
}

impl AccessFiles {
    /// Reads every file that `config` names, each once, and reports what is wrong with it. Servers that `before` knows keep
    /// the keys that were fetched from them.
    pub fn read(config: &Config, before: &Self, errors: &mut Vec<Finding>) -> Self {
        let mut files = Self::default();
        for file in lists(config) {
            if files.networks.contains_key(&file.path) {
                continue;
            }
            let list = list(file).unwrap_or_else(|wrong| {
                errors.extend(wrong.into_iter().map(|text| Finding::new(&file.at, text)));
                Vec::new()
            });
            files.networks.insert(file.path.clone(), list.into());
        }
        files.read_countries(config, errors);
        for file in user_files(config) {
            if files.users.contains_key(&file.path) {
                continue;
            }
            match read_users(&file.path) {
                Ok(users) => drop(files.users.insert(file.path.clone(), Arc::new(users))),
                Err(wrong) => errors.extend(wrong.into_iter().map(|text| Finding::new(&file.at, text))),
            }
        }
        for file in key_sets(config) {
            if files.keys.contains_key(&file.path) {
                continue;
            }
            match keys(file) {
                Ok(keys) => drop(files.keys.insert(file.path.clone(), Arc::new(keys))),
                Err(wrong) => errors.extend(wrong.into_iter().map(|text| Finding::new(&file.at, text))),
            }
        }
        files.find_providers(config, before, errors);
        files
    }

    fn find_providers(&mut self, config: &Config, before: &Self, errors: &mut Vec<Finding>) {
        for server in key_servers(config) {
            let origin = KeySetOrigin::of(server);
            if self.providers.contains_key(&origin) {
                continue;
            }
            let load = |ca: &FilePath| match load_roots(&ca.path, SystemTime::now()) {
                Ok(loaded) => Some(loaded.anchors),
                Err(error) => {
                    errors.push(Finding::new(&ca.at, error.to_string()));
                    None
                }
            };
            let roots = server.ca.as_ref().and_then(load);
            let provider = Provider::of(origin.clone(), roots, before.providers.values());
            self.providers.insert(origin, provider);
        }
    }

    /// The servers that have keys of tokens.
    pub fn providers(&self) -> impl Iterator<Item = Arc<Provider>> {
        self.providers.values().map(Arc::clone)
    }

    /// The keys that were fetched, for the process that takes the place of this one.
    pub fn known_keys(&self) -> Vec<KnownKeys> {
        self.providers.values().filter_map(|provider| provider.known()).collect()
    }

    /// Takes over the keys that the process before has fetched.
    pub fn recall(&self, known: &[KnownKeys]) {
        self.providers.values().for_each(|provider| provider.recall(known));
    }

    fn read_countries(&mut self, config: &Config, errors: &mut Vec<Finding>) {
        let wanted: BTreeSet<Country> = entries(config)
            .filter_map(|entry| match entry {
                Networks::Country(country) => Some(*country),
                _ => None,
            })
            .collect();
        let Some(file) = config.geoip.as_ref().filter(|_| !wanted.is_empty()) else { return };
        match countries::read(&file.path, &wanted) {
            Ok(found) => self.countries = found,
            Err(wrong) => errors.push(Finding::new(&file.at, wrong)),
        }
    }

    /// The conditions for requests of a route.
    ///
    /// # Errors
    /// A file could not be read, as was reported; there will be no snapshot.
    pub(crate) fn access(
        &self,
        route: &RouteConfig,
        addresses: Option<Arc<AddressRules>>,
        auth: Option<usize>,
    ) -> Result<Access, String> {
        let any = route.credentials.satisfy == Satisfy::Any;
        let mut access = Access { addresses, any, ..Access::default() };
        if let Some(basic) = &route.credentials.basic {
            let users = self.users.get(&basic.file.path).map(Arc::clone);
            let header = field_name(&basic.header)?;
            access.reserved.remove.push(header.clone());
            if !basic.keep_authorization {
                access.reserved.remove.push(http::header::AUTHORIZATION);
            }
            let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", basic.realm);
            access.basic = Some(BasicAuth {
                users: users.ok_or_else(|| format!("{} could not be read", basic.file.path.display()))?,
                challenge: challenge.into(),
                header,
            });
        }
        if let Some(auth) = &route.credentials.jwt {
            access.jwt = Some(self.jwt(auth, &mut access.reserved)?);
        }
        if let Some(auth_of_route) = &route.credentials.forward {
            let backend = auth.ok_or_else(|| "forward_auth has no server".to_owned())?;
            let headers = auth_of_route.headers.iter().map(field_name).collect::<Result<Vec<_>, _>>()?;
            access.reserved.remove.extend(headers.iter().cloned());
            let (target, timeout) = (auth_of_route.path.as_str().into(), auth_of_route.timeout);
            access.forward = Some(ForwardAuth { backend, target, headers, timeout });
        }
        Ok(access)
    }

    fn jwt(&self, auth: &JwtAuth, reserved: &mut HeaderRules) -> Result<Jwt, String> {
        let (keys, name) = match &auth.jwks {
            Jwks::File(file) => (
                self.keys.get(&file.path).map(|keys| KeySource::Fixed(Arc::clone(keys))),
                file.path.display().to_string(),
            ),
            Jwks::Server(server) => {
                let provider = self.providers.get(&KeySetOrigin::of(server));
                (provider.map(|one| KeySource::Fetched(Arc::clone(one.keys()))), server.url.to_string())
            }
        };
        let field = |(name, claim): &(HeaderName, String)| Ok((field_name(name)?, claim.clone()));
        let headers = auth.headers.iter().map(field).collect::<Result<Vec<_>, String>>()?;
        reserved.remove.extend(headers.iter().map(|(name, _)| name.clone()));
        if !auth.keep_authorization {
            reserved.remove.push(http::header::AUTHORIZATION);
        }
        let audience = match &auth.audience[..] {
            [] => JwtAudience::Unnamed,
            names if names.iter().any(|name| name == JwtAuth::ANYBODY) => JwtAudience::Anybody,
            names => JwtAudience::OneOf(names.to_vec()),
        };
        let (issuer, leeway, keep_tunnels) = (auth.issuer.clone(), auth.leeway, auth.keep_tunnels);
        let keys = keys.ok_or_else(|| format!("{name} could not be read"))?;
        Ok(Jwt::new(keys, JwtRules { issuer, audience, leeway, headers, keep_tunnels }))
    }

    fn set(&self, entries: &[Networks]) -> NetworkSet {
        let networks = entries.iter().flat_map(|entry| match entry {
            Networks::One(network) => std::slice::from_ref(network),
            Networks::File(file) => self.networks.get(&file.path).map_or(&[][..], |list| list),
            // One that the database does not know was reported.
            Networks::Country(country) => self.countries.get(country).map_or(&[][..], |list| list),
        });
        NetworkSet::new(networks.map(|network| (network.address(), network.prefix())))
    }
}

/// The rules of a configuration; each is made once, whatever number of routes and listeners has it.
pub struct RuleSets<'a> {
    files: &'a AccessFiles,
    made: Vec<(&'a ClientNetworks, Arc<AddressRules>)>,
}

impl<'a> RuleSets<'a> {
    /// No rules yet, of these files.
    pub fn new(files: &'a AccessFiles) -> Self {
        Self { files, made: Vec::new() }
    }

    /// The conditions for requests of a route; `auth` is the place of the backend that `forward_auth` asks.
    ///
    /// # Errors
    /// A file could not be read, as was reported; there will be no snapshot.
    pub fn access(&mut self, route: &'a RouteConfig, auth: Option<usize>) -> Result<Access, String> {
        let addresses = self.rules(&route.networks);
        self.files.access(route, addresses, auth)
    }

    /// The rules of a route or listener; `None` where every client may enter.
    pub fn rules(&mut self, networks: &'a ClientNetworks) -> Option<Arc<AddressRules>> {
        if networks.is_empty() {
            return None;
        }
        if let Some((_, rules)) = self.made.iter().find(|(made, _)| *made == networks) {
            return Some(Arc::clone(rules));
        }
        // A file without a network allows no client.
        let allow = (!networks.allow.is_empty()).then(|| self.files.set(&networks.allow));
        let rules = Arc::new(AddressRules::new(allow, self.files.set(&networks.deny)));
        self.made.push((networks, Arc::clone(&rules)));
        Some(rules)
    }
}

/// A configured header field name as the `http` crate has it.
///
/// # Errors
/// That crate takes fewer names.
pub fn field_name(name: &HeaderName) -> Result<http::HeaderName, String> {
    http::HeaderName::from_bytes(name.as_str().as_bytes()).map_err(|error| format!("`{name}`: {error}"))
}

/// The networks in a file.
fn list(file: &FilePath) -> Result<Vec<Cidr>, Vec<String>> {
    let text = read(&file.path, LIST_MAX).map_err(|error| vec![error])?;
    parse_networks(&text).map_err(|wrong| {
        let name = file.path.display();
        first_of(
            wrong
                .into_iter()
                .map(|(line, problem)| format!("{name}:{line}: {}", one_line(&problem.to_string()))),
        )
    })
}

/// Reads a file of users.
///
/// # Errors
/// The file cannot be read, or each mistake in it, up to a bound.
pub fn read_users(path: &Path) -> Result<Users, Vec<String>> {
    let text = read(path, USERS_MAX).map_err(|error| vec![error])?;
    Users::parse(&text).map_err(|wrong| {
        let name = path.display();
        first_of(
            wrong.into_iter().map(|Mistake { line, column, text }| format!("{name}:{line}:{column}: {text}")),
        )
    })
}

/// The keys in a file.
fn keys(file: &FilePath) -> Result<KeySet, Vec<String>> {
    let text = read(&file.path, KEYS_MAX).map_err(|error| vec![error])?;
    KeySet::parse(&text).map_err(|wrong| {
        let name = file.path.display();
        first_of(wrong.into_iter().map(|what| format!("{name}: {what}")))
    })
}

/// The first of the mistakes, and how many more there are.
fn first_of(mut mistakes: impl Iterator<Item = String>) -> Vec<String> {
    let mut first: Vec<String> = mistakes.by_ref().take(MOST_MISTAKES).collect();
    match mistakes.count() {
        0 => {}
        more => first.push(format!("and {more} more mistakes in this file")),
    }
    first
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The text of a file that may have so many bytes.
fn read(path: &Path, most: u64) -> Result<String, String> {
    let name = path.display();
    let failed = |error: std::io::Error| format!("cannot read {name}: {error}");
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(format!("cannot read {name}: it is not a file"));
    }
    file.take(most + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > most {
        return Err(format!("{name} has more than {} MiB", most >> 20));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use offramp_config::{Environment, load};

    use super::*;

    fn read_config(text: &str, list: &str) -> (Config, AccessFiles, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("offramp.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::write(folder.path().join("list"), list).unwrap();
        let (config, _) = load(&path, &Environment::default()).unwrap();
        let mut errors = Vec::new();
        let files = AccessFiles::read(&config, &AccessFiles::default(), &mut errors);
        let prefix = format!("{}/", folder.path().display());
        let errors = errors.iter().map(|error| error.to_string().replace(&prefix, "")).collect();
        (config, files, errors)
    }

    const TWO: &str = "[[listener]]\ndeny = [\"192.0.2.0/24\", \"file:list\"]\n\
                       [[route]]\nserver = \"a:1\"\ndeny = [\"192.0.2.0/24\", \"file:list\"]\n\
                       [[route]]\nhost = \"b\"\nserver = \"a:1\"\nallow = \"file:list\"\n";

    #[test]
    fn lists_and_networks_are_one_set_that_is_made_once() {
        let (config, files, errors) = read_config(TWO, "10.0.0.0/8\n");
        assert_eq!(errors, [""; 0]);
        let mut sets = RuleSets::new(&files);
        let listener = sets.rules(&config.listeners[0].networks).unwrap();
        let route = sets.rules(&config.routes[0].networks).unwrap();
        assert!(Arc::ptr_eq(&listener, &route));
        let admits = |rules: &AddressRules, client: &str| rules.admits(Some(client.parse().unwrap()));
        assert!(admits(&route, "11.0.0.1") && !admits(&route, "10.0.0.1") && !admits(&route, "192.0.2.9"));
        let allow = sets.rules(&config.routes[1].networks).unwrap();
        assert!(!admits(&allow, "11.0.0.1") && admits(&allow, "10.0.0.1"));
        assert!(sets.rules(&ClientNetworks::default()).is_none());
    }

    #[test]
    fn an_empty_list_allows_nobody() {
        let (config, files, errors) = read_config(TWO, "# nobody\n");
        assert_eq!(errors, [""; 0]);
        let allow = RuleSets::new(&files).rules(&config.routes[1].networks).unwrap();
        assert!(!allow.admits(Some("10.0.0.1".parse().unwrap())));
    }

    #[test]
    fn mistakes_have_file_and_line_and_are_told_once() {
        let (_, _, errors) = read_config(TWO, "10.0.0.0/8\nx\n");
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("list:2: ") && errors[0].contains("`x` is not a network"), "{errors:?}");
        let (_, _, errors) = read_config(TWO, &"x\n".repeat(1000));
        assert_eq!(errors.len(), MOST_MISTAKES + 1);
        assert!(errors[MOST_MISTAKES].contains("and 990 more"), "{errors:?}");
        let (_, _, errors) = read_config(&TWO.replace("file:list", "file:/dev/zero"), "");
        assert!(errors[0].contains("it is not a file"), "{errors:?}");
        let (_, _, errors) = read_config(&TWO.replace("file:list", "file:absent"), "");
        assert!(errors[0].contains("cannot read absent"), "{errors:?}");
    }
}
