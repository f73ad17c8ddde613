//! What is open ends when its visitor may not open the app any more.

use coder_api::agents::{DeletePortShare, UpsertPortShare};
use coder_api::paths;

use super::*;

type WebSocket = Socket<TcpStream>;

impl Site {
    async fn open_app(&self, visitor: Option<&Client>, host: &str) -> WebSocket {
        let token = visitor.map(|client| client.token().unwrap().expose().to_owned());
        let headers: Vec<_> = token.iter().map(|token| ("Coder-Session-Token", token.as_str())).collect();
        self.websocket(host, "/ws", &headers).await.unwrap()
    }

    /// A request of `ann` with a body.
    async fn change(&self, method: &str, path: &str, body: &impl serde::Serialize) {
        let (body, token) = (serde_json::to_string(body).unwrap(), self.ann.token().unwrap().expose());
        let mut io = self.connect().await;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: coder.test\r\nConnection: close\r\nCoder-Session-Token: {token}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        io.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(WAIT_LIMIT, io.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    }
}

async fn is_open(socket: &mut WebSocket) {
    let mut received = [0; 4];
    socket.write_all(b"ping").await.unwrap();
    socket.flush().await.unwrap();
    timeout(WAIT_LIMIT, socket.read_exact(&mut received)).await.unwrap().unwrap();
    assert_eq!(&received, b"ping");
}

async fn ends(mut socket: WebSocket) {
    let mut rest = Vec::new();
    // Without a closing handshake, since the server only forwards bytes.
    let _ = timeout(WAIT_LIMIT, socket.read_to_end(&mut rest)).await.expect("it goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_of_an_app_ends_with_the_right_of_its_visitor() {
    let site = Site::start(PathAppRules::default()).await;
    let organization = site.server.handle.app.default_organization;
    let bob = user(&site.server, "bob", organization).await;
    let eve = stranger(&site.server, "eve").await;
    let mut of_ann = site.open_app(Some(&site.ann), &host("own")).await;
    let of_bob = site.open_app(Some(&bob), &host("org")).await;
    let of_eve = site.open_app(Some(&eve), &host("auth")).await;
    let mut of_nobody = site.open_app(None, &host("open")).await;
    site.server.owner.remove_member(organization, "bob").await.unwrap();
    ends(of_bob).await;
    eve.logout().await.unwrap();
    is_open(&mut of_ann).await;
    is_open(&mut of_nobody).await;
    ends(of_eve).await;
    let key = site.get(Some(&site.ann), &host("own"), "/").await.cookie("coder_signed_app_token").unwrap().0;
    site.ann.logout().await.unwrap();
    ends(of_ann).await;
    let late = site.websocket(&host("own"), "/ws", &[("Cookie", &key)]).await;
    assert_eq!(refusal(late), 404, "the signed token is still valid, the session is not");
    is_open(&mut of_nobody).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_of_a_port_ends_with_its_share() {
    let site = Site::start(PathAppRules::default()).await;
    let port = site.app.port();
    let here = format!("{port}--main--dev--ann.{APPS}");
    let bob = user(&site.server, "bob", site.server.handle.app.default_organization).await;
    let path = paths::workspace_port_share(site.workspace.id);
    let share = |level: &str| UpsertPortShare {
        agent_name: "main".to_owned(),
        port: port.into(),
        share_level: level.to_owned(),
        protocol: "http".to_owned(),
    };
    site.change("POST", &path, &share("public")).await;
    let mut of_ann = site.open_app(Some(&site.ann), &here).await;
    let (mut of_bob, of_nobody) = (site.open_app(Some(&bob), &here).await, site.open_app(None, &here).await);
    site.change("POST", &path, &share("organization")).await;
    ends(of_nobody).await;
    is_open(&mut of_bob).await;
    let end = DeletePortShare { agent_name: "main".to_owned(), port: port.into() };
    site.change("DELETE", &path, &end).await;
    ends(of_bob).await;
    is_open(&mut of_ann).await;
}
