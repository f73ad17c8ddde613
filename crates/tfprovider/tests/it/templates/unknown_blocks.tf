# Blocks of which only apply knows how many there are.
# step
# step
# step v=y
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

resource "terraform_data" "t" { input = toset([coalesce(var.v, "x")]) }
resource "coder_agent" "a" {
  os   = "linux"
  arch = "amd64"
  dynamic "metadata" {
    for_each = terraform_data.t.output
    content {
      key      = metadata.value
      script   = "s"
      interval = 1
    }
  }
  dynamic "display_apps" {
    for_each = terraform_data.t.output
    content {
      vscode = false
    }
  }
}

resource "coder_app" "a" {
  agent_id = "x"
  slug     = "a"
  dynamic "healthcheck" {
    for_each = terraform_data.t.output
    content {
      url       = "u"
      interval  = 1
      threshold = 2
    }
  }
}

resource "coder_metadata" "m" {
  resource_id = "x"
  dynamic "item" {
    for_each = terraform_data.t.output
    content {
      key   = item.value
      value = null
    }
  }
}


resource "coder_agent" "display" {
  os   = "linux"
  arch = "amd64"
  dynamic "display_apps" {
    for_each = terraform_data.t.output
    content {
      vscode = display_apps.value == "x"
    }
  }
}

resource "coder_agent" "b" {
  os   = "linux"
  arch = "amd64"
  display_apps {
    vscode = contains(terraform_data.t.output, "x")
  }
}
