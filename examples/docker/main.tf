# One container per running workspace, one volume that stays.

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
    docker = {
      source = "kreuzwerker/docker"
    }
  }
}

variable "docker_socket" {
  type        = string
  description = "URI of the Docker socket; empty takes the provider's default."
  default     = ""
}

provider "docker" {
  host = var.docker_socket != "" ? var.docker_socket : null
}

data "coder_provisioner" "me" {}
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

data "coder_parameter" "image" {
  name         = "image"
  display_name = "Image"
  description  = "Image of the container; it needs a shell and curl."
  default      = "buildpack-deps:bookworm"
  mutable      = true
}

locals {
  name = lower("coder-${data.coder_workspace_owner.me.name}-${data.coder_workspace.me.name}")
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = data.coder_provisioner.me.arch
  dir  = "/home/coder"

  metadata {
    display_name = "Disk"
    key          = "disk"
    script       = "df -h / | awk 'NR == 2 { print $5 }'"
    interval     = 60
    timeout      = 5
  }
}

resource "docker_volume" "home" {
  name = "coder-${data.coder_workspace.me.id}-home"

  # A renamed workspace keeps its files.
  lifecycle {
    ignore_changes = all
  }

  labels {
    label = "coder.workspace_id"
    value = data.coder_workspace.me.id
  }
  labels {
    label = "coder.owner"
    value = data.coder_workspace_owner.me.name
  }
}

resource "docker_container" "workspace" {
  count    = data.coder_workspace.me.start_count
  name     = local.name
  hostname = data.coder_workspace.me.name
  image    = data.coder_parameter.image.value

  # Inside the container "localhost" is the container itself.
  entrypoint = ["sh", "-c", replace(coder_agent.main.init_script, "/localhost|127\\.0\\.0\\.1/", "host.docker.internal")]
  env        = ["CODER_AGENT_TOKEN=${coder_agent.main.token}"]

  host {
    host = "host.docker.internal"
    ip   = "host-gateway"
  }

  volumes {
    container_path = "/home/coder"
    volume_name    = docker_volume.home.name
    read_only      = false
  }
}
