# Data sources: without a job, and with the variables of one in data_job.env.
# step
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
