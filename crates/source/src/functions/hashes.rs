//! Digests and identifiers made from names.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::Digest as _;

use super::Param::Text;
use super::{Args, Function, function};
use crate::budget::{Result, failed};
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    function("md5", &[Text], |args| digest(args, |text| hex::encode(md5::Md5::digest(text)))),
    function("sha1", &[Text], |args| digest(args, |text| hex::encode(sha1::Sha1::digest(text)))),
    function("sha256", &[Text], |args| digest(args, |text| hex::encode(sha2::Sha256::digest(text)))),
    function("sha512", &[Text], |args| digest(args, |text| hex::encode(sha2::Sha512::digest(text)))),
    function("base64sha256", &[Text], |args| {
        digest(args, |text| STANDARD.encode(sha2::Sha256::digest(text)))
    }),
    function("base64sha512", &[Text], |args| {
        digest(args, |text| STANDARD.encode(sha2::Sha512::digest(text)))
    }),
    function("uuidv5", &[Text, Text], uuid_v5),
];

fn digest(args: &Args<'_>, run: impl Fn(&[u8]) -> String) -> Result<Value> {
    let text = args.text(0)?;
    args.budget.spend(text.len() * 8)?;
    args.text_result(run(text.as_bytes()))
}

fn uuid_v5(args: &Args<'_>) -> Result<Value> {
    let (namespace, name) = (args.text(0)?, args.text(1)?);
    let namespace = match &*namespace {
        "dns" => uuid::Uuid::NAMESPACE_DNS,
        "url" => uuid::Uuid::NAMESPACE_URL,
        "oid" => uuid::Uuid::NAMESPACE_OID,
        "x500" => uuid::Uuid::NAMESPACE_X500,
        other => match other.parse() {
            Ok(namespace) => namespace,
            Err(_) => return failed("the namespace is dns, url, oid, x500 or a UUID"),
        },
    };
    // A version 5 UUID is the start of SHA-1 over namespace and name.
    let hash = sha1::Sha1::new().chain_update(namespace.as_bytes()).chain_update(name.as_bytes()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    let made = uuid::Builder::from_sha1_bytes(bytes).into_uuid();
    args.text_result(made.to_string())
}
