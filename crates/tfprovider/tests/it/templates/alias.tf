# Two configurations of the provider.
# env CODER_AGENT_SCRIPT_linux_amd64=${ACCESS_URL}
# step
# step

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

provider "coder" {
  url = "https://one"
}

provider "coder" {
  alias = "two"
  url   = "https://two:444/p"
}

data "coder_workspace" "a" {}
data "coder_workspace" "b" {
  provider = coder.two
}

resource "coder_agent" "a" {
  provider = coder.two
  os       = "linux"
  arch     = "amd64"
}
