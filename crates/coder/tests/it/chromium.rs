//! A Chromium without a window, driven over the DevTools protocol through pipes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use coder_requirements::{Requirement, program};
use serde_json::{Value, json};

use crate::program::until;

/// How long anything may take that does happen.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// One page of one browser. It ends when this is dropped.
pub(crate) struct Browser {
    process: Child,
    _profile: tempfile::TempDir,
    commands: File,
    messages: mpsc::Receiver<Value>,
    next: u64,
    session: Option<String>,
    refused: Vec<String>,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let chromium = program(Requirement::Chromium).expect("the test requires it");
        let profile = tempfile::tempdir().unwrap();
        let (to, from) = (profile.path().join("to"), profile.path().join("from"));
        assert!(Command::new("mkfifo").args([&to, &from]).status().unwrap().success());
        // The browser reads commands from descriptor 3 and writes to descriptor 4.
        let script = r#"exec "$0" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
            --remote-debugging-pipe --user-data-dir="$1/profile" about:blank 3<"$1/to" 4>"$1/from""#;
        let process = Command::new("sh")
            .args(["-c", script])
            .arg(chromium)
            .arg(profile.path())
            .env("HOME", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let commands = File::options().write(true).open(to).unwrap();
        let reader = BufReader::new(File::open(from).unwrap());
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for message in reader.split(0) {
                let Ok(message) = message else { return };
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            process,
            _profile: profile,
            commands,
            messages,
            next: 0,
            session: None,
            refused: Vec::new(),
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        browser.call("Page.enable", json!({}));
        browser.call("Log.enable", json!({}));
        browser
    }

    pub(crate) fn set_cookie(&mut self, url: &str, name: &str, value: &str) {
        self.call("Network.setCookie", json!({ "url": url, "name": name, "value": value, "httpOnly": true }));
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    pub(crate) fn reload(&mut self) {
        self.call("Page.reload", json!({}));
    }

    /// Types as a keyboard does.
    pub(crate) fn type_text(&mut self, text: &str) {
        for character in text.chars() {
            let text = character.to_string();
            self.call(
                "Input.dispatchKeyEvent",
                json!({ "type": "char", "text": text, "unmodifiedText": text }),
            );
        }
    }

    /// The value of an expression, as text.
    pub(crate) fn evaluate(&mut self, expression: &str) -> String {
        let expression =
            format!("(() => {{ try {{ return String({expression}) }} catch {{ return '' }} }})()");
        let result = self.call("Runtime.evaluate", json!({ "expression": expression }));
        result["result"]["value"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let is_true = until(WAIT_LIMIT, || (self.evaluate(expression) == "true").then_some(()));
        if is_true.is_none() {
            let page = self.evaluate("document.documentElement.outerHTML");
            panic!("not true: {expression}\nrefused: {:?}\n{page}", self.refused);
        }
    }

    /// Errors of the page: scripts, styles and connections that its policy does not allow.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.refused.clone()
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer =
                self.messages.recv_timeout(WAIT_LIMIT).unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["method"] == "Log.entryAdded" && answer["params"]["entry"]["source"] == "security" {
                self.refused.push(answer["params"]["entry"]["text"].as_str().unwrap_or_default().to_owned());
            }
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
