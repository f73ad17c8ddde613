# Empty and zero values in data sources.
# step

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_parameter" "z" {
  name         = "z"
  display_name = ""
  description  = ""
  icon         = ""
  order        = 0
  mutable      = false
  styling      = ""
  option {
    name        = "x"
    value       = ""
    description = ""
  }
  default = ""
}

data "coder_parameter" "v" {
  name = "v"
  validation {
    error = ""
    regex = ""
  }
}

data "coder_parameter" "v0" {
  name    = "v0"
  type    = "number"
  default = 0
  validation {
    min       = 0
    monotonic = ""
  }
}

data "coder_workspace_preset" "p" {
  name        = "p"
  description = ""
  icon        = ""
  prebuilds {
    instances = 0
    expiration_policy {
      ttl = 0
    }
  }
}

data "coder_workspace_tags" "t" {
  tags = { a = "", b = null }
}
