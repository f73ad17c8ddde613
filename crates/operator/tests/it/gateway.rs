//! A proxy between the operator and its server: it counts calls, changes answers, and holds them back.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A call of the operator.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) at: Instant,
}

impl Call {
    /// Whether it changes something on the server.
    pub(crate) fn is_effect(&self) -> bool {
        self.method != Method::GET
    }
}

/// What happens to a call.
pub(crate) enum Decision {
    Forward,
    /// The server does it, but the caller never learns of that. The token is cancelled once it is done.
    LoseAnswer(CancellationToken),
    /// The server never learns of it.
    Lose,
    Reply(u16, String),
}

pub(crate) type Hook = Arc<dyn Fn(Call) -> BoxFuture<'static, Decision> + Send + Sync>;
type Body = BoxBody<Bytes, hyper::Error>;

struct Shared {
    server: SocketAddr,
    hook: Mutex<Option<Hook>>,
    calls: Mutex<Vec<Call>>,
}

/// The proxy; it ends when it is dropped.
pub(crate) struct Gateway {
    pub(crate) url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Gateway {
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { server, hook: Mutex::new(None), calls: Mutex::default() });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { url, shared, task }
    }

    /// Decides about all calls from now on.
    pub(crate) fn decide(&self, hook: impl Fn(Call) -> BoxFuture<'static, Decision> + Send + Sync + 'static) {
        *self.shared.hook.lock() = Some(Arc::new(hook));
    }

    /// Answers the calls whose method and path fit with this status and body.
    pub(crate) fn reply(&self, method: Method, path: &'static str, status: u16, body: &'static str) {
        self.decide(move |call| {
            let fits = call.method == method && call.path.contains(path);
            Box::pin(async move {
                if fits { Decision::Reply(status, body.to_owned()) } else { Decision::Forward }
            })
        });
    }

    /// Forwards everything.
    pub(crate) fn open(&self) {
        *self.shared.hook.lock() = None;
    }

    /// The calls whose path has this part, since the last [`Self::forget`].
    pub(crate) fn calls(&self, part: &str) -> Vec<Call> {
        self.shared.calls.lock().iter().filter(|call| call.path.contains(part)).cloned().collect()
    }

    pub(crate) fn forget(&self) {
        self.shared.calls.lock().clear();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Connections end with this task.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, Infallible>(answer(shared, request).await) }
        });
        connections.spawn(async move {
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        });
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let call = Call { method: request.method().clone(), path, at: Instant::now() };
    shared.calls.lock().push(call.clone());
    let hook = shared.hook.lock().clone();
    let decision = match hook {
        Some(hook) => hook(call).await,
        None => Decision::Forward,
    };
    match decision {
        Decision::Forward => forward(shared.server, request).await,
        Decision::LoseAnswer(done) => {
            drop(forward(shared.server, request).await);
            done.cancel();
            std::future::pending().await
        }
        Decision::Lose => std::future::pending().await,
        Decision::Reply(status, body) => {
            let mut response =
                Response::new(Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        }
    }
}

async fn forward(server: SocketAddr, request: Request<Incoming>) -> Response<Body> {
    let sent = async {
        let stream = TcpStream::connect(server).await.ok()?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        sender.send_request(request).await.ok()
    };
    match sent.await {
        Some(response) => response.map(BodyExt::boxed),
        None => {
            let mut response = Response::new(Full::default().map_err(|never| match never {}).boxed());
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}
