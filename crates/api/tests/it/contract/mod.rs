//! The JSON of requests and answers, compared with what official peers send and read.

mod requests;
mod samples;
mod shapes;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An id that differs in one digit.
fn id(digit: char) -> String {
    "00000000-0000-4000-8000-000000000000".replace('4', &digit.to_string())
}

const TIME: &str = "2026-01-02T03:04:05.542604Z";
const NIL: &str = "00000000-0000-0000-0000-000000000000";

/// Reads `json` and writes it again.
fn through<T: DeserializeOwned + Serialize>(json: &Value) -> Value {
    let value: T = serde_json::from_value(json.clone()).unwrap();
    serde_json::to_value(&value).unwrap()
}
