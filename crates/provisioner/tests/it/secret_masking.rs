//! Secrets stay out of all output of a job.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coder_wire::messages::provisionerd as pb;

use crate::fake_server::Server;
use crate::fixture::{Running, edit_build, import, start, tar, variables};

const SECRET: &str = "correct horse/battery";

#[tokio::test(flavor = "multi_thread")]
async fn a_build_prints_no_secret_in_any_form() {
    let real = coder_requirements::require!(program Terraform);
    let encoded = BASE64_STANDARD.encode(format!("admin:{SECRET}"));
    let script = format!(
        "case \"$1\" in\napply)\n  echo 'raw {SECRET} end'\n  echo 'url correct%20horse%2Fbattery end'\n  echo 'base64 {encoded}'\n  \
         echo 'over two correct ho'; echo 'rse/battery lines'\n  printf 'two wri'; printf 'tes correct horse'; sleep 0.3; printf '/battery\\n'\n  \
         echo 'token tok-en-1234567 end' >&2\n  echo 'Error: {SECRET} is wrong' >&2\n  exit 3;;\nesac\nexec \"$REAL\" \"$@\""
    );
    let server = Server::new();
    let _running = Running::with_stand_in(&server, &real, &script);
    let template = "variable \"password\" {\n  sensitive = true\n}\nresource \"terraform_data\" \"a\" {\n  input = var.password\n}\n";
    let mut job = start(tar(&[("main.tf", template)]));
    edit_build(&mut job, |build| {
        build.variable_values = variables(&[("password", SECRET)]);
        let metadata = build.metadata.as_mut().unwrap();
        metadata.workspace_owner_session_token = "tok-en-1234567".to_owned();
    });
    server.give(job);
    let (record, failed) = server.failed().await;
    for wanted in [
        "raw (redacted) end",
        "url (redacted) end",
        "over two (redacted)",
        "(redacted) lines",
        "two writes (redacted)",
        "token (redacted) end",
        "Error: (redacted) is wrong",
    ] {
        assert!(record.lines().any(|line| line.output == wanted), "{wanted} was not said");
    }
    let forbidden = ["horse", "battery", "tok-en", &encoded[8..20]];
    for line in record.lines() {
        assert!(!forbidden.iter().any(|part| line.output.contains(part)), "{}", line.output);
    }
    assert!(failed.error.contains("Error: (redacted) is wrong"), "{}", failed.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_hides_what_its_template_calls_sensitive() {
    coder_requirements::require!(Terraform);
    let template = r#"
variable "given" {
  sensitive = true
}
variable "default" {
  sensitive = true
  default   = "default-of-a-secret"
}
variable "open" {
  default = "open-value"
}
resource "terraform_data" "a" {
  input = "${var.open} ${var.given} ${var.default}"
}
"#;
    let server = Server::new();
    let _running = Running::start(&server);
    server.give(import(tar(&[("main.tf", template)]), &[("given", SECRET), ("open", "open-given")]));
    let (record, result) = server.completed().await;
    let pb::completed_job::Type::TemplateImport(result) = result else { panic!("another result") };
    let plan = String::from_utf8(result.plan.to_vec()).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&plan).is_ok());
    assert!(plan.contains("open-given") && plan.contains("(redacted)"));
    for secret in [SECRET, "default-of-a-secret"] {
        assert!(!plan.contains(secret), "{secret} is in the plan");
        assert!(!record.has_line(secret));
    }
}

/// What Terraform prints of a value: in diagnostics, provider traces, and output of programs.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_of_everything_has_no_secret_in_it() {
    coder_requirements::require!(Terraform);
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    let (socket, cache) = (dir.path().join("socket"), dir.path().join("cache"));
    crate::daemon_process::listen(&server, &socket);
    let trace = std::path::Path::new("trace");
    let _daemon = crate::daemon_process::Child::start(&socket, &cache, &[("TF_LOG", trace)]);
    let template = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
variable "password" {
  sensitive = true
}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
  env  = { PASSWORD = nonsensitive(var.password) }
}
resource "terraform_data" "a" {
  input = "https://user:${urlencode(var.password)}@example.com"
  provisioner "local-exec" {
    command = <<-EOT
      printf '%s' "$P" | fold -w 5; echo
      printf '%s' "user:$P:more" | base64
      printf '{"auth":"%s"}' "$(printf '%s' "x$P" | base64 -w0)" | base64 -w 20 | tr -d '\n' | base64 -d; echo
      head -c 60000 /dev/zero | tr '\0' x; echo "$P" "$P"
      echo "$P" >&2
    EOT
    environment = { P = nonsensitive(var.password) }
  }
}
resource "terraform_data" "b" {
  depends_on = [terraform_data.a]
  input      = 1
  lifecycle {
    postcondition {
      condition     = self.output == 2
      error_message = "it is ${nonsensitive(var.password)}, or ${nonsensitive(base64encode("a:${var.password}"))}"
    }
  }
}
"#;
    let mut job = start(tar(&[("main.tf", template)]));
    edit_build(&mut job, |build| build.variable_values = variables(&[("password", SECRET)]));
    server.give(job);
    let (record, failed) = server.failed().await;
    assert!(record.lines().count() > 500, "there is a trace");
    assert!(failed.error.contains("(redacted)"), "{}", failed.error);
    let forms = ["horse", "battery", "correct", "horse%2F", "orrect+h"].map(str::to_owned);
    let encoded = ["user:", "x", "a:", ""].map(|before| {
        let text = BASE64_STANDARD.encode(format!("{before}{SECRET}"));
        text[before.len() * 4 / 3 + 4..text.len() - 6].to_owned()
    });
    let lines = record.lines().map(|line| &line.output).chain([&failed.error]);
    for line in lines {
        // The start of a split line may be too short to be recognized.
        let found = forms.iter().chain(&encoded).find(|form| line.contains(form.as_str()));
        assert!(found.is_none(), "{found:?} is in {line}");
    }
}
