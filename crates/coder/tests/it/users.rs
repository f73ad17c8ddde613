//! Accounts, organizations, roles and tokens from the command line.

use crate::processes::{PASSWORD, Server};
use crate::program::Home;

/// The home of a user who is signed in with a token.
fn with_token(server: &Server, token: &str) -> Home {
    let mut home = Home::new();
    home.set("CODER_URL", server.url.clone()).set("CODER_SESSION_TOKEN", token.trim());
    home
}

#[test]
fn accounts() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let made = home.run(&["users", "create", "-u", "bob", "-e", "bob@example.com", "-n", "Bob B"]).success();
    assert!(made.out.contains("bob@example.com") && made.out.contains("coder login"), "{}", made.out);
    let password = made.out.lines().find_map(|line| line.strip_prefix("Password")).unwrap().trim();
    assert_eq!(password.len(), 20);
    home.run(&["users", "create", "-u", "bob", "-e", "other@example.com", "-p", PASSWORD])
        .refused("User already exists");
    home.run(&["users", "create", "-u", "svc", "-e", "svc@example.com", "--login-type", "none"]).success();
    home.run(&["users", "create", "-u", "x", "-e", "x@example.com", "--login-type", "magic"])
        .refused("magic");

    let list = home.run(&["users", "list"]).success().out;
    assert!(list.starts_with("USERNAME") && list.contains("bob@example.com"), "{list}");
    let one = home.run(&["users", "ls", "--search", "bob", "-c", "username,status"]).success().out;
    assert_eq!(one, "USERNAME  STATUS\nbob       dormant\n");

    home.run(&["users", "edit-roles", "bob", "--roles", "template-admin"]).refused("pass --yes");
    home.run(&["users", "edit-roles", "bob", "--roles", "wizard", "-y"]).refused("template-admin");
    home.run(&["users", "edit-roles", "bob", "--roles", "template-admin,auditor", "-y"]).success();
    assert!(home.run(&["users", "show", "bob"]).success().out.contains("auditor,template-admin"));
    home.run(&["users", "edit-roles", "bob", "--roles", "member", "-y"]).success();
    home.run(&["users", "edit-roles", "me", "--roles", "member", "-y"]).refused("your own roles");

    // A token for another user, with one scope.
    let token = home
        .run(&["tokens", "create", "--user", "bob", "--name", "ro", "--scope", "workspace:read"])
        .success();
    let bob = with_token(&server, &token.out);
    bob.run(&["list"]).success();
    bob.run(&["users", "show", "me"]).refused("you have no permission");
    bob.run(&["tokens", "create"]).refused("do not have access");
    assert!(home.run(&["tokens", "list", "--all"]).success().out.contains("bob"));
    home.run(&["tokens", "create", "--scope", "workspace:fly"]).refused("workspace:fly");

    assert!(!home.run(&["users", "suspend", "bob"]).status.success(), "nobody said yes");
    home.run(&["users", "suspend", "bob", "--yes"]).success();
    bob.run(&["list"]).refused("CODER_SESSION_TOKEN");
    home.answer(&["users", "activate", "bob"], "yes\n").success();
    bob.run(&["list"]).success();
    home.answer(&["users", "reset-password", "bob"], "short\n").refused("insecure password");
    home.answer(&["users", "reset-password", "bob"], "Another-battery-staple-9\n").success();
    home.answer(&["users", "reset-password", "me"], &format!("{PASSWORD}\nAnother-battery-staple-8\n"))
        .success();
    home.run(&["users", "delete", "bob"]).success();
    home.run(&["users", "show", "bob"]).refused("there is no user \"bob\"");
}

#[test]
fn organizations_and_members() {
    let server = Server::start(&[]);
    let home = server.first_user();
    home.run(&["users", "create", "-u", "bob", "-e", "bob@example.com"]).success();
    home.run(&["organizations", "create", "blue"]).refused("pass --yes");
    home.run(&["organizations", "create", "blue", "-y"]).success();
    home.run(&["organizations", "create", "blue", "-y"]).refused("already");
    home.run(&["organizations", "create", "default", "-y"]).refused("already");
    assert_eq!(home.run(&["org", "list", "-c", "name"]).success().out, "NAME\nblue\ncoder\n");
    home.run(&["org", "edit", "blue"]).refused("nothing to change");
    home.run(&["org", "edit", "blue", "--display-name", "Sea"]).success();
    assert!(home.run(&["org", "show", "blue", "-c", "display name"]).success().out.contains("Sea"));

    home.run(&["org", "members", "list"]).refused("choose one with --org");
    home.run(&["org", "members", "add", "bob", "--org", "blue"]).success();
    home.run(&["org", "members", "add", "bob", "--org", "blue"]).refused("already");
    home.run(&["org", "members", "edit-roles", "bob", "organization-auditor", "--org", "blue"]).success();
    let list = home.run(&["org", "members", "list", "--org", "blue"]).success().out;
    assert!(list.contains("bob") && list.contains("organization-auditor"), "{list}");
    home.run(&["org", "members", "edit-roles", "bob", "owner", "--org", "blue"])
        .refused("unknown organization role");
    home.run(&["org", "members", "edit-roles", "bob", "--org", "blue"]).success();
    let roles = home.run(&["org", "roles", "show", "--org", "blue", "-c", "name"]).success().out;
    assert!(roles.contains("organization-workspace-creation-ban"), "{roles}");

    home.run(&["org", "delete", "blue", "-y"]).refused("1 members");
    home.run(&["org", "members", "remove", "bob", "--org", "blue"]).success();
    home.run(&["org", "delete", "blue", "-y"]).success();
    home.run(&["org", "delete", "coder", "-y"]).refused("cannot be deleted");
}
