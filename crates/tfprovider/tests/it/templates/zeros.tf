# Empty and zero values against absent ones.
# step
# step a=false b=0 c=
# step
# step a=true b=1 c=x
# step a=false b=0 c=
# step a=true b=1 c=x
# step

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

variable "a" {
  default = null
}

variable "b" {
  default = null
}

variable "c" {
  default = null
}

variable "d" {
  default = null
}

resource "coder_app" "a" {
  agent_id  = "a"
  slug      = "a"
  subdomain = var.a
  order     = var.b
  icon      = var.c
  share     = "owner"
  group     = var.d
}

resource "coder_agent" "a" {
  os    = "linux"
  arch  = "arm64"
  env   = var.a == null ? null : {}
  order = var.b
  dir   = var.c
  metadata {
    key          = "k"
    script       = "s"
    interval     = 1
    timeout      = var.b
    display_name = var.c
  }
}

resource "coder_metadata" "m" {
  resource_id = "a"
  hide        = var.a
  daily_cost  = var.b
  icon        = var.c
  item {
    key       = "x"
    value     = var.c
    sensitive = var.a
  }
}

resource "coder_script" "s" {
  agent_id     = "a"
  display_name = "d"
  script       = "s"
  run_on_start = true
  run_on_stop  = var.a
  icon         = var.c
}

resource "coder_env" "e" {
  agent_id = "a"
  name     = "A"
  value    = var.c
}
