//! The external scaler of KEDA: the gRPC service `externalscaler.ExternalScaler`, by which KEDA scales a
//! `CoderProvisioner` of a fixed size through its scale subresource.
//!
//! Four unary or streaming calls of small messages do not need a gRPC library: a message is five bytes of prefix and the
//! protobuf text, and the result is in the trailers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::body::{Body, Bytes, Frame};
use prost::Message;

use crate::queue::PoolId;

/// The path of the service.
pub(crate) const SERVICE: &str = "/externalscaler.ExternalScaler/";
/// The name of the metric.
const METRIC: &str = "coder-provisioner-jobs";
/// The longest request.
const MAX_REQUEST_BYTES: usize = 64 << 10;
/// How often a stream tells whether a pool is needed.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// gRPC statuses.
const OK: &str = "0";
const INVALID_ARGUMENT: &str = "3";
const UNIMPLEMENTED: &str = "12";

#[derive(Clone, PartialEq, Message)]
struct ScaledObjectRef {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(map = "string, string", tag = "3")]
    metadata: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct IsActiveResponse {
    #[prost(bool, tag = "1")]
    result: bool,
}

#[derive(Clone, PartialEq, Message)]
struct MetricSpec {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int64, tag = "2")]
    target: i64,
}

#[derive(Clone, PartialEq, Message)]
struct GetMetricSpecResponse {
    #[prost(message, repeated, tag = "1")]
    specs: Vec<MetricSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct GetMetricsRequest {
    #[prost(message, optional, tag = "1")]
    object: Option<ScaledObjectRef>,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct MetricValue {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int64, tag = "2")]
    value: i64,
}

#[derive(Clone, PartialEq, Message)]
struct GetMetricsResponse {
    #[prost(message, repeated, tag = "1")]
    values: Vec<MetricValue>,
}

/// The body of every answer.
pub(crate) type ResponseBody = BoxBody<Bytes, Infallible>;

/// Says how many daemons the queue of a pool needs; none if the pool is not known.
pub(crate) trait Needed: Clone + Send + Sync + 'static {
    fn needed(&self, pool: &PoolId) -> Option<i64>;
}

/// Answers a call.
pub(crate) async fn answer<B>(request: Request<B>, source: impl Needed) -> Response<ResponseBody>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let call = head.uri.path().strip_prefix(SERVICE).unwrap_or_default().to_owned();
    let Ok(body) = Limited::new(body, MAX_REQUEST_BYTES).collect().await else {
        return failed(INVALID_ARGUMENT, "the request is too long or was cut");
    };
    let body = body.to_bytes();
    let Some(message) = unframed(&body) else {
        return failed(INVALID_ARGUMENT, "the request is not one gRPC message");
    };
    let object = if call == "GetMetrics" {
        GetMetricsRequest::decode(message).map(|request| request.object.unwrap_or_default())
    } else {
        ScaledObjectRef::decode(message)
    };
    let Ok(object) = object else { return failed(INVALID_ARGUMENT, "the request cannot be read") };
    let Some(name) = object.metadata.get("provisioner").cloned() else {
        return failed(INVALID_ARGUMENT, "the trigger's metadata lacks the entry provisioner");
    };
    let pool = (object.namespace, name);
    match call.as_str() {
        "IsActive" => one(&IsActiveResponse { result: source.needed(&pool).unwrap_or(0) > 0 }),
        "GetMetricSpec" => {
            one(&GetMetricSpecResponse { specs: vec![MetricSpec { name: METRIC.to_owned(), target: 1 }] })
        }
        "GetMetrics" => match source.needed(&pool) {
            Some(value) => {
                one(&GetMetricsResponse { values: vec![MetricValue { name: METRIC.to_owned(), value }] })
            }
            // An error keeps the number of daemons as it is.
            None => failed("14", "the queue of this pool is not known"),
        },
        "StreamIsActive" => follow(source, pool),
        _ => failed(UNIMPLEMENTED, "unknown method"),
    }
}

/// Tells whether a pool is needed, at first and on each change.
fn follow(source: impl Needed, pool: PoolId) -> Response<ResponseBody> {
    let changes = stream::unfold((None, source, pool), |(mut told, source, pool)| async move {
        loop {
            let is_needed = source.needed(&pool).unwrap_or(0) > 0;
            if told != Some(is_needed) {
                let message = framed(&IsActiveResponse { result: is_needed });
                return Some((Ok(Frame::data(message)), (Some(is_needed), source, pool)));
            }
            told = Some(is_needed);
            tokio::time::sleep(TELL_EVERY).await;
        }
    });
    respond(boxed(changes))
}

/// A stream of frames as the body of an answer. `BoxBody` wants what may be shared between threads.
fn boxed<S>(frames: S) -> ResponseBody
where
    S: futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Sync + 'static,
{
    BoxBody::new(StreamBody::new(frames))
}

fn one(message: &impl Message) -> Response<ResponseBody> {
    let frames = [Frame::data(framed(message)), Frame::trailers(trailers(OK, ""))];
    respond(boxed(stream::iter(frames.map(Ok))))
}

fn failed(status: &'static str, message: &'static str) -> Response<ResponseBody> {
    let frames = [Frame::trailers(trailers(status, message))];
    respond(boxed(stream::iter(frames.map(Ok))))
}

fn respond(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn trailers(status: &'static str, message: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    if !message.is_empty() {
        trailers.insert("grpc-message", HeaderValue::from_static(message));
    }
    trailers
}

/// A message with its prefix: not compressed, and its length.
fn framed(message: &impl Message) -> Bytes {
    let content = message.encode_to_vec();
    let mut framed = vec![0];
    framed.extend(u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
    framed.extend(content);
    framed.into()
}

/// The content of the only message.
fn unframed(body: &[u8]) -> Option<&[u8]> {
    let (prefix, content) = body.split_at_checked(5)?;
    let length = u32::from_be_bytes(prefix[1..].try_into().ok()?);
    (prefix[0] == 0 && usize::try_from(length).ok()? == content.len()).then_some(content)
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[derive(Clone)]
    struct Five;

    impl Needed for Five {
        fn needed(&self, pool: &PoolId) -> Option<i64> {
            (*pool == ("builds".to_owned(), "linux".to_owned())).then_some(5)
        }
    }

    fn object(provisioner: &str) -> ScaledObjectRef {
        ScaledObjectRef {
            name: "scaled".to_owned(),
            namespace: "builds".to_owned(),
            metadata: HashMap::from([("provisioner".to_owned(), provisioner.to_owned())]),
        }
    }

    async fn call(name: &str, body: Bytes) -> (Bytes, String) {
        let request = Request::post(format!("{SERVICE}{name}")).body(Full::new(body)).unwrap();
        let answer = answer(request, Five).await.into_body().collect().await.unwrap();
        let status = answer.trailers().unwrap()["grpc-status"].to_str().unwrap().to_owned();
        (answer.to_bytes(), status)
    }

    #[tokio::test]
    async fn keda_learns_what_a_pool_needs() {
        let (body, status) = call("IsActive", framed(&object("linux"))).await;
        assert_eq!(
            (IsActiveResponse::decode(unframed(&body).unwrap()).unwrap().result, status.as_str()),
            (true, OK)
        );
        let request = GetMetricsRequest { object: Some(object("linux")), name: METRIC.to_owned() };
        let (body, _) = call("GetMetrics", framed(&request)).await;
        let found = GetMetricsResponse::decode(unframed(&body).unwrap()).unwrap();
        assert_eq!(found.values[0].value, 5);
        let (body, _) = call("GetMetricSpec", framed(&object("linux"))).await;
        assert_eq!(GetMetricSpecResponse::decode(unframed(&body).unwrap()).unwrap().specs[0].target, 1);
    }

    #[tokio::test]
    async fn unknown_pools_and_malformed_requests_are_errors() {
        let request = GetMetricsRequest { object: Some(object("other")), name: METRIC.to_owned() };
        assert_eq!(call("GetMetrics", framed(&request)).await.1, "14");
        assert_eq!(call("IsActive", framed(&ScaledObjectRef::default())).await.1, INVALID_ARGUMENT);
        for body in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x09short", b"\x01\0\0\0\0"] {
            assert_eq!(call("IsActive", Bytes::copy_from_slice(body)).await.1, INVALID_ARGUMENT);
        }
        assert_eq!(call("IsActive", vec![0; MAX_REQUEST_BYTES + 1].into()).await.1, INVALID_ARGUMENT);
        assert_eq!(call("Other", framed(&object("linux"))).await.1, UNIMPLEMENTED);
    }

    #[tokio::test]
    async fn a_stream_tells_the_state_at_first() {
        let body = framed(&object("linux"));
        let request = Request::post(format!("{SERVICE}StreamIsActive")).body(Full::new(body)).unwrap();
        let mut answer = answer(request, Five).await.into_body();
        let frame = answer.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(IsActiveResponse::decode(unframed(&frame).unwrap()).unwrap().result);
    }
}
