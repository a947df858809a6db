//! What many certificates cost: mints them into a directory, loads them, and measures the time, the memory, and the
//! look-up by name among all of them and among ten, as a share of a handshake.
//!
//! ```sh
//! cargo run -p offramp-certs --example many_certificates -- 50000
//! cargo run -p offramp-certs --example many_certificates -- 50000 DIRECTORY   # keeps them, for `offramp run`
//! ```

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use std::{fs, thread};

use offramp_certs::store::{CertificateStore, Pick, StoreEntry};
use offramp_certs::{directory, file};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::SignatureScheme;
use rustls::sign::SingleCertAndKey;
use rustls_pki_types::{CertificateDer, ServerName};

type Failure = Box<dyn Error + Send + Sync>;

/// The file of a certificate, and of its key.
type Pair = (PathBuf, Option<PathBuf>);

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().map_or(Ok(50_000), |text| text.parse())?;
    match arguments.next() {
        Some(path) => {
            fs::create_dir_all(&path)?;
            measure(Path::new(&path), count)
        }
        None => measure(tempfile::tempdir()?.path(), count),
    }
}

fn measure(path: &Path, count: usize) -> Result<(), Failure> {
    let begun = Instant::now();
    let authority = mint(path, count)?;
    println!("minted {count} in {:.1} s", begun.elapsed().as_secs_f64());
    let (begun, before) = (Instant::now(), resident()?);
    let store = load(path)?;
    let took = begun.elapsed();
    let after = resident()?;
    println!(
        "loaded {} in {:.2} s, {} MiB, {} bytes each",
        store.certificates().count(),
        took.as_secs_f64(),
        (after - before) >> 20,
        (after - before) / count
    );
    let few = CertificateStore::new(entries(&store).take(FEW).collect::<Vec<_>>(), SystemTime::now());
    let handshake = handshake(&store, authority)?;
    println!("a full handshake of TLS 1.3: {} ns of the server", handshake.as_nanos());
    for (store, certificates) in [(&few, FEW.min(count)), (&store, count)] {
        let took = look_up(store, certificates);
        let share = 100.0 * took.as_secs_f64() / handshake.as_secs_f64();
        println!("look-up among {certificates}: {} ns, {share:.3} % of it", took.as_nanos());
    }
    Ok(())
}

/// Few enough for every cache.
const FEW: usize = 10;

/// What a store holds, by the number in the name.
fn entries(store: &CertificateStore) -> impl Iterator<Item = StoreEntry> {
    let by_name = |number: usize| match store.pick(Some(&name(number)), &[]) {
        Pick::Found { certificate, .. } => {
            Some(StoreEntry { certificate: Arc::clone(certificate), default: false })
        }
        Pick::NoneForName => None,
    };
    (0..store.certificates().count()).filter_map(by_name)
}

/// The time that the server's side of a full handshake takes, in memory.
fn handshake(store: &CertificateStore, authority: CertificateDer<'static>) -> Result<Duration, Failure> {
    const TURNS: u32 = 500;
    let Pick::Found { certificate, .. } = store.pick(Some(&name(0)), &[]) else {
        return Err("no names".into());
    };
    let provider = || Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority)?;
    let client = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut server = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&certificate.certified_key))));
    server.send_tls13_tickets = 0;
    let (mut client, server) = (client, Arc::new(server));
    client.resumption = rustls::client::Resumption::disabled();
    let (client, mut took) = (Arc::new(client), Duration::ZERO);
    for _ in 0..TURNS {
        let mut ours = rustls::ClientConnection::new(Arc::clone(&client), ServerName::try_from(name(0))?)?;
        let mut theirs = rustls::ServerConnection::new(Arc::clone(&server))?;
        while ours.is_handshaking() || theirs.is_handshaking() {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            while ours.wants_write() {
                ours.write_tls(&mut up)?;
            }
            let begun = Instant::now();
            let mut rest = &up[..];
            while !rest.is_empty() {
                theirs.read_tls(&mut rest)?;
                theirs.process_new_packets()?;
            }
            while theirs.wants_write() {
                theirs.write_tls(&mut down)?;
            }
            took += begun.elapsed();
            let mut rest = &down[..];
            while !rest.is_empty() {
                ours.read_tls(&mut rest)?;
                ours.process_new_packets()?;
            }
        }
    }
    Ok(took / TURNS)
}

/// The name of one of them.
fn name(number: usize) -> String {
    format!("host-{number}.example.org")
}

/// Certificates of one authority, with a key each, on every core. Returns the authority's.
fn mint(path: &Path, count: usize) -> Result<CertificateDer<'static>, Failure> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Authority of many");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let authority = certificate.pem();
    let issuer = Issuer::new(params, key);
    let threads = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let (issuer, authority) = (&issuer, &authority);
        let work = (0..threads).map(|first| {
            scope.spawn(move || {
                (first..count)
                    .step_by(threads)
                    .try_for_each(|number| mint_one(path, number, issuer, authority))
            })
        });
        for thread in work.collect::<Vec<_>>() {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(certificate.der().clone())
    })
}

fn mint_one(
    path: &Path,
    number: usize,
    issuer: &Issuer<'_, KeyPair>,
    authority: &str,
) -> Result<(), Failure> {
    let name = name(number);
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![name.clone()])?.signed_by(&key, issuer)?;
    fs::write(path.join(format!("{name}.pem")), certificate.pem() + authority)?;
    fs::write(path.join(format!("{name}.key")), key.serialize_pem())?;
    Ok(())
}

/// Loads them as Offramp does: shares of them on every core.
fn load(path: &Path) -> Result<CertificateStore, Failure> {
    let now = SystemTime::now();
    let pairs = directory::pairs(path)?.pairs;
    let threads = thread::available_parallelism()?.get();
    let share = pairs.len().div_ceil(threads).max(1);
    let entries = thread::scope(|scope| -> Result<Vec<StoreEntry>, Failure> {
        let work: Vec<_> = pairs
            .chunks(share)
            .map(|part| {
                scope.spawn(move || {
                    let load = |(cert, key): &Pair| file::load(cert, key.as_deref(), now);
                    part.iter().map(load).collect::<Result<Vec<_>, _>>()
                })
            })
            .collect();
        let mut entries = Vec::new();
        for thread in work {
            for loaded in thread.join().map_err(|_| "a thread panicked")?? {
                entries.push(StoreEntry { certificate: Arc::new(loaded.certificate), default: false });
            }
        }
        Ok(entries)
    })?;
    Ok(CertificateStore::new(entries, now))
}

/// The time of one look-up among names that are all there, over the first so many.
fn look_up(store: &CertificateStore, certificates: usize) -> Duration {
    const TURNS: usize = 1_000_000;
    let names: Vec<String> = (0..certificates).map(name).collect();
    let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256];
    let begun = Instant::now();
    for turn in 0..TURNS {
        // A large prime: no order that a cache could foresee.
        let name = &names[turn * 1_000_003 % names.len()];
        black_box(store.pick(Some(black_box(name)), &schemes));
    }
    begun.elapsed() / u32::try_from(TURNS).unwrap_or(u32::MAX)
}

/// The memory of this process, in bytes.
fn resident() -> Result<usize, Failure> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm.split(' ').nth(1).ok_or("statm has no second field")?.parse()?;
    Ok(pages * 4096)
}
