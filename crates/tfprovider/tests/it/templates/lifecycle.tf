# Changes that are ignored, sensitive values, tokens in other resources.
# env CODER_RUNNING_WORKSPACE_AGENT_TOKEN_e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855=tok
# step
# step v=y
# step v=y

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

variable "v" {
  default = null
}

resource "coder_agent" "a" {
  os             = "linux"
  arch           = "amd64"
  startup_script = coalesce(var.v, "x")
  lifecycle {
    ignore_changes = [startup_script, metadata]
  }
  metadata {
    key      = coalesce(var.v, "x")
    script   = "s"
    interval = 1
  }
}

resource "coder_env" "e" {
  agent_id = coder_agent.a.id
  name     = "A"
  value    = coalesce(var.v, "x")
  lifecycle {
    create_before_destroy = true
  }
}

resource "coder_env" "s" {
  agent_id = coder_agent.a.id
  name     = "A"
  value    = sensitive(coalesce(var.v, "x"))
}

resource "coder_agent" "b" {
  os   = "linux"
  arch = "amd64"
  env  = { X = coder_agent.a.token, Y = sensitive("q") }
}
