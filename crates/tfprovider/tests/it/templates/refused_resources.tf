# Configurations that validation refuses.

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

resource "coder_agent" "os" {
  os   = "bsd" # refused: error: expected os to be one of ["linux" "darwin" "windows"], got "bsd"
  arch = "amd64"
}

resource "coder_agent" "many" {
  os                      = "linux"
  arch                    = "x86"  # refused: error: expected arch to be one of ["amd64" "armv7" "arm64"], got "x86"
  auth                    = "none" # refused: error: expected auth to be one of ["token" "google-instance-identity" "aws-instance-identity" "azure-instance-identity"], got "none"
  api_key_scope           = "x"    # refused: error: expected api_key_scope to be one of ["all" "no_user_data"], got "x"
  startup_script_behavior = "x"    # refused: error: expected startup_script_behavior to be one of ["blocking" "non-blocking"], got "x"
  connection_timeout      = -1     # refused: error: expected connection_timeout to be at least (0), got -1
}

resource "coder_agent" "frac" {
  os    = "linux"
  arch  = "amd64"
  order = 1.5 # refused: error: Attribute must be a whole number, got 1.5
}

resource "coder_agent" "comp" {
  os    = "linux"
  arch  = "amd64"
  token = "x" # refused: error: Value for unconfigurable attribute
}

resource "coder_agent" "mon" { # refused: error: expected threshold to be in the range (0 - 100), got -1 | error: expected threshold to be in the range (0 - 100), got 101 | error: volume path "a" must be an absolute path | error: volume path must not be empty
  os   = "linux"
  arch = "amd64"
  resources_monitoring {
    memory {
      enabled   = true
      threshold = 101
    }
    volume {
      enabled   = true
      threshold = -1
      path      = "a"
    }
    volume {
      enabled   = true
      threshold = 1
      path      = ""
    }
  }
}

resource "coder_app" "bad" {
  agent_id     = "a"
  slug         = "A--b"                                                                   # refused: error: invalid coder_app slug "A--b": it must match ^[a-z0-9](-?[a-z0-9])*$
  display_name = "0123456789012345678901234567890123456789012345678901234567890123456789" # refused: error: expected display_name to have at most 64 characters, got 70
  group        = "0123456789012345678901234567890123456789012345678901234567890123456789" # refused: error: expected group to have at most 64 characters, got 70
  icon         = "/a%zz"                                                                  # refused: error: invalid URL in icon: a percent sign is not followed by two hexadecimal digits
  share        = "x"                                                                      # refused: error: expected share to be one of ["owner" "authenticated" "public"], got "x"
  open_in      = "y"                                                                      # refused: error: expected open_in to be one of ["tab" "slim-window"], got "y"
  order        = 0.5                                                                      # refused: error: Attribute must be a whole number, got 0.5
}

resource "coder_app" "tt" {
  agent_id = "a"
  slug     = "ab"
  tooltip  = join("", [for i in range(300) : "abcdefgh"]) # refused: error: expected tooltip to have at most 2048 characters, got 2400
}

resource "coder_app" "conf" {
  agent_id  = "a"
  slug      = "ab"
  command   = "x" # refused: error: "command": conflicts with url
  url       = "x" # refused: error: "url": conflicts with command
  subdomain = true
}

resource "coder_app" "conf2" { # refused: error: "healthcheck": conflicts with command
  agent_id  = "a"
  slug      = "ab"
  command   = "x"
  external  = true # refused: error: "external": conflicts with healthcheck
  share     = "owner"
  subdomain = true
  healthcheck {
    url       = "x"
    interval  = 1
    threshold = 1
  }
}

resource "coder_app" "nullslug" {
  agent_id = "a"
  slug     = "" # refused: error: invalid coder_app slug "": it must match ^[a-z0-9](-?[a-z0-9])*$
}

resource "coder_env" "bad" {
  agent_id = "a"
  name     = "bad-name" # refused: error: invalid value for name "bad-name": it must match ^[a-zA-Z_][a-zA-Z0-9_]*$
}

resource "coder_script" "cron" {
  agent_id     = "a"
  display_name = "x"
  script       = "s"
  cron         = "0 0 22 * * * *" # refused: error: "0 0 22 * * * *" is not a valid cron expression: expected 5 to 6 fields, found 7
}

resource "coder_script" "cronbad" {
  agent_id     = "a"
  display_name = "x"
  script       = "s"
  cron         = "hello" # refused: error: "hello" is not a valid cron expression: expected 5 to 6 fields, found 1
  timeout      = 0       # refused: error: expected timeout to be at least (1), got 0
}

resource "coder_script" "cron5" {
  agent_id     = "a"
  display_name = "x"
  script       = "s"
  cron         = "0 22 * * *" # refused: warning: The cron expression "0 22 * * *" appears to be in Unix 5-field format
}

resource "coder_script" "cron5b" {
  agent_id     = "a"
  display_name = "x"
  script       = "s"
  cron         = "0 22 31 * *" # refused: error: "0 22 31 * *" is not a valid cron expression: "31" is outside of 0 to 23 | warning: The cron expression "0 22 31 * *" appears to be in Unix 5-field format
}

resource "coder_metadata" "bad" {
  resource_id = "a"
  icon        = "http://a b" # refused: error: invalid URL in icon: the host contains a character that is not allowed there
  daily_cost  = 1.2          # refused: error: Attribute must be a whole number, got 1.2
}

resource "coder_metadata" "comp" {
  resource_id = "a"
  item {
    key     = "a"
    is_null = true # refused: error: Value for unconfigurable attribute
  }
}

resource "coder_metadata" "id" {
  resource_id = "a"
  id          = "b" # refused: error: Invalid or unknown key
}

resource "coder_ai_task" "bad" {
  app_id = "nope" # refused: error: expected a valid UUID, got "nope"
}

resource "coder_ai_task" "id" {
  id = "nope" # refused: error: Value for unconfigurable attribute
}

resource "coder_ai_task" "bad2" {                 # refused: error: "sidebar_app": conflicts with app_id
  app_id = "5ece4674-dd35-4f16-88c8-82e40e72e2fd" # refused: error: "app_id": conflicts with sidebar_app
  sidebar_app {
    id = "5ece4674-dd35-4f16-88c8-82e40e72e2fd"
  }
}

resource "coder_ai_task" "bad3" { # refused: error: expected a valid UUID, got "x" | warning: Argument is deprecated
  sidebar_app {
    id = "x"
  }
}

resource "coder_devcontainer" "bad" {
  agent_id         = "a"
  workspace_folder = "" # refused: error: expected workspace_folder to not be an empty string
}
