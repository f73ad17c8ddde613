# Resources that only apply refuses or warns of.

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

resource "coder_script" "never" { # refused: error: at least one of "run_on_start", "run_on_stop", or "cron" must be set
  agent_id     = "a"
  display_name = "x"
  script       = "s"
}

resource "coder_app" "hidden" {
  agent_id     = "a"
  slug         = "h"
  hidden       = true
  display_name = "x" # refused: warning: `display_name` has no effect when `hidden` is set
  icon         = "y" # refused: warning: `icon` has no effect when `hidden` is set
  order        = 3   # refused: warning: `order` has no effect when `hidden` is set
}

resource "coder_ai_task" "none" { # refused: error: 'app_id' must be set
}

resource "coder_script" "blocks" {
  agent_id           = "a"
  display_name       = "x"
  script             = "s"
  run_on_stop        = true
  start_blocks_login = true # refused: error: "start_blocks_login" can only be set if "run_on_start" is "true"
}

resource "coder_app" "hidden0" {
  agent_id = "a"
  slug     = "h"
  hidden   = true
  order    = 0
}
