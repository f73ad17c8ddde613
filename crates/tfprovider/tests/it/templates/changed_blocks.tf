# Blocks that come and go.
# step
# step
# step v=
# step v=
# step v=x

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
  os   = "linux"
  arch = "amd64"
  dynamic "display_apps" {
    for_each = var.v == null ? [1] : []
    content {
      vscode = false
    }
  }
  dynamic "resources_monitoring" {
    for_each = var.v == null ? [] : [1]
    content {
      memory {
        enabled   = true
        threshold = 1
      }
    }
  }
  dynamic "metadata" {
    for_each = var.v == null ? [1, 2] : [2]
    content {
      key          = metadata.value
      script       = "s"
      interval     = metadata.value
      timeout      = 0
      order        = var.v == null ? null : 0
      display_name = ""
    }
  }
}

resource "coder_app" "a" {
  agent_id = "a"
  slug     = "s"
  dynamic "healthcheck" {
    for_each = var.v == null ? [1] : []
    content {
      url       = "u"
      interval  = 0
      threshold = 0
    }
  }
}

resource "coder_metadata" "m" {
  resource_id = "x"
  dynamic "item" {
    for_each = var.v == null ? [1] : [1, 2]
    content {
      key       = item.value
      value     = var.v
      sensitive = true
    }
  }
}
