# Data sources with the variables of a job.
# env CODER_PARAMETER_1f6fa6f69d185e6086d04e7330361bf9001a3b8d0ce511171055dc34eb90c1c5=hello
# env CODER_PARAMETER_1a325e9af1de76dc492589ba2d0c8ce69c8bb4a58a16a4a17608c3d58f462ad2=7
# env CODER_PARAMETER_PREVIOUS_1a325e9af1de76dc492589ba2d0c8ce69c8bb4a58a16a4a17608c3d58f462ad2=6
# env CODER_PARAMETER_a843212b80b029e35b469a1f4b4eae3c041dab52110f10f4e47c31e89fabd752=
# env CODER_PARAMETER_4bd77cffb0da8cbda839ed5caaf5d418f19addc5941776e87261e000d6f96e93=["b","a"]
# env CODER_PARAMETER_d2a1edd66cf8b3c1cb7370c86ea29af05a88cd4be42e167afad6ad07cfb95376=true
# env CODER_PARAMETER_5693cccd1a9d0376f2e63794e8bf08a1466cf14683089d67c34be0ce34a8c0dd=
# env CODER_EXTERNAL_AUTH_ACCESS_TOKEN_github=tok
# env CODER_WORKSPACE_NAME=ws
# env CODER_WORKSPACE_ID=wid
# env CODER_WORKSPACE_TRANSITION=stop
# env CODER_WORKSPACE_IS_PREBUILD=TRUE
# env CODER_WORKSPACE_TEMPLATE_ID=ti
# env CODER_WORKSPACE_TEMPLATE_NAME=tn
# env CODER_WORKSPACE_TEMPLATE_VERSION=tv
# env CODER_WORKSPACE_BUILD_ID=b
# env CODER_AGENT_URL=http://x.y:3000
# env CODER_WORKSPACE_OWNER=o
# env CODER_WORKSPACE_OWNER_ID=oid
# env CODER_WORKSPACE_OWNER_EMAIL=e
# env CODER_WORKSPACE_OWNER_NAME=n
# env CODER_WORKSPACE_OWNER_GROUPS=["a"]
# env CODER_WORKSPACE_OWNER_RBAC_ROLES=[{"name":"m","org_id":"u"},{"name":"k"}]
# env CODER_WORKSPACE_OWNER_LOGIN_TYPE=password
# env CODER_WORKSPACE_OWNER_OIDC_ACCESS_TOKEN=oi
# env CODER_WORKSPACE_OWNER_SESSION_TOKEN=st
# env CODER_WORKSPACE_OWNER_SSH_PUBLIC_KEY=pub
# env CODER_WORKSPACE_OWNER_SSH_PRIVATE_KEY=priv
# step

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_workspace" "w" {}
data "coder_workspace_owner" "w" {}
data "coder_workspace_tags" "t" {}
data "coder_workspace_tags" "t2" {
  tags = { a = "b" }
}

data "coder_workspace_tags" "t3" {
  tags = {}
}

data "coder_external_auth" "g" {
  id = "github"
}

data "coder_external_auth" "g2" {
  id       = "gitlab"
  optional = true
}

data "coder_workspace_preset" "p" {
  name = "p"
}

data "coder_workspace_preset" "p2" {
  name        = "p2"
  description = "x"
  icon        = "/x.svg"
  default     = true
  parameters  = { a = "b", c = "" }
  prebuilds {
    instances = 1
  }
}

data "coder_workspace_preset" "p3" {
  name       = "p3"
  parameters = {}
  prebuilds {
    instances = 1
    expiration_policy {
      ttl = 3600
    }
    scheduling {
      timezone = "UTC"
      schedule {
        cron      = "* 8-12 * * 1-5"
        instances = 2
      }
      schedule {
        cron      = "* 13-14 * * 1-5"
        instances = 3
      }
    }
  }
}

data "coder_parameter" "min" {
  name = "min"
}

data "coder_parameter" "all" {
  name         = "all"
  display_name = "All"
  description  = "d"
  type         = "string"
  form_type    = "dropdown"
  styling      = "{\"x\":1}"
  mutable      = true
  ephemeral    = true
  default      = "b"
  icon         = "/i.svg"
  order        = 4
  option {
    name  = "A"
    value = "a"
  }
  option {
    name        = "B"
    value       = "b"
    description = "x"
    icon        = "/y.svg"
  }
}

data "coder_parameter" "num" {
  name    = "num"
  type    = "number"
  default = 5
  validation {
    min       = 0
    max       = 10
    monotonic = "increasing"
  }
}

data "coder_parameter" "nummax" {
  name    = "nummax"
  type    = "number"
  default = 5
  validation {
    max   = 10
    error = "e {max}"
  }
}

data "coder_parameter" "re" {
  name    = "re"
  default = "aaa"
  validation {
    regex = "^a+$"
    error = "x"
  }
}

data "coder_parameter" "emptyval" {
  name    = "emptyval"
  default = "aaa"
  validation {
  }
}

data "coder_parameter" "bool" {
  name    = "bool"
  type    = "bool"
  default = true
}

data "coder_parameter" "list" {
  name    = "list"
  type    = "list(string)"
  default = jsonencode(["a", "b"])
}

data "coder_parameter" "multi" {
  name      = "multi"
  type      = "list(string)"
  form_type = "multi-select"
  default   = "[\"a\"]"
  option {
    name  = "A"
    value = "a"
  }
  option {
    name  = "B"
    value = "b"
  }
}

data "coder_parameter" "listradio" {
  name    = "listradio"
  type    = "list(string)"
  default = "[\"a\"]"
  option {
    name  = "A"
    value = "[\"a\"]"
  }
}

data "coder_parameter" "def0" {
  name    = "def0"
  default = ""
}

data "coder_parameter" "defnull" {
  name    = "defnull"
  default = null
}

data "coder_parameter" "floaty" {
  name    = "floaty"
  type    = "number"
  default = 1.5
}

data "coder_parameter" "opts" {
  name = "opts"
  type = "bool"
  option {
    name  = "t"
    value = "true"
  }
  option {
    name  = "f"
    value = "0"
  }
}

resource "terraform_data" "x" { input = data.coder_parameter.min.value }
