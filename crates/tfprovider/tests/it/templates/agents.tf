# Agents, apps, scripts, variables and metadata: made, kept, replaced.
# env CODER_AGENT_URL=https://dev.coder.com:99/x/y?z=1
# env CODER_AGENT_SCRIPT_linux_amd64=${ACCESS_URL} ${AUTH_TYPE} ${ARCH} x
# step
# step
# step v=2
# step v=2
# step

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

resource "coder_agent" "min" {
  os   = "linux"
  arch = "amd64"
}

resource "coder_agent" "full" {
  os             = "linux"
  arch           = "amd64"
  dir            = ""
  order          = 0
  env            = { A = "b", V = coalesce(var.v, "1") }
  startup_script = "x ${coalesce(var.v, "1")}"
  metadata {
    key      = "k"
    script   = "s${coalesce(var.v, "1")}"
    interval = 5
  }
  dynamic "metadata" {
    for_each = var.v == null ? [] : [1]
    content {
      key      = "k2"
      script   = "zz"
      interval = 6
      timeout  = 3
    }
  }
  display_apps {
    vscode = var.v == null
  }
  resources_monitoring {
    memory {
      enabled   = true
      threshold = var.v == null ? 80 : 90
    }
    volume {
      path      = "/a"
      enabled   = true
      threshold = 3
    }
    volume {
      path      = "/b"
      enabled   = false
      threshold = 0
    }
  }
}

resource "coder_env" "e" {
  agent_id = coder_agent.min.id
  name     = "X"
}

resource "coder_env" "e2" {
  agent_id = "x"
  name     = "X"
  value    = ""
}

resource "coder_app" "a" {
  agent_id = coder_agent.full.id
  slug     = "a"
  order    = 0
  healthcheck {
    url       = "http://x"
    interval  = 5
    threshold = var.v == null ? 5 : 6
  }
}

resource "coder_script" "s" {
  agent_id     = coder_agent.full.id
  display_name = "s"
  script       = "echo"
  run_on_start = true
}

resource "coder_metadata" "m" {
  resource_id = coder_agent.full.id
  item {
    key = "a"
  }
  item {
    key   = "b"
    value = ""
  }
  item {
    key       = "c"
    value     = coder_agent.full.id
    sensitive = true
  }
  dynamic "item" {
    for_each = var.v == null ? ["x", "y"] : ["y"]
    content {
      key   = "i-${item.value}"
      value = "v"
    }
  }
}
