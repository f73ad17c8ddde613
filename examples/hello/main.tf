# The smallest useful template: no cloud, no container, nothing to download.

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

resource "coder_agent" "main" {
  os   = data.coder_provisioner.me.os
  arch = data.coder_provisioner.me.arch

  startup_script = "echo '${data.coder_parameter.greeting.value}, ${data.coder_workspace_owner.me.name}'"

  env = {
    GREETING = data.coder_parameter.greeting.value
  }
}

resource "coder_app" "docs" {
  agent_id     = coder_agent.main.id
  slug         = "docs"
  display_name = "Documentation"
  url          = "https://developer.hashicorp.com/terraform/docs"
  external     = true
}

# Persistent: stays when the workspace stops.
resource "terraform_data" "home" {
  input = "${data.coder_workspace_owner.me.name}/${data.coder_workspace.me.name}"
}

# Ephemeral: is there only while the workspace runs. A virtual machine or container goes here.
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
