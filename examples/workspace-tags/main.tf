# Chooses the pool of provisioners by a parameter: jobs carry the tags below, and only daemons that have them run these jobs.

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

variable "environment" {
  type        = string
  description = "Environment in which all workspaces of this template are built."
  default     = "on_prem"
}

data "coder_parameter" "datacenter" {
  name         = "datacenter"
  display_name = "Data center"
  description  = "Where the workspace runs."
  default      = "chicago"
  mutable      = false

  option {
    name  = "Chicago"
    value = "chicago"
  }
  option {
    name  = "New York"
    value = "new_york"
  }
}

data "coder_workspace_tags" "pool" {
  tags = {
    environment = var.environment
    datacenter  = data.coder_parameter.datacenter.value
  }
}

data "coder_workspace" "me" {}

resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}

resource "terraform_data" "machine" {
  count = data.coder_workspace.me.start_count

  input = {
    datacenter = data.coder_parameter.datacenter.value
    agent      = coder_agent.main.id
  }
}
