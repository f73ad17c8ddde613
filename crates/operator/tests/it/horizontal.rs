//! The horizontal autoscaler of Kubernetes, on the scale subresource of a pool and with the metrics of the operator.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use coder_domain::clock::{Clock as _, SystemClock};
use coder_testkit::kubernetes::{apply, cluster_without_definitions};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::world::{World, page};

/// A metrics API as an adapter for Prometheus serves it: the jobs of the pool `linux` that run or wait.
async fn metrics(operator: SocketAddr) -> u16 {
    let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                let stream = acceptor.accept(stream).await.ok()?;
                let service = service_fn(move |request: Request<Incoming>| async move {
                    let body = answer(operator, request.uri().path()).await.to_string();
                    let response = Response::builder().header("content-type", "application/json");
                    Ok::<_, Infallible>(response.body(body).unwrap())
                });
                let builder = hyper::server::conn::http1::Builder::new();
                builder.serve_connection(TokioIo::new(stream), service).await.ok()
            });
        }
    });
    port
}

async fn answer(operator: SocketAddr, path: &str) -> Value {
    if !path.ends_with("/coder_jobs") {
        return json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "external.metrics.k8s.io/v1beta1",
            "resources": [{"name": "coder_jobs", "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": ["get"]}],
        });
    }
    let (_, text) = page(operator, "/metrics").await;
    let of_pool = |name: &str| {
        let lines =
            text.lines().filter(|line| line.starts_with(name) && line.contains("provisioner=\"linux\""));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    let jobs = of_pool("coder_operator_pool_busy{") + of_pool("coder_operator_pool_pending_matching{");
    json!({
        "kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {},
        "items": [{
            "metricName": "coder_jobs", "metricLabels": {}, "value": jobs.to_string(),
            "timestamp": SystemClock.now().to_string(),
        }],
    })
}

/// In a cluster of its own: an API that ends with its test keeps namespaces of other tests from being deleted.
#[tokio::test]
async fn a_horizontal_autoscaler_follows_the_queue_through_the_scale_subresource() {
    let Some(cluster) = cluster_without_definitions() else { return };
    cluster.install_definitions().await;
    cluster.until_served().await;
    let mut world = World::in_cluster(cluster).await;
    world.start_operator().await;
    world.pool("linux", json!({"tags": {"os": "linux"}})).await;
    world.until_connected("linux", 1).await;
    let port = metrics(world.pages.unwrap()).await;
    let namespace = &world.namespace;
    apply(
        &world.admin,
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics", "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }),
    )
    .await;
    apply(
        &world.admin,
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
            "spec": {
                "group": "external.metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": "metrics", "namespace": namespace, "port": port},
            },
        }),
    )
    .await;
    let metric = json!({"type": "External", "external": {
        "metric": {"name": "coder_jobs"},
        "target": {"type": "AverageValue", "averageValue": "1"},
    }});
    let at_once = json!({"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 10, "periodSeconds": 1}]});
    apply(&world.admin, json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "linux", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "name": "linux"},
            "minReplicas": 1, "maxReplicas": 4, "metrics": [metric],
            "behavior": {"scaleUp": at_once, "scaleDown": at_once},
        },
    }))
    .await;
    world.queue(6, &[("os", "linux")]).await;
    world.eventually("four jobs run", async || world.jobs.running() == 4).await;
    assert_eq!(world.pools().get("linux").await.unwrap().spec.replicas, 4, "the autoscaler wrote it");
    world.jobs.finish(6);
    world.eventually("all jobs end", async || world.jobs.finished() == 6).await;
    world.until_connected("linux", 1).await;
    assert_eq!(world.pools().get("linux").await.unwrap().spec.replicas, 1);
    assert_eq!(world.jobs.killed(), 0);
    world.stop().await;
}
