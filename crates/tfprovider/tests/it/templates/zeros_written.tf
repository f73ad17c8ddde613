# Empty and zero values that are written out.
# step
# step

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

resource "coder_agent" "a" {
  os                 = "linux"
  arch               = "amd64"
  env                = { A = null, B = "" }
  dir                = ""
  startup_script     = ""
  motd_file          = ""
  order              = 0
  connection_timeout = 0
  metadata {
    key          = "a"
    script       = ""
    interval     = 0
    timeout      = 0
    order        = 0
    display_name = ""
  }
}

resource "coder_metadata" "m" {
  resource_id = ""
  hide        = false
  daily_cost  = 0
  icon        = ""
}

resource "coder_script" "s" {
  agent_id     = ""
  display_name = ""
  script       = ""
  run_on_start = true
  run_on_stop  = false
  icon         = ""
  log_path     = ""
}
