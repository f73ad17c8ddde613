# Configurations that only a plan refuses.

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

resource "coder_agent" "dup" {
  os   = "linux"
  arch = "amd64"
  metadata {
    key      = "k"
    script   = "s"
    interval = 1
  }
  metadata {
    key      = "k" # refused: error: duplicate agent metadata key "k"
    script   = "s"
    interval = 1
  }
}

resource "coder_agent" "empty" { # refused: error: resources_monitoring must define at least one monitor
  os   = "linux"
  arch = "amd64"
  resources_monitoring {
  }
}

resource "coder_agent" "dupvol" { # refused: error: duplicate volume path "/a"
  os   = "linux"
  arch = "amd64"
  resources_monitoring {
    volume {
      enabled   = true
      threshold = 1
      path      = "/a"
    }
    volume {
      enabled   = true
      threshold = 2
      path      = "/a"
    }
  }
}

resource "coder_metadata" "dup" {
  resource_id = "a"
  item {
    key = "a"
  }
  item {
    key = "a" # refused: error: duplicate resource metadata key "a"
  }
}
