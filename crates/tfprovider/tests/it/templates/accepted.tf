# Everything at its limits, in every spelling that is allowed: nothing of it is refused or warned of.

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

resource "terraform_data" "later" { input = "x" }

locals {
  letters = join("", [for i in range(1024) : "aa"])
}

resource "coder_agent" "agents" {
  for_each = {
    a = ["linux", "amd64", "token", "all", "blocking"]
    b = ["darwin", "arm64", "google-instance-identity", "no_user_data", "non-blocking"]
    c = ["windows", "armv7", "aws-instance-identity", "all", "blocking"]
    d = ["linux", "arm64", "azure-instance-identity", "all", "blocking"]
  }
  os                      = each.value[0]
  arch                    = each.value[1]
  auth                    = each.value[2]
  api_key_scope           = each.value[3]
  startup_script_behavior = each.value[4]
  connection_timeout      = 0
  resources_monitoring {
    memory {
      enabled   = true
      threshold = 0
    }
    volume {
      path      = "/"
      enabled   = false
      threshold = 100
    }
  }
}

resource "coder_app" "apps" {
  for_each = {
    a = ["owner", "tab"]
    b = ["authenticated", "slim-window"]
    c = ["public", "tab"]
  }
  agent_id     = "a"
  slug         = "1-${each.key}"
  share        = each.value[0]
  open_in      = each.value[1]
  display_name = substr(local.letters, 0, 64)
  group        = substr(local.letters, 0, 64)
  tooltip      = local.letters
}

resource "coder_app" "icons" {
  for_each = toset(["", "/icon/code.svg", "name with spaces", "https://user:pw@host:1/a?b=%zz#c", "x:y", "emoji/🙂"])
  agent_id = "a"
  slug     = "a"
  icon     = each.key
}

resource "coder_app" "external" {
  agent_id = "a"
  slug     = "a"
  url      = "https://elsewhere"
  external = true
}

resource "coder_app" "hidden" {
  agent_id     = "a"
  slug         = "a"
  hidden       = true
  display_name = ""
  icon         = ""
  order        = 0
}

# What is not known yet conflicts with nothing, and a block that holds it is not looked at.
resource "coder_app" "later" {
  agent_id = "a"
  slug     = "a"
  command  = "c"
  url      = terraform_data.later.output == "x" ? null : "u"
}

resource "coder_script" "crons" {
  for_each = toset([
    "0 0 22 * * *",
    "*/15 0-30/5 1,2,3 ? JAN-mar mon",
    "@daily",
    "@every 1h30m",
    "CRON_TZ=Europe/Vienna 0 0 9 * * 1-5",
  ])
  agent_id     = "a"
  display_name = "a"
  script       = "a"
  cron         = each.key
  timeout      = 1
}

resource "coder_script" "blocks" {
  agent_id           = "a"
  display_name       = "a"
  script             = "a"
  run_on_start       = true
  start_blocks_login = true
}

resource "coder_script" "stops" {
  agent_id     = "a"
  display_name = "a"
  script       = "a"
  run_on_stop  = true
}

resource "coder_env" "envs" {
  for_each       = toset(["replace", "append", "prepend", "error"])
  agent_id       = "a"
  name           = "_a1_B"
  value          = ""
  merge_strategy = each.key
}

resource "coder_metadata" "same" {
  resource_id = "a"
  item {
    key = ""
  }
  item {
    key = "a"
  }
}

data "coder_workspace_preset" "presets" {
  for_each = {
    a = [0, "UTC"]
    b = [3600, "America/Argentina/Buenos_Aires"]
    c = [31536000, ""]
  }
  name        = each.key
  description = substr(local.letters, 0, 128)
  icon        = substr(local.letters, 0, 256)
  parameters  = { empty = "" }
  prebuilds {
    instances = 0
    expiration_policy {
      ttl = each.value[0]
    }
    scheduling {
      timezone = each.value[1]
      schedule {
        cron      = "* 8-12 * * 1-5"
        instances = 0
      }
      schedule {
        cron      = "* 13-18 * * 1-5"
        instances = 0
      }
    }
  }
}

# Steps and names cannot be compared, and need not be where months differ.
data "coder_workspace_preset" "months" {
  name = "a"
  prebuilds {
    instances = 0
    scheduling {
      timezone = "UTC"
      schedule {
        cron      = "* */2 * 1 mon"
        instances = 0
      }
      schedule {
        cron      = "* */2 * 2 tue"
        instances = 0
      }
    }
  }
}
