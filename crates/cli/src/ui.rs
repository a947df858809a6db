//! `offramp ui`: the page of the running Offramp in a browser, for whoever may use the admin interface.
//!
//! It listens on loopback addresses, with a ticket that opens one session. Every user of this machine reaches those, and
//! the browser hands its cookies to any port. So connections of other users are refused, as far as the kernel says whose
//! they are ([`offramp_net::tcp_table`]).
//!
//! - `relay`: requests, on their way to the admin interface
//! - `activity`: the time since the page was last used

mod activity;
mod relay;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use offramp_admin::{AdminCertificate, PageGate, secret};
use offramp_config::model::ListenAddress;
use offramp_net::process::{UserIdentity, is_root};
use offramp_net::tcp_table::{ConnectedUser, TcpTable};
use offramp_observe::Log;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::ctl::client::AdminClient;
use crate::failure::Failure;
use crate::flags::ui::Ui;
use crate::listen::ListenArgument;
use crate::surroundings::{self, print, say};
use activity::PageActivity;
use relay::PageRelay;

/// Connections at a time: some windows, of which each has six, and event streams.
const CONNECTIONS: usize = 64;
/// Connections of other users at a time that are told why they are refused; further ones are closed.
const REFUSALS: usize = 4;
/// Connections whose users are looked up together.
const TOGETHER: usize = 128;
/// The time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The time for the head of the first request, and of the next one: connections without one take the places of others.
const NEXT: Duration = Duration::from_secs(15);
/// The time for a connection of another user, to be told why it is refused.
const REFUSAL: Duration = Duration::from_secs(1);
/// The largest head of a request, in bytes.
const HEAD_BYTES: usize = 16 << 10;
/// The pause after an accept that failed: most likely no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// Opens the page, and serves it until it was closed.
///
/// # Errors
/// The options contradict each other, the address cannot be listened on, or no Offramp answers.
pub(crate) fn run(arguments: &Ui) -> Result<(), Failure> {
    let addresses = addresses(&arguments.listen)?;
    let certificate = certificate(arguments)?;
    let open = addresses.iter().find(|address| !address.ip().to_canonical().is_loopback());
    if let (Some(open), None) = (open, &certificate) {
        return Err(Failure::usage(format_args!(
            "error: other machines can connect to {open}, and everyone on the way could take over the session\nAdd --cert \
             FILE, or listen on this machine alone and forward the port: ssh -L 9902:127.0.0.1:9902 HOST, with --listen 9902"
        )));
    }
    let client = AdminClient::of(&arguments.reach.plain())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::runtime(format_args!("error: cannot wait: {error}")))?;
    let outcome = runtime.block_on(serve(arguments, &addresses, certificate, client));
    // A look at the kernel's tables must not delay the end.
    runtime.shutdown_background();
    outcome
}

/// The addresses of `--listen`.
fn addresses(listen: &ListenArgument) -> Result<Vec<SocketAddr>, Failure> {
    let all = listen.addresses(false, surroundings::has_ipv6()).map_err(Failure::usage)?;
    let ip = |address| match address {
        ListenAddress::Ip(address) => Ok(address),
        ListenAddress::Unix(_) => {
            Err(Failure::usage("error: a browser cannot reach a Unix socket; --listen takes a port"))
        }
    };
    all.into_iter().map(ip).collect()
}

fn certificate(arguments: &Ui) -> Result<Option<Arc<AdminCertificate>>, Failure> {
    let Some(cert) = &arguments.cert else { return Ok(None) };
    let loaded = AdminCertificate::load(cert.clone(), arguments.key.clone(), Log::silent());
    let loaded = loaded.map_err(|error| Failure::usage(format_args!("error: --cert: {error}")))?;
    Ok(Some(Arc::new(loaded)))
}

async fn serve(
    arguments: &Ui,
    addresses: &[SocketAddr],
    certificate: Option<Arc<AdminCertificate>>,
    client: AdminClient,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::runtime(format_args!("error: {error}"));
    // Says at once that no Offramp runs, or that this user may not ask it.
    client.probe().await?;
    let (listeners, port) = bind(addresses, &arguments.listen).await?;
    let Some(ticket) = secret() else {
        return Err(Failure::runtime("error: the system has no random numbers"));
    };
    let link = link(addresses, port, certificate.as_deref(), &ticket);
    let tls = certificate.as_ref().map(AdminCertificate::config).transpose().map_err(failed)?;
    let users = surroundings::starting_users();
    let name = surroundings::sudo_user().unwrap_or_else(|| UserIdentity::current().name());
    let activity = PageActivity::new(Instant::now());
    let relay = PageRelay::new(
        PageGate::new("ui", certificate, Arc::default()),
        client,
        ticket,
        &name,
        activity.clone(),
    );
    let server = Arc::new(PageServer {
        relay,
        tls: tls.map(|config| TlsAcceptor::from(Arc::new(config))),
        users,
        places: Arc::new(Semaphore::new(CONNECTIONS)),
        refusals: Arc::new(Semaphore::new(REFUSALS)),
    });
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    for listener in listeners {
        tokio::spawn(Arc::clone(&server).accept(listener));
    }
    announce(arguments, &link)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = unused(&activity, arguments.linger) => say("The page is closed."),
    }
    Ok(())
}

/// Listens on all addresses; with port 0 on `::1` too, at the port that the kernel has chosen, where it is free.
async fn bind(addresses: &[SocketAddr], listen: &ListenArgument) -> Result<(Vec<TcpListener>, u16), Failure> {
    let mut listeners = Vec::new();
    for address in addresses {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::runtime(format_args!(
                "error: cannot listen on {address}: {error}\nChoose another port: --listen {}",
                listen.another()
            ))
        })?;
        listeners.push(listener);
    }
    let bound = listeners.first().and_then(|listener| listener.local_addr().ok());
    let port = bound.map_or(0, |bound| bound.port());
    if *listen == ListenArgument::Here(0) && surroundings::has_ipv6() {
        let six = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
        listeners.extend(TcpListener::bind(six).await);
    }
    Ok((listeners, port))
}

/// The link that opens the page once.
fn link(addresses: &[SocketAddr], port: u16, certificate: Option<&AdminCertificate>, ticket: &str) -> String {
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let names = certificate.map(AdminCertificate::names).unwrap_or_default();
    let named = names.into_iter().find(|name| !name.starts_with('*'));
    let host = named.unwrap_or_else(|| match addresses.first() {
        Some(SocketAddr::V6(address)) => format!("[{}]", address.ip()),
        Some(SocketAddr::V4(address)) => address.ip().to_string(),
        None => "localhost".to_owned(),
    });
    format!("{scheme}://{host}:{port}/ui/#once={ticket}")
}

/// Prints the link and opens it. Others may read the arguments of processes, but only whoever started this can use the
/// ticket.
fn announce(arguments: &Ui, link: &str) -> Result<(), Failure> {
    print(format!("{link}\n").as_bytes())?;
    // A browser must not run as root.
    let opens = !arguments.no_open && surroundings::has_display() && !is_root();
    let mut opener = Command::new("xdg-open");
    opener.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match opens.then(|| opener.spawn()) {
        Some(Ok(mut child)) => {
            // Waits for it, so that nothing is left of it.
            std::thread::spawn(move || child.wait());
            say("The page opens in your browser; if not, open this link within a minute. It is good once.");
        }
        Some(Err(_)) | None => say("Open this link in a browser within a minute. It is good once."),
    }
    say("This ends when the page is closed, or by Ctrl-C.");
    Ok(())
}

/// Waits until the page was unused for this long.
async fn unused(activity: &PageActivity, linger: Duration) {
    while let Some(left) = activity.remaining(linger, Instant::now()) {
        sleep(left).await;
    }
}

/// Returns true for root, for these users, and where the kernel does not say whose the connection is: session and ticket
/// are needed all the same.
fn may_use(user: ConnectedUser, users: &[u32]) -> bool {
    match user {
        ConnectedUser::Is(user) => user == 0 || users.contains(&user),
        ConnectedUser::Hidden => true,
        ConnectedUser::Nobody => false,
    }
}

/// Accepts a connection that is there already.
async fn accept_waiting(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    poll_fn(|context| match listener.poll_accept(context) {
        Poll::Ready(accepted) => Poll::Ready(accepted.ok()),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Connections of browsers.
struct PageServer {
    relay: PageRelay,
    tls: Option<TlsAcceptor>,
    /// The users of this machine that may connect, beside root.
    users: Vec<u32>,
    /// Connections of these users.
    places: Arc<Semaphore>,
    /// Connections of others that hear why.
    refusals: Arc<Semaphore>,
}

impl PageServer {
    /// Asks whose connections are before they take a place: other users of this machine take none from these.
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok(first) = listener.accept().await else {
                sleep(PAUSE).await;
                continue;
            };
            let mut arrived = vec![first];
            while arrived.len() < TOGETHER
                && let Some(next) = accept_waiting(&listener).await
            {
                arrived.push(next);
            }
            let table = tokio::task::spawn_blocking(TcpTable::read).await.ok();
            for (stream, client) in arrived {
                let Ok(own) = stream.local_addr() else { continue };
                let stranger = table.as_ref().is_none_or(|table| self.is_stranger(table, client, own));
                let place = if stranger {
                    Arc::clone(&self.refusals).try_acquire_owned().ok()
                } else {
                    Arc::clone(&self.places).acquire_owned().await.ok()
                };
                let Some(place) = place else { continue };
                let server = Arc::clone(&self);
                tokio::spawn(async move {
                    server.connection(stream, stranger).await;
                    drop(place);
                });
            }
        }
    }

    async fn connection(&self, stream: TcpStream, stranger: bool) {
        // Answers are small and wait for nothing.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            _ if stranger => drop(timeout(REFUSAL, self.talk(stream, stranger)).await),
            None => self.talk(stream, stranger).await,
            Some(tls) => {
                if let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await {
                    self.talk(stream, stranger).await;
                }
            }
        }
    }

    /// Returns true for a process of another user of this machine.
    fn is_stranger(&self, table: &TcpTable, client: SocketAddr, own: SocketAddr) -> bool {
        let (from, to) = (client.ip().to_canonical(), own.ip().to_canonical());
        (from == to || from.is_loopback()) && !may_use(table.connected_user(client, own), &self.users)
    }

    async fn talk(&self, stream: impl AsyncRead + AsyncWrite + Unpin, stranger: bool) {
        let service = service_fn(|request| self.relay.serve(request, stranger));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(NEXT).max_buf_size(HEAD_BYTES).max_headers(64);
        http.keep_alive(!stranger);
        // The end of a connection affects no other.
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_of_this_machine_are_strangers() {
        assert!(may_use(ConnectedUser::Is(1000), &[33, 1000]) && may_use(ConnectedUser::Is(0), &[1000]));
        assert!(!may_use(ConnectedUser::Is(1001), &[1000]) && !may_use(ConnectedUser::Nobody, &[1000]));
        assert!(may_use(ConnectedUser::Hidden, &[1000]));
    }

    #[test]
    fn the_link_names_where_it_listens() {
        let of = |address: &str| link(&[address.parse().unwrap()], 7, None, "t");
        assert_eq!(of("127.0.0.1:0"), "http://127.0.0.1:7/ui/#once=t");
        assert_eq!(of("[::1]:0"), "http://[::1]:7/ui/#once=t");
    }
}
