# Tasks, dev containers and what else has no rules; with a task in tasks_job.env.
# step
# step
# step v=1

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

resource "coder_ai_task" "a" {
  app_id = "5ece4674-dd35-4f16-88c8-82e40e72e2fd"
}

resource "coder_ai_task" "s" {
  sidebar_app {
    id = var.v == null ? "5ece4674-dd35-4f16-88c8-82e40e72e2fd" : "6ece4674-dd35-4f16-88c8-82e40e72e2fd"
  }
}

data "coder_task" "t" {}
resource "coder_devcontainer" "d" {
  agent_id         = "a"
  workspace_folder = "/x"
}

resource "coder_devcontainer" "d2" {
  agent_id         = "a"
  workspace_folder = "/x"
  config_path      = "y"
}

resource "coder_external_agent" "e" {
  agent_id = "x"
}

resource "coder_agent_instance" "e" {
  agent_id    = "x"
  instance_id = coalesce(var.v, "i")
}

output "t" { value = data.coder_task.t.prompt }
