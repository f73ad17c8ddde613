# The usual shape of a template: counts, for_each, references.
# step
# step

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_workspace" "me" {}
resource "coder_agent" "a" {
  count = data.coder_workspace.me.start_count
  os    = data.coder_workspace.me.transition == "start" ? "linux" : "darwin"
  arch  = "amd64"
}

resource "coder_app" "x" {
  for_each     = toset(["a", "b"])
  agent_id     = one(coder_agent.a[*].id)
  slug         = each.key
  display_name = upper(each.key)
  url          = "http://localhost:1"
  subdomain    = true
  tooltip      = "**x**"
}

resource "coder_metadata" "m" {
  resource_id = terraform_data.z.id
  dynamic "item" {
    for_each = { a = 1, b = 2 }
    content {
      key   = item.key
      value = item.value
    }
  }
}

resource "terraform_data" "z" { input = one(coder_agent.a[*].token) }
resource "terraform_data" "z2" { input = one(coder_agent.a[*].init_script) }
output "t" {
  value     = one(coder_agent.a[*].token)
  sensitive = true
}
