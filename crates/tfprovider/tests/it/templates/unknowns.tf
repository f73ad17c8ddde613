# Values that only apply knows.
# step
# step
# step v=yy

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

resource "terraform_data" "t" { input = coalesce(var.v, "x") }
resource "coder_agent" "a" {
  os             = "linux"
  arch           = "arm64"
  startup_script = terraform_data.t.output
  env            = { A = terraform_data.t.output }
  order          = length(terraform_data.t.output)
  display_apps {
    vscode = terraform_data.t.output == "x"
  }
  metadata {
    key      = terraform_data.t.output
    script   = "s"
    interval = 1
  }
  dynamic "metadata" {
    for_each = toset([terraform_data.t.output])
    content {
      key      = "y"
      script   = "s"
      interval = 1
    }
  }
  resources_monitoring {
    volume {
      path      = terraform_data.t.output == "x" ? "/a" : "/b"
      enabled   = true
      threshold = 10
    }
  }
}

resource "coder_app" "a" {
  agent_id = coder_agent.a.id
  slug     = terraform_data.t.output
  healthcheck {
    url       = terraform_data.t.output
    interval  = 1
    threshold = 2
  }
}

resource "coder_metadata" "m" {
  resource_id = terraform_data.t.id
  item {
    key   = "k"
    value = terraform_data.t.output
  }
  item {
    key   = "n"
    value = terraform_data.t.output == "x" ? null : "z"
  }
}

data "coder_parameter" "p" {
  name    = "p"
  default = terraform_data.t.output
}

output "o" { value = data.coder_parameter.p.value }
