# Resources that only apply refuses or warns of.

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

resource "coder_script" "never" {
  agent_id     = "a"
  display_name = "x"
  script       = "s"
}

resource "coder_app" "hidden" {
  agent_id     = "a"
  slug         = "h"
  hidden       = true
  display_name = "x"
  icon         = "y"
  order        = 3
}

resource "coder_ai_task" "none" {
}

resource "coder_script" "blocks" {
  agent_id           = "a"
  display_name       = "x"
  script             = "s"
  run_on_stop        = true
  start_blocks_login = true
}

resource "coder_app" "hidden0" {
  agent_id = "a"
  slug     = "h"
  hidden   = true
  order    = 0
}
