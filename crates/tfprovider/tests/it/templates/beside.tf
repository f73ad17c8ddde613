# Zeros beside a change that counts, and values in blocks that only apply knows.
# step
# step v=1
# step v=1
# step v=2
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

resource "terraform_data" "t" { input = coalesce(var.v, "x") }

# A zero that is written beside a change is named, one alone changes nothing.
resource "coder_metadata" "beside" {
  resource_id = coalesce(var.v, "x")
  hide        = var.v == "1" ? false : null
  daily_cost  = var.v == "1" ? 0 : null
  icon        = var.v == "1" ? "" : null
}

resource "coder_metadata" "alone" {
  resource_id = "a"
  hide        = var.v == "1" ? false : null
  daily_cost  = var.v == "1" ? 0 : null
}

# In a list whose other values stay, a number or flag that is not known yet changes nothing where it was zero.
resource "coder_agent" "quiet" {
  os   = "linux"
  arch = "amd64"
  metadata {
    key      = "k"
    script   = "s"
    interval = 1
    timeout  = terraform_data.t.output == "2" ? 5 : null
    order    = terraform_data.t.output == "2" ? 0 : null
  }
}

# Text that is not known yet does.
resource "coder_agent" "loud" {
  os   = "linux"
  arch = "amd64"
  metadata {
    key          = "k"
    script       = "s"
    interval     = 1
    display_name = terraform_data.t.output == "2" ? "" : null
  }
}

# So does any of them when something else in the list changes.
resource "coder_agent" "among" {
  os   = "linux"
  arch = "amd64"
  metadata {
    key      = "k"
    script   = coalesce(var.v, "s")
    interval = 1
    timeout  = terraform_data.t.output == "2" ? 0 : null
  }
}

resource "coder_metadata" "items" {
  resource_id = "a"
  item {
    key       = "k"
    value     = var.v == "1" ? "" : null
    sensitive = terraform_data.t.output == "x" ? null : false
  }
}

# In a set any of them does.
resource "coder_agent" "set" {
  os   = "linux"
  arch = "amd64"
  resources_monitoring {
    memory {
      enabled   = terraform_data.t.output == "q"
      threshold = 0
    }
  }
}
