//! The network of services: an HTTP proxy that connects `SERVICE.NAMESPACE.svc.cluster.local` with a ready pod.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Longest head of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The proxy; it ends when it is dropped.
pub struct Services {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Services {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Services {
    /// Begins to forward.
    pub async fn start(client: Client) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    connections.spawn(serve(client.clone(), stream));
                }
            }
        });
        Self { address, task }
    }

    /// The variables with which programs use it.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        vec![("HTTP_PROXY".to_owned(), format!("http://{}", self.address))]
    }
}

/// Forwards one connection. Servers accept the absolute form of a request's target, so it is passed on as it is.
async fn serve(client: Client, mut stream: TcpStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_HEAD_BYTES || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let line = String::from_utf8_lossy(&head[..head.iter().position(|byte| *byte == b'\r')?]).into_owned();
    let target = line.split(' ').nth(1)?;
    let is_tunnel = line.starts_with("CONNECT ");
    let authority = target.strip_prefix("http://").unwrap_or(target).split('/').next()?;
    let (host, port) = authority.split_once(':').unwrap_or((authority, "80"));
    let Some(backend) = backend(&client, host, port.parse().ok()?).await else {
        let refused = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        return stream.write_all(refused).await.ok();
    };
    let mut upstream = TcpStream::connect(backend).await.ok()?;
    if is_tunnel {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
    } else {
        upstream.write_all(&head).await.ok()?;
    }
    tokio::io::copy_bidirectional(&mut stream, &mut upstream).await.ok().map(drop)
}

/// A ready pod behind the port of a service.
async fn backend(client: &Client, host: &str, port: i32) -> Option<SocketAddr> {
    let name = host.strip_suffix(".svc.cluster.local")?;
    let (service, namespace) = name.split_once('.')?;
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let spec = services.get_opt(service).await.ok()??.spec?;
    let found = spec.ports?.into_iter().find(|known| known.port == port)?;
    let selector: BTreeMap<String, String> = spec.selector?;
    let selector: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default().labels(&selector.join(","))).await.ok()?;
    let is_ready = |pod: &&Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let pod = pods.items.iter().find(is_ready)?;
    let port = match found.target_port? {
        IntOrString::Int(port) => port,
        IntOrString::String(name) => {
            let ports = super::pod::container(pod).ports.iter().flatten();
            ports.into_iter().find(|port| port.name.as_ref() == Some(&name))?.container_port
        }
    };
    let ip = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    Some(SocketAddr::new(ip, u16::try_from(port).ok()?))
}
