# The workspace of `coder quickstart`: a process of this machine. Nothing to download.

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_provisioner" "me" {}
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

data "coder_parameter" "greeting" {
  name         = "greeting"
  display_name = "Greeting"
  description  = "What the workspace says when it starts."
  default      = "hello"
  mutable      = true

  option {
    name  = "Hello"
    value = "hello"
  }
  option {
    name  = "Moin"
    value = "moin"
  }
}

data "coder_parameter" "page_port" {
  name         = "page_port"
  display_name = "Port of the page"
  description  = "Where the workspace serves its page, on loopback."
  type         = "number"
  default      = 13337
  mutable      = true

  validation {
    min = 1024
    max = 65535
  }
}

resource "coder_agent" "main" {
  os   = data.coder_provisioner.me.os
  arch = data.coder_provisioner.me.arch

  startup_script = <<-EOT
    echo '${data.coder_parameter.greeting.value}, ${data.coder_workspace_owner.me.name}'
    # It goes on in the background while the workspace runs.
    coder exp web-page --address 127.0.0.1:${data.coder_parameter.page_port.value} </dev/null >/dev/null 2>&1 &
  EOT

  env = {
    GREETING = data.coder_parameter.greeting.value
  }

  metadata {
    key          = "disk"
    display_name = "Disk"
    script       = "coder stat disk"
    interval     = 60
  }
}

resource "coder_app" "page" {
  agent_id     = coder_agent.main.id
  slug         = "page"
  display_name = "Page"
  url          = "http://localhost:${data.coder_parameter.page_port.value}"

  healthcheck {
    url       = "http://localhost:${data.coder_parameter.page_port.value}"
    interval  = 5
    threshold = 6
  }
}

# Persistent: the home directory stays when the workspace stops.
resource "terraform_data" "home" {
  input = "${data.coder_workspace_owner.me.name}/${data.coder_workspace.me.name}"
}

# Ephemeral: is there only while the workspace runs.
resource "terraform_data" "machine" {
  count = data.coder_workspace.me.start_count

  input = {
    home  = terraform_data.home.output
    agent = coder_agent.main.id
  }
}

resource "coder_metadata" "machine" {
  count       = data.coder_workspace.me.start_count
  resource_id = terraform_data.machine[0].id

  item {
    key   = "greeting"
    value = data.coder_parameter.greeting.value
  }
  item {
    key   = "home"
    value = terraform_data.home.output
  }
}

# Runs the agent on this machine. Only the daemon of `coder quickstart` has this type: elsewhere a container or a virtual machine
# goes here, which runs coder_agent.main.init_script.
resource "coder_local_agent" "main" {
  count = data.coder_workspace.me.start_count
  token = coder_agent.main.token

  depends_on = [coder_metadata.machine]
}
