//! Accounts, organizations, roles and tokens from the command line.

use crate::program::Home;
use crate::stack::{PASSWORD, Server};

/// The home of somebody who is logged in with a token.
fn with_token(server: &Server, token: &str) -> Home {
    let mut home = Home::new();
    home.set("CODER_URL", server.url.clone()).set("CODER_SESSION_TOKEN", token.trim());
    home
}

#[test]
fn accounts() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let made = home.run(&["users", "create", "-u", "bob", "-e", "bob@example.com", "-n", "Bob B"]).good();
    assert!(made.out.contains("bob@example.com") && made.out.contains("coder login"), "{}", made.out);
    let password = made.out.lines().find_map(|line| line.strip_prefix("Password")).unwrap().trim();
    assert_eq!(password.len(), 20);
    home.run(&["users", "create", "-u", "bob", "-e", "other@example.com", "-p", PASSWORD]).refused("409");
    home.run(&["users", "create", "-u", "svc", "-e", "svc@example.com", "--login-type", "none"]).good();
    home.run(&["users", "create", "-u", "x", "-e", "x@example.com", "--login-type", "magic"])
        .refused("magic");

    let list = home.run(&["users", "list"]).good().out;
    assert!(list.starts_with("USERNAME") && list.contains("bob@example.com"), "{list}");
    let one = home.run(&["users", "ls", "--search", "bob", "-c", "username,status"]).good().out;
    assert_eq!(one, "USERNAME  STATUS\nbob       dormant\n");

    home.run(&["users", "edit-roles", "bob", "--roles", "template-admin"]).refused("pass --yes");
    home.run(&["users", "edit-roles", "bob", "--roles", "wizard", "-y"]).refused("template-admin");
    home.run(&["users", "edit-roles", "bob", "--roles", "template-admin,auditor", "-y"]).good();
    assert!(home.run(&["users", "show", "bob"]).good().out.contains("auditor,template-admin"));
    home.run(&["users", "edit-roles", "bob", "--roles", "member", "-y"]).good();
    home.run(&["users", "edit-roles", "me", "--roles", "member", "-y"]).refused("your own roles");

    // A token for somebody else, good for one thing.
    let token =
        home.run(&["tokens", "create", "--user", "bob", "--name", "ro", "--scope", "workspace:read"]).good();
    let bob = with_token(&server, &token.out);
    bob.run(&["list"]).good();
    bob.run(&["users", "show", "me"]).refused("403");
    bob.run(&["tokens", "create"]).refused("40");
    assert!(home.run(&["tokens", "list", "--all"]).good().out.contains("bob"));
    home.run(&["tokens", "create", "--scope", "workspace:fly"]).refused("workspace:fly");

    assert!(!home.run(&["users", "suspend", "bob"]).status.success(), "nobody said yes");
    home.run(&["users", "suspend", "bob", "--yes"]).good();
    bob.run(&["list"]).refused("401");
    home.answer(&["users", "activate", "bob"], "yes\n").good();
    bob.run(&["list"]).good();
    home.answer(&["users", "reset-password", "bob"], "short\n").refused("Password not strong enough");
    home.answer(&["users", "reset-password", "bob"], "Another-battery-staple-9\n").good();
    home.answer(&["users", "reset-password", "me"], &format!("{PASSWORD}\nAnother-battery-staple-8\n"))
        .good();
    home.run(&["users", "delete", "bob"]).good();
    home.run(&["users", "show", "bob"]).refused("400");
}

#[test]
fn organizations_and_members() {
    let server = Server::start(&[]);
    let home = server.first_user();
    home.run(&["users", "create", "-u", "bob", "-e", "bob@example.com"]).good();
    home.run(&["organizations", "create", "blue"]).refused("pass --yes");
    home.run(&["organizations", "create", "blue", "-y"]).good();
    home.run(&["organizations", "create", "blue", "-y"]).refused("already");
    home.run(&["organizations", "create", "default", "-y"]).refused("already");
    assert_eq!(home.run(&["org", "list", "-c", "name"]).good().out, "NAME\nblue\ncoder\n");
    home.run(&["org", "edit", "blue"]).refused("nothing to change");
    home.run(&["org", "edit", "blue", "--display-name", "Sea"]).good();
    assert!(home.run(&["org", "show", "blue", "-c", "display name"]).good().out.contains("Sea"));

    home.run(&["org", "members", "list"]).refused("choose one with --org");
    home.run(&["org", "members", "add", "bob", "--org", "blue"]).good();
    home.run(&["org", "members", "add", "bob", "--org", "blue"]).refused("already");
    home.run(&["org", "members", "edit-roles", "bob", "organization-auditor", "--org", "blue"]).good();
    let list = home.run(&["org", "members", "list", "--org", "blue"]).good().out;
    assert!(list.contains("bob") && list.contains("organization-auditor"), "{list}");
    home.run(&["org", "members", "edit-roles", "bob", "owner", "--org", "blue"]).refused("400");
    home.run(&["org", "members", "edit-roles", "bob", "--org", "blue"]).good();
    let roles = home.run(&["org", "roles", "show", "--org", "blue", "-c", "name"]).good().out;
    assert!(roles.contains("organization-workspace-creation-ban"), "{roles}");

    home.run(&["org", "delete", "blue", "-y"]).refused("1 members");
    home.run(&["org", "members", "remove", "bob", "--org", "blue"]).good();
    home.run(&["org", "delete", "blue", "-y"]).good();
    home.run(&["org", "delete", "coder", "-y"]).refused("400");
}
