//! Sockets: accepting connections, speaking HTTP on them, and ending both in good order.
//!
//! A connection stays on the thread it was given to, together with everything a brief request needs: no
//! other thread is woken to read it, to answer it or to send the answer. What may take long is done
//! elsewhere (`gateway`), so that those who share the thread do not notice.

use crate::budget::{Connected, Resource};
use crate::certificate::{CertificateError, Certificates};
use crate::config::{Config, ConfigError};
use crate::connection::Connection;
use crate::frames::FrameWatch;
use crate::gateway::Gateway;
use crate::pace::{Answering, Pace, Paced};
use crate::socket::Socket;
use headwater_runtime::{Runtime, Stop, TaskGroup};
use headwater_store::Account;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper::{Request, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// After accepting failed (too many open files, say), a moment without trying.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections that are accepted before other tasks of the thread have their turn.
const ACCEPTED_PER_TURN: u32 = 4;
/// A TLS handshake that takes longer is not one.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Bytes of a head over HTTP/2.
const HTTP2_HEAD_BYTES_MAX: u32 = 32 << 10;
/// What an idle client over HTTP/2 has to close its side.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration does not hold together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}; is another program using it? Port 0 takes any free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// There is no certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The system has no more threads for this process.
    #[error("cannot start a thread; are there too many already?")]
    Threads(#[source] std::io::Error),
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    gateway: Arc<Gateway>,
    tasks: TaskGroup,
    threads: Arc<[Thread]>,
    http: Option<SocketAddr>,
    https: Option<SocketAddr>,
}

impl Server {
    /// Starts listening. The account stays the caller's to close, after [`Server::stop`].
    ///
    /// # Errors
    /// When an address is taken, or the configuration is not safe.
    pub async fn start(
        config: Config,
        account: Account,
        runtime: Runtime,
    ) -> Result<Server, StartError> {
        config.check()?;
        let certificates = match config.https {
            Some(_) => {
                let dir = config.certificates.as_deref();
                Some(Certificates::open(dir, &config.hosts, &runtime)?)
            }
            None => None,
        };
        let http = bind(config.http).await?;
        let https = bind(config.https).await?;
        // On all listeners together.
        let room = Arc::new(Semaphore::new(config.limits.connections));
        let threads = (0..config.threads.max(1)).map(|_| Thread::start());
        let threads: Arc<[Thread]> =
            threads.collect::<Result<_, _>>().map_err(StartError::Threads)?;
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let background =
            Runtime::background_threads("headwater-background", processors.saturating_sub(1))
                .map_err(StartError::Threads)?;
        let gateway = Gateway::new(config, account, runtime.clone(), background, certificates);
        let gateway = Arc::new(gateway);
        let tasks = TaskGroup::new(runtime);
        let address = |listener: &Option<TcpListener>| {
            listener.as_ref().and_then(|listener| listener.local_addr().ok())
        };
        let (http_at, https_at) = (address(&http), address(&https));
        for (listener, scheme) in [(http, "http"), (https, "https")] {
            let Some(listener) = listener else { continue };
            let (gateway, room, threads) = (gateway.clone(), room.clone(), threads.clone());
            let tls =
                gateway.certificates.as_ref().map(|known| TlsAcceptor::from(known.tls.clone()));
            let tls = tls.filter(|_| scheme == "https");
            let noted = gateway.clone();
            let accepting = |stop| accept(listener, tls, gateway, room, threads, stop);
            tasks.spawn_watched("accept", accepting, move |ended| noted.note_end(ended));
        }
        Ok(Server { gateway, tasks, threads, http: http_at, https: https_at })
    }

    /// Where it listens in the clear.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where it listens with TLS.
    #[must_use]
    pub fn https(&self) -> Option<SocketAddr> {
        self.https
    }

    /// The certificate clients have to trust, as PEM.
    #[must_use]
    pub fn authority_pem(&self) -> Option<String> {
        self.gateway.certificates.as_ref().map(Certificates::authority_pem)
    }

    /// Whether no request is worked on. Readers that wait for changes do not count.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        self.gateway.budgets.used(Resource::Requests) == 0
    }

    /// Takes no more requests, lets those under way end (within limits), and closes every connection.
    pub async fn stop(&self) {
        self.gateway.is_stopping.store(true, Ordering::Release);
        self.gateway.stopping.ring();
        let patience = self.gateway.config.limits.shutdown_time;
        let ended = async {
            self.tasks.shutdown().await;
            self.threads.iter().for_each(|thread| thread.connections.stop());
            for thread in &*self.threads {
                thread.connections.shutdown().await;
            }
        };
        let _ = self.gateway.runtime.timeout(patience, ended).await;
        self.gateway.backups.release_all();
    }
}

async fn bind(address: Option<SocketAddr>) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let bound = TcpListener::bind(address).await;
    bound.map(Some).map_err(|source| StartError::Listen { address, source })
}

/// A thread that serves connections.
#[derive(Debug)]
struct Thread {
    connections: TaskGroup,
    /// Every connection holds a clone, however it ends.
    held: Arc<()>,
}

impl Thread {
    fn start() -> std::io::Result<Thread> {
        let runtime = Runtime::threads("headwater-http", 1)?;
        Ok(Thread { connections: TaskGroup::new(runtime), held: Arc::default() })
    }

    fn connection_count(&self) -> usize {
        Arc::strong_count(&self.held) - 1
    }

    /// Serves a connection here from now on.
    fn serve<F>(&self, connection: impl FnOnce(Stop) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let held = self.held.clone();
        self.connections.spawn("connection", |stop| {
            let served = connection(stop);
            async move {
                served.await;
                drop(held);
            }
        });
    }
}

/// Accepts until it is told to stop.
async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    gateway: Arc<Gateway>,
    room: Arc<Semaphore>,
    threads: Arc<[Thread]>,
    mut stop: Stop,
) {
    let mut in_turn = 0;
    loop {
        in_turn += 1;
        if in_turn > ACCEPTED_PER_TURN {
            in_turn = 1;
            tokio::task::yield_now().await;
        }
        // A connection beyond the limit waits in the kernel until another one ends.
        let next = async {
            let permit = room.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            next = next => next,
            () = stop.requested() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                gateway.runtime.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Without a place it is closed at once: if it waited, every other address would.
        let Some(connected) = count(&gateway, peer.ip()) else {
            tracing::debug!(address = %peer.ip(), "an address has too many connections");
            continue;
        };
        let idlest = threads.iter().min_by_key(|thread| thread.connection_count());
        let (thread, stream) = match (idlest, stream.into_std()) {
            (Some(thread), Ok(stream)) => (thread, stream),
            (_, stream) => {
                tracing::warn!(error = ?stream.err(), "no thread can serve a connection");
                continue;
            }
        };
        let (gateway, tls) = (gateway.clone(), tls.clone());
        thread.serve(|stop| async move {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let (runtime, limits) = (gateway.runtime.clone(), gateway.config.limits);
            let connection = Connection::new(connected.peer().clone(), scheme, runtime, limits);
            connection.keep_place(connected);
            gateway.connections.add(&connection);
            match TcpStream::from_std(stream) {
                Ok(stream) => tokio::select! {
                    () = connect(stream, tls, &gateway, &connection, stop) => {}
                    () = connection.closed() => {
                        tracing::debug!("a slow sender gave its place to a new connection");
                    }
                },
                Err(error) => tracing::warn!(%error, "cannot serve a connection"),
            }
            // In this order: the next connection of the address may take the place at once.
            connection.close();
            drop(permit);
        });
    }
}

/// Counts a connection. Where its address has all it may have, the slowest senders among them make room.
fn count(gateway: &Gateway, address: IpAddr) -> Option<Connected> {
    gateway
        .budgets
        .connect(address)
        .or_else(|peer| {
            gateway.connections.make_room(&peer, gateway.runtime.elapsed());
            gateway.budgets.connect(address)
        })
        .ok()
}

/// Where requests over HTTP/2 are answered: not on the thread of their connection, as one connection may
/// be all a client has.
#[derive(Clone)]
struct Streams(Runtime);

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        self.0.spawn("stream", stream);
    }
}

async fn connect(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    gateway: &Arc<Gateway>,
    connection: &Arc<Connection>,
    stop: Stop,
) {
    let _ = stream.set_nodelay(true);
    let stream = Socket::new(stream, connection.clone());
    match tls {
        None => serve(stream, gateway, connection, stop).await,
        Some(tls) => {
            let shaken = gateway.runtime.timeout(HANDSHAKE_TIME, tls.accept(stream)).await;
            match shaken {
                Some(Ok(stream)) => serve(stream, gateway, connection, stop).await,
                Some(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                None => tracing::debug!("a TLS handshake took too long"),
            }
        }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    gateway: &Arc<Gateway>,
    connection: &Arc<Connection>,
    mut stop: Stop,
) {
    let limits = &gateway.config.limits;
    let mut builder = auto::Builder::new(Streams(gateway.runtime.clone()));
    // A client that closes its side has left: its request ends, above all one that waits for changes. How
    // long heads take is watched by `connection`.
    builder
        .http1()
        .header_read_timeout(None)
        .max_buf_size(limits.head_bytes.max(8 << 10))
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(
            HTTP2_HEAD_BYTES_MAX.min(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX)),
        )
        .keep_alive_interval(Duration::from_secs(30));
    let pace = Pace::new(connection.clone());
    let service = service_fn(|request: Request<Incoming>| {
        let (gateway, connection) = (gateway.clone(), connection.clone());
        let is_http2 = request.version() == Version::HTTP_2;
        let under_way = connection.begin();
        let watched = is_http2.then(|| pace.clone());
        async move {
            let (answer, memory) = gateway.handle(request, &connection).await;
            let answering = Answering::new(under_way, memory);
            Ok::<_, std::convert::Infallible>(match watched {
                Some(pace) => pace.watch(answer, answering),
                None => Paced::unwatched(answer, answering),
            })
        }
    });
    let stream = FrameWatch::new(stream, connection.clone());
    let served = builder.serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => Some(ended),
        () = pace.stalled() => None,
        () = connection.expired() => {
            served.as_mut().graceful_shutdown();
            gateway.runtime.timeout(CLOSE_TIME, served.as_mut()).await
        }
        () = stop.requested() => {
            served.as_mut().graceful_shutdown();
            tokio::select! {
                ended = served.as_mut() => Some(ended),
                () = pace.stalled() => None,
            }
        }
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "a connection ended with an error"),
        None => tracing::debug!("a client was too slow or idle for too long"),
    }
}
