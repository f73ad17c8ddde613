//! The NUL character, which Postgres cannot store, in every place of a request: the response is 4xx, never 5xx.

use coder_server::router;
use coder_server::router::table::Row;
use http::Method;
use serde_json::{Value, json};

use crate::harness::{TestServer, on_both_engines};

/// Parameters of lists.
const QUERIES: &[&str] = &[
    "q",
    "tags",
    "status",
    "ids",
    "initiator",
    "limit",
    "offset",
    "after",
    "before",
    "max_age",
    "follow",
    "format",
    "search",
    "include_archived",
    "after_id",
    "include_deleted",
];

/// The path with a value for each parameter. `odd` is the position of the parameter with the NUL, from the left.
fn fill(row: &Row, odd: Option<usize>) -> Option<String> {
    let mut position = 0;
    let mut parts = Vec::new();
    for part in row.path.split('/') {
        if !part.starts_with('{') {
            parts.push(part.to_owned());
            continue;
        }
        let plain = match part {
            "{organization}" => "default",
            "{user}" => "me",
            _ => "00000000-0000-0000-0000-000000000000",
        };
        parts.push(if odd == Some(position) { "a%00b".to_owned() } else { plain.to_owned() });
        position += 1;
    }
    odd.is_none_or(|odd| odd < position).then(|| parts.join("/"))
}

/// A body in which every text has a NUL. No route has all of these fields.
fn odd_body() -> Value {
    let odd = "a\u{0}b";
    json!({
        "name": odd, "username": odd, "email": "a\u{0}b@example.com", "password": "Some\u{0}Password!22",
        "old_password": odd, "display_name": odd, "description": odd, "icon": odd, "token_name": odd,
        "roles": [odd], "tags": { "a": odd, (odd): "b" }, "scopes": [odd], "workspace_name": odd,
        "rich_parameter_values": [{ "name": odd, "value": odd }], "log_level": odd, "message": odd,
        "user_variable_values": [{ "name": odd, "value": odd }], "allow_addresses": [odd],
        "storage_method": odd, "provisioner": odd, "transition": "start", "theme_preference": odd,
    })
}

on_both_engines! {
    async fn a_nul_is_never_an_error_of_the_server(server: TestServer) {
        let owner = server.owner().await;
        let mut failed = Vec::new();
        for row in router::rows(server.app.clone()) {
            if row.path.ends_with("/logout") {
                continue;
            }
            let is_get = row.method == Method::GET;
            let mut paths: Vec<_> = (0..).map_while(|odd| fill(&row, Some(odd))).collect();
            let plain = fill(&row, None).unwrap();
            if is_get {
                paths.extend(QUERIES.iter().map(|name| format!("{plain}?{name}=a%00b")));
                paths.push(format!("{plain}?q=name:a%00b&tags=%7B%22a%22%3A%22%5Cu0000%22%7D"));
            }
            paths.push(plain);
            for path in paths {
                let body = if is_get { Value::Null } else { odd_body() };
                let answer = server.ask(&owner, row.method.clone(), &path, body).await;
                if answer.status.is_server_error() {
                    failed.push(format!("{} {} {path}: {}", answer.status, row.method, answer.text()));
                }
            }
        }
        assert_eq!(failed, Vec::<String>::new());
    }
}
