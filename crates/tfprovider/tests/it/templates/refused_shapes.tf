# Blocks and arguments that are missing, too many or null, where one is needed.

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

resource "coder_agent" "missing" { # refused: error: Missing required argument The argument "arch" is required, but no definition was found. | error: Missing required argument The argument "os" is required, but no definition was found.
}

resource "coder_agent" "null" { # refused: error: Missing required argument The argument "enabled" is required, but its value is null.
  os   = null                   # refused: error: Missing required argument The argument "os" is required, but its value is null.
  arch = null                   # refused: error: Missing required argument The argument "arch" is required, but its value is null.
  metadata {
    key      = null # refused: error: Missing required argument The argument "key" is required, but its value is null.
    script   = null # refused: error: Missing required argument The argument "script" is required, but its value is null.
    interval = null # refused: error: Missing required argument The argument "interval" is required, but its value is null.
  }
  resources_monitoring {
    memory {
      enabled   = null
      threshold = 1
    }
  }
}

resource "coder_agent" "metadata" {
  os   = "linux"
  arch = "amd64"
  metadata { # refused: error: Missing required argument The argument "interval" is required, but no definition was found. | error: Missing required argument The argument "key" is required, but no definition was found. | error: Missing required argument The argument "script" is required, but no definition was found.
  }
}

resource "coder_agent" "monitors" {
  os   = "linux"
  arch = "amd64"
  resources_monitoring {
    memory { # refused: error: Missing required argument The argument "enabled" is required, but no definition was found. | error: Missing required argument The argument "threshold" is required, but no definition was found.
    }
    volume { # refused: error: Missing required argument The argument "enabled" is required, but no definition was found. | error: Missing required argument The argument "path" is required, but no definition was found. | error: Missing required argument The argument "threshold" is required, but no definition was found.
    }
  }
}

resource "coder_agent" "memories" {
  os   = "linux"
  arch = "amd64"
  resources_monitoring {
    memory {
      enabled   = true
      threshold = 1
    }
    memory { # refused: error: Too many memory blocks No more than 1 "memory" blocks are allowed
      enabled   = true
      threshold = 2
    }
  }
}

resource "coder_agent" "twice" {
  os   = "linux"
  arch = "amd64"
  display_apps {
  }
  display_apps { # refused: error: Too many display_apps blocks No more than 1 "display_apps" blocks are allowed
    vscode = false
  }
}

resource "coder_agent" "monitorings" {
  os   = "linux"
  arch = "amd64"
  resources_monitoring {
  }
  resources_monitoring { # refused: error: Too many resources_monitoring blocks No more than 1 "resources_monitoring" blocks are allowed
  }
}

resource "coder_agent" "app" {
  os   = "linux"
  arch = "amd64"
  display_apps {
    fleet = true # refused: error: Unsupported argument An argument named "fleet" is not expected here.
  }
}

resource "coder_agent_instance" "missing" { # refused: error: Missing required argument The argument "agent_id" is required, but no definition was found. | error: Missing required argument The argument "instance_id" is required, but no definition was found.
}

resource "coder_app" "missing" { # refused: error: Missing required argument The argument "agent_id" is required, but no definition was found. | error: Missing required argument The argument "slug" is required, but no definition was found.
}

resource "coder_app" "null" {
  agent_id = null # refused: error: Missing required argument The argument "agent_id" is required, but its value is null.
  slug     = null # refused: error: Missing required argument The argument "slug" is required, but its value is null.
}

resource "coder_app" "healthcheck" {
  agent_id = "a"
  slug     = "a"
  healthcheck { # refused: error: Missing required argument The argument "interval" is required, but no definition was found. | error: Missing required argument The argument "threshold" is required, but no definition was found. | error: Missing required argument The argument "url" is required, but no definition was found.
  }
}

resource "coder_app" "healthchecks" {
  agent_id = "a"
  slug     = "a"
  healthcheck {
    url       = "u"
    interval  = 1
    threshold = 1
  }
  healthcheck { # refused: error: Too many healthcheck blocks No more than 1 "healthcheck" blocks are allowed
    url       = "u"
    interval  = 2
    threshold = 1
  }
}

resource "coder_app" "external_command" {
  agent_id = "a"
  slug     = "a"
  external = true # refused: error: Conflicting configuration arguments "external": conflicts with command
  command  = "c"
}

resource "coder_app" "external_subdomain" {
  agent_id  = "a"
  slug      = "a"
  external  = true # refused: error: Conflicting configuration arguments "external": conflicts with subdomain
  subdomain = false
}

resource "coder_app" "external_share" {
  agent_id = "a"
  slug     = "a"
  external = false # refused: error: Conflicting configuration arguments "external": conflicts with share
  share    = "owner"
}

resource "coder_script" "missing" { # refused: error: Missing required argument The argument "agent_id" is required, but no definition was found. | error: Missing required argument The argument "display_name" is required, but no definition was found. | error: Missing required argument The argument "script" is required, but no definition was found.
}

resource "coder_env" "missing" { # refused: error: Missing required argument The argument "agent_id" is required, but no definition was found. | error: Missing required argument The argument "name" is required, but no definition was found.
}

resource "coder_env" "strategy" {
  agent_id       = "a"
  name           = "A"
  merge_strategy = "overwrite" # refused: error: expected merge_strategy to be one of ["replace" "append" "prepend" "error"], got "overwrite"
}

resource "coder_devcontainer" "missing" { # refused: error: Missing required argument The argument "agent_id" is required, but no definition was found. | error: Missing required argument The argument "workspace_folder" is required, but no definition was found.
}

resource "coder_external_agent" "missing" { # refused: error: Missing required argument The argument "agent_id" is required, but no definition was found.
}

resource "coder_metadata" "missing" { # refused: error: Missing required argument The argument "resource_id" is required, but no definition was found.
  item {                              # refused: error: Missing required argument The argument "key" is required, but no definition was found.
  }
}

resource "coder_metadata" "null" {
  resource_id = null # refused: error: Missing required argument The argument "resource_id" is required, but its value is null.
  item {
    key = null # refused: error: Missing required argument The argument "key" is required, but its value is null.
  }
}

resource "coder_ai_task" "sidebar" {
  sidebar_app { # refused: error: Missing required argument The argument "id" is required, but no definition was found.
  }
}

resource "coder_ai_task" "sidebars" {
  sidebar_app {
    id = "5ece4674-dd35-4f16-88c8-82e40e72e2fd"
  }
  sidebar_app { # refused: error: Too many sidebar_app blocks No more than 1 "sidebar_app" blocks are allowed
    id = "6ece4674-dd35-4f16-88c8-82e40e72e2fd"
  }
}

resource "coder_ai_task" "plain" {
  app_id = "5ece4674dd354f1688c882e40e72e2fd" # refused: error: expected a valid UUID, got "5ece4674dd354f1688c882e40e72e2fd"
}

data "coder_external_auth" "missing" { # refused: error: Missing required argument The argument "id" is required, but no definition was found.
}

data "coder_parameter" "missing" { # refused: error: Missing required argument The argument "name" is required, but no definition was found.
}

data "coder_parameter" "option" {
  name = "a"
  option { # refused: error: Missing required argument The argument "name" is required, but no definition was found. | error: Missing required argument The argument "value" is required, but no definition was found.
  }
}

data "coder_parameter" "null" {
  name = null # refused: error: Missing required argument The argument "name" is required, but its value is null.
  option {
    name  = null # refused: error: Missing required argument The argument "name" is required, but its value is null.
    value = null # refused: error: Missing required argument The argument "value" is required, but its value is null.
  }
}

data "coder_parameter" "validations" {
  name = "a"
  validation {
  }
  validation { # refused: error: Too many validation blocks No more than 1 "validation" blocks are allowed
  }
}

data "coder_parameter" "max" {
  name = "a"
  validation {
    regex = "a" # refused: error: Conflicting configuration arguments "regex": conflicts with max
    max   = 1
  }
}

data "coder_parameter" "monotonic" {
  name = "a"
  validation {
    regex     = "a" # refused: error: Conflicting configuration arguments "regex": conflicts with monotonic
    monotonic = "increasing"
  }
}

data "coder_workspace_preset" "missing" { # refused: error: Missing required argument The argument "name" is required, but no definition was found.
}

data "coder_workspace_preset" "number" {
  name = 7
}

data "coder_workspace_preset" "map" {
  name       = "a"
  parameters = "no map" # refused: error: Incorrect attribute value type Inappropriate value for attribute "parameters": map of string required.
}

data "coder_workspace_preset" "prebuilds" {
  name = "a"
  prebuilds {           # refused: error: Missing required argument The argument "instances" is required, but no definition was found.
    expiration_policy { # refused: error: Missing required argument The argument "ttl" is required, but no definition was found.
    }
  }
}

data "coder_workspace_preset" "argument" {
  name = "a"
  prebuilds {
    instances = 1
    expiration_policy {
      ttl     = 3600
      invalid = "x" # refused: error: Unsupported argument An argument named "invalid" is not expected here.
    }
  }
}

data "coder_workspace_preset" "long" { # refused: error: "ttl" must be 0 or between 3600 and 31536000, got 63072000
  name = "a"
  prebuilds {
    instances = 1
    expiration_policy {
      ttl = 2 * 31536000
    }
  }
}

data "coder_workspace_preset" "policies" {
  name = "a"
  prebuilds {
    instances = 1
    expiration_policy {
      ttl = 0
    }
    expiration_policy { # refused: error: Too many expiration_policy blocks No more than 1 "expiration_policy" blocks are allowed
      ttl = 3600
    }
  }
  prebuilds { # refused: error: Too many prebuilds blocks No more than 1 "prebuilds" blocks are allowed
    instances = 2
  }
}

data "coder_workspace_preset" "scheduling" {
  name = "a"
  prebuilds {
    instances = 1
    scheduling { # refused: error: Insufficient schedule blocks At least 1 "schedule" blocks are required. | error: Missing required argument The argument "timezone" is required, but no definition was found.
    }
  }
}

data "coder_workspace_preset" "schedule" {
  name = "a"
  prebuilds {
    instances = 1
    scheduling {
      timezone = "UTC"
      schedule { # refused: error: Missing required argument The argument "cron" is required, but no definition was found. | error: Missing required argument The argument "instances" is required, but no definition was found.
      }
    }
  }
}

data "coder_workspace_preset" "instances" {
  name = "a"
  prebuilds {
    instances = 1
    scheduling {
      timezone = "UTC"
      schedule {
        cron      = "* 8 * * *"
        instances = "many" # refused: error: Incorrect attribute value type Inappropriate value for attribute "instances": a number is required.
      }
    }
  }
}

data "coder_workspace_preset" "schedulings" {
  name = "a"
  prebuilds {
    instances = 1
    scheduling {
      timezone = "UTC"
      schedule {
        cron      = "* 8 * * *"
        instances = 1
      }
    }
    scheduling { # refused: error: Too many scheduling blocks No more than 1 "scheduling" blocks are allowed
      timezone = "UTC"
      schedule {
        cron      = "* 8 * * *"
        instances = 1
      }
    }
  }
}

data "coder_workspace" "set" {
  name = "mine" # refused: error: Value for unconfigurable attribute Can't configure a value for "name": its value will be decided automatically based on the result of applying this configuration.
}

data "coder_workspace_owner" "set" {
  name = "me" # refused: error: Value for unconfigurable attribute Can't configure a value for "name": its value will be decided automatically based on the result of applying this configuration.
}

data "coder_provisioner" "set" {
  os = "linux" # refused: error: Value for unconfigurable attribute Can't configure a value for "os": its value will be decided automatically based on the result of applying this configuration.
}

data "coder_task" "set" {
  prompt = "do" # refused: error: Value for unconfigurable attribute Can't configure a value for "prompt": its value will be decided automatically based on the result of applying this configuration.
}
