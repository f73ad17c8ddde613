//! The web terminal: its page, its WebSocket, and both together in a real browser.

use coder_api::paths;
use coder_requirements::require;

use super::*;
use crate::chromium::Browser;

impl Site {
    pub(super) fn pty(&self, id: AgentId, more: &str) -> String {
        format!("{}?reconnect={id}&height=24&width=80{more}", paths::agent_pty(self.agent))
    }

    pub(super) async fn terminal(
        &self,
        client: &Client,
        path: &str,
    ) -> Result<Socket<TcpStream>, HandshakeError> {
        let token = client.token().unwrap().expose();
        self.websocket("coder.test", path, &[("Coder-Session-Token", token)]).await
    }
}

pub(super) async fn send(socket: &mut Socket<TcpStream>, text: &str) {
    let message = serde_json::json!({ "data": text }).to_string();
    socket.write_all(message.as_bytes()).await.unwrap();
    socket.flush().await.unwrap();
}

/// Reads until the output contains `wanted`.
pub(super) async fn until(socket: &mut Socket<TcpStream>, wanted: &str) -> String {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(wanted) {
        let count = timeout(WAIT_LIMIT, socket.read_buf(&mut seen)).await.unwrap().unwrap();
        assert!(count > 0, "{wanted:?} is not in {:?}", String::from_utf8_lossy(&seen));
    }
    String::from_utf8_lossy(&seen).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminal_goes_on_while_its_browser_is_away() {
    let site = Site::start(PathAppRules::default()).await;
    let id = AgentId::random();
    let mut first = site.terminal(&site.ann, &site.pty(id, "")).await.unwrap();
    send(&mut first, "echo $((40+2))-first\r").await;
    until(&mut first, "42-first").await;
    first.write_all(br#"{"height":33,"width":111}"#).await.unwrap();
    first.flush().await.unwrap();
    send(&mut first, "stty size\r").await;
    until(&mut first, "33 111").await;
    drop(first);
    let mut second = site.terminal(&site.ann, &site.pty(id, "")).await.unwrap();
    until(&mut second, "42-first").await;
    send(&mut second, "exit\r").await;
    // The end of the program closes the connection.
    let mut rest = Vec::new();
    timeout(WAIT_LIMIT, second.read_to_end(&mut rest)).await.unwrap().unwrap();
    let command = site.pty(AgentId::random(), "&command=echo%20of-the-command");
    let mut third = site.terminal(&site.ann, &command).await.unwrap();
    until(&mut third, "of-the-command").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminal_is_for_those_who_may_connect() {
    let site = Site::start(PathAppRules::default()).await;
    let bob = user(&site.server, "bob", site.server.handle.app.default_organization).await;
    let path = site.pty(AgentId::random(), "");
    assert_eq!(refusal(site.websocket("coder.test", &path, &[]).await), 404);
    assert_eq!(refusal(site.terminal(&bob, &path).await), 404);
    let bare = paths::agent_pty(site.agent);
    for bad in ["", "?reconnect=x", "?height=1"] {
        assert_eq!(refusal(site.terminal(&site.ann, &format!("{bare}{bad}")).await), 400, "{bad}");
    }
    for bad in ["height=-1", "width=70000", "backend_type=vim"] {
        let path = format!("{bare}?reconnect={}&{bad}", AgentId::random());
        assert_eq!(refusal(site.terminal(&site.ann, &path).await), 400, "{bad}");
    }
    let cookie = format!("coder_session_token={}", site.ann.token().unwrap().expose());
    for origin in ["https://evil.test", &format!("http://{}", host("open")), "null"] {
        let headers = [("Cookie", &*cookie), ("Origin", origin)];
        assert_eq!(refusal(site.websocket("coder.test", &path, &headers).await), 403, "{origin}");
    }
    let own = [("Cookie", &*cookie), ("Origin", "http://coder.test")];
    let mut open = site.websocket("coder.test", &path, &own).await.unwrap();
    send(&mut open, "echo $((40+2))\r").await;
    until(&mut open, "42").await;
    // The page: others get nothing, and no page may show it in a frame.
    assert_eq!(site.get(None, "coder.test", "/@ann/dev/terminal").await.status, 303);
    let page = async |client: &Client, path: &str| {
        let cookie = format!("coder_session_token={}", client.token().unwrap().expose());
        site.ask("GET", "coder.test", path, &[("Cookie", &cookie)]).await
    };
    assert_eq!(page(&bob, "/@ann/dev/terminal").await.status, 404);
    assert_eq!(page(&site.ann, "/@ann/dev.none/terminal").await.status, 404);
    let shown = page(&site.ann, "/@ann/dev.main/terminal?command=%3Cb%3E%22").await;
    assert_eq!(shown.status, 200);
    assert!(shown.body.contains(&site.agent.to_string()) && !shown.body.contains("<b>"), "{}", shown.body);
    assert!(shown.body.contains(r#"data-ask="true""#), "a command of the address is not run unasked");
    let policy = shown.header("content-security-policy");
    assert!(policy.contains("script-src 'self'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    let of_app = page(&site.ann, "/@ann/dev/terminal?app=cmd&command=evil").await.body;
    assert!(of_app.contains("echo from-the-template") && of_app.contains(r#"data-ask="false""#), "{of_app}");
    assert!(!of_app.contains("evil"));
    for asset in ["xterm.js", "xterm.css", "xterm-addon-fit.js", "terminal.js", "xterm-license.txt"] {
        let answer = site.get(None, "coder.test", &format!("/assets/{asset}")).await;
        assert_eq!(answer.status, 200, "{asset}");
        let tag = answer.header("etag").to_owned();
        let again =
            site.ask("GET", "coder.test", &format!("/assets/{asset}"), &[("If-None-Match", &tag)]).await;
        assert_eq!((again.status, &*again.body), (304, ""), "{asset}");
    }
    // A log-out ends the terminal.
    site.ann.logout().await.unwrap();
    let mut rest = Vec::new();
    let ended = timeout(WAIT_LIMIT, open.read_to_end(&mut rest)).await.unwrap();
    assert!(ended.is_err(), "closed with a code that means a failure");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminal_works_in_chromium() {
    require!(Chromium);
    let site = Site::start(PathAppRules::default()).await;
    let (base, token) = (url(&site.server), site.ann.token().unwrap().expose().to_owned());
    let check = tokio::task::spawn_blocking(move || {
        let mut browser = Browser::start();
        browser.set_cookie(&base, "coder_session_token", &token);
        browser.open(&format!("{base}/@ann/dev/terminal"));
        browser.wait_for("document.getElementById('terminal').dataset.state === 'open'");
        browser.type_text("echo $((40+2))-typed\r");
        browser.wait_for("document.querySelector('.xterm-rows').textContent.includes('42-typed')");
        // The id is in the address: a reload shows the same terminal.
        browser.wait_for("location.search.includes('reconnect=')");
        browser.reload();
        browser.wait_for("document.querySelector('.xterm-rows')?.textContent.includes('42-typed')");
        // A command of the address waits for a click.
        browser.open(&format!("{base}/@ann/dev/terminal?command=echo%20$((50%2B1))-clicked;cat"));
        browser.wait_for("!document.getElementById('question').hidden");
        assert_eq!(browser.evaluate("document.getElementById('terminal').dataset.state ?? 'none'"), "none");
        browser.evaluate("document.getElementById('run').click() ?? ''");
        browser.wait_for("document.querySelector('.xterm-rows')?.textContent.includes('51-clicked')");
        assert_eq!(browser.refused(), Vec::<String>::new(), "the page loads what its policy allows");
    });
    check.await.unwrap();
}
