//! Commands of administrators on the database, with the server running or stopped, and without a password.

use coder_api::client::{Client, Options, Proxies};
use coder_domain::secret::Secret;

use crate::durability::runtime;
use crate::processes::{EMAIL, PASSWORD, Server, USER};

const NEW_PASSWORD: &str = "Another-battery-staple-9";

fn logs_in(server: &Server, email: &str, password: &str) -> bool {
    let options = Options { proxies: Proxies::none(), ..Options::default() };
    // The client needs a rustls provider even for plain HTTP.
    let client = Client::new(&server.url, None, options).unwrap();
    runtime().block_on(client.login(email, Secret::new(password))).is_ok()
}

#[test]
fn a_password_is_reset_while_the_server_runs_and_while_it_does_not() {
    let mut server = Server::start(&[]);
    let person = server.first_user();
    let reset = |server: &Server, user: &str, password: &str| {
        server.home().answer(&["reset-password", user], &format!("{password}\n"))
    };
    reset(&server, "nobody", NEW_PASSWORD)
        .refused("there is no user with the name or e-mail address \"nobody\"");
    let asked = server.home().run(&["reset-password", "nobody"]).refused("there is no user");
    assert!(!asked.err.contains("New password"), "{}", asked.err);
    reset(&server, USER, "weak").refused("insecure password");
    assert!(logs_in(&server, EMAIL, PASSWORD), "nothing was changed");

    let done = reset(&server, USER, NEW_PASSWORD).success();
    assert!(done.err.contains(&format!("The password of {USER} is changed")), "{}", done.err);
    assert!(!logs_in(&server, EMAIL, PASSWORD) && logs_in(&server, EMAIL, NEW_PASSWORD));
    person.run(&["whoami"]).refused("you are not logged in to");

    server.process.signal("TERM");
    server.process.end();
    reset(&server, EMAIL, PASSWORD).success();
    let server = server.restart("127.0.0.1:0");
    assert!(logs_in(&server, EMAIL, PASSWORD));
}

#[test]
fn another_administrator_is_made_on_the_database() {
    let server = Server::start(&[]);
    server.first_user();
    let create = |args: &[&str]| server.home().run(&[&["server", "create-admin-user"], args].concat());
    create(&["--username", "bad name", "--email", "root@example.com", "--password", NEW_PASSWORD])
        .refused("bad name");
    create(&["--username", "root", "--email", "root@example.com", "--password", "weak"])
        .refused("insecure password");
    create(&["--username", USER, "--email", "root@example.com", "--password", NEW_PASSWORD])
        .refused("another user has the name");
    create(&["--email", "root@example.com", "--password", NEW_PASSWORD]).refused("pass --username");
    let made =
        create(&["--username", "root", "--email", "root@example.com", "--password", NEW_PASSWORD]).success();
    assert!(made.out.contains("Username  root") && !made.out.contains(NEW_PASSWORD), "{}", made.out);

    assert!(logs_in(&server, "root@example.com", NEW_PASSWORD));
    let options = Options { proxies: Proxies::none(), ..Options::default() };
    let client = Client::new(&server.url, None, options).unwrap();
    let me = runtime().block_on(async {
        let token = client.login("root@example.com", Secret::new(NEW_PASSWORD)).await.unwrap();
        client.with_token(Some(token)).user("me").await.unwrap()
    });
    assert!(me.roles.iter().any(|role| role.name == "owner"), "{:?}", me.roles);
    assert_eq!(me.organization_ids.len(), 1);
    server.home().run(&["server", "check"]).success();
}
