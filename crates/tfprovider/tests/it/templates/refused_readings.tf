# Parameters and presets whose values are refused when they are read. Those without a mark are fine.

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_parameter" "r00" {
  name      = "r00"
  ephemeral = true # refused: error: parameter can't be immutable and ephemeral
  default   = "a"
}

data "coder_parameter" "r01" {
  name      = "r01"
  ephemeral = true # refused: error: ephemeral parameter requires the default property
  mutable   = true
}

data "coder_parameter" "r02" {
  name    = "r02"
  type    = "number"
  default = "x" # refused: error: Parameter value is not of type "number"
}

data "coder_parameter" "r03" {
  name    = "r03"
  type    = "bool"
  default = "yes" # refused: error: Parameter value is not of type "bool"
}

data "coder_parameter" "r04" {
  name    = "r04"
  type    = "bool"
  default = "T"
}

data "coder_parameter" "r05" {
  name    = "r05"
  type    = "bool"
  default = "T" # refused: error: Invalid parameter default value according to 'validation' block boolean value can be either "true" or "false"
  validation {

  }

}

data "coder_parameter" "r06" {
  name = "r06"
  type = "bool"
  option {
    name  = "a"
    value = "nope" # refused: error: Option "a" with value="nope" is not of type "bool"

  }

}

data "coder_parameter" "r07" {
  name = "r07"
  option {
    name  = "a"
    value = "1"

  }
  option {
    name  = "a" # refused: error: Option names must be unique
    value = "2"

  }

}

data "coder_parameter" "r08" {
  name = "r08"
  option {
    name  = "a"
    value = "1"

  }
  option {
    name  = "b"
    value = "1" # refused: error: Option values must be unique

  }

}

data "coder_parameter" "r09" {
  name    = "r09"
  default = "z" # refused: error: Default value must be a valid option
  option {
    name  = "a"
    value = "1"

  }
  option {
    name  = "b"
    value = "2"

  }

}

data "coder_parameter" "r10" {
  name    = "r10"
  default = "" # refused: error: Default value must be a valid option. The value is empty, did you forget to set it?
  option {
    name  = "a"
    value = "1"

  }
  option {
    name  = "b"
    value = "2"

  }

}

data "coder_parameter" "r11" { # refused: error: Value must be a valid option. The value is empty, did you forget to set it?
  name = "r11"
  option {
    name  = "a"
    value = "1"

  }
  validation {

  }

}

data "coder_parameter" "r12" {
  name      = "r12"
  form_type = "slider" # refused: error: "form_type" "slider" is not supported for "type" "string", choose one of [input textarea]
}

data "coder_parameter" "r13" {
  name      = "r13"
  form_type = "radio" # refused: error: "form_type" "radio" is not supported for "type" "string" when options do not exist, choose one of [input textarea]
}

data "coder_parameter" "r14" {
  name      = "r14"
  form_type = "error" # refused: error: "form_type" "error" is not supported for "type" "string", choose one of [input textarea]
}

data "coder_parameter" "r15" {
  name      = "r15"
  form_type = "input" # refused: error: "form_type" "input" is not supported for "type" "string" when options exist, choose one of [radio dropdown]
  option {
    name  = "a"
    value = "1"

  }

}

data "coder_parameter" "r16" {
  name    = "r16"
  type    = "number"
  default = 5 # refused: error: Invalid parameter default value according to 'validation' block value 5 is less than the minimum 6
  validation {
    min = 6
  }

}

data "coder_parameter" "r17" {
  name    = "r17"
  type    = "number"
  default = 5 # refused: error: Invalid parameter default value according to 'validation' block v=5 0 4
  validation {
    max   = 4
    error = "v={value} {min} {max}"
  }

}

data "coder_parameter" "r18" {
  name    = "r18"
  type    = "number"
  default = 5.5 # refused: error: Invalid parameter default value according to 'validation' block value "5.5" is not a number: a whole one is needed
  validation {
    max = 4
  }

}

data "coder_parameter" "r19" { # refused: error: Invalid parameter value according to 'validation' block value "" is not a number: a whole one is needed
  name = "r19"
  type = "number"
  validation {
    max = 4
  }

}

data "coder_parameter" "r20" {
  name    = "r20"
  default = "a" # refused: error: Invalid parameter default value according to 'validation' block a min cannot be specified for a string type
  validation {
    min = 4
  }

}

data "coder_parameter" "r21" {
  name    = "r21"
  default = "a" # refused: error: Invalid parameter default value according to 'validation' block a max cannot be specified for a string type
  validation {
    max = 0
  }

}

data "coder_parameter" "r22" {
  name    = "r22"
  default = "a" # refused: error: Invalid parameter default value according to 'validation' block monotonic validation can only be specified for number types, not string types
  validation {
    monotonic = "increasing"
  }

}

data "coder_parameter" "r23" {
  name    = "r23"
  type    = "number"
  default = 5 # refused: error: Invalid parameter default value according to 'validation' block number monotonicity can be either "increasing" or "decreasing", not "x"
  validation {
    monotonic = "x"
  }

}

data "coder_parameter" "r24" {
  name    = "r24"
  type    = "number"
  default = 5 # refused: error: Invalid parameter default value according to 'validation' block a regex cannot be specified for a number type
  validation {
    regex = "x"
  }

}

data "coder_parameter" "r25" {
  name    = "r25"
  default = "a" # refused: error: Invalid parameter default value according to 'validation' block an error must be specified with a regex validation
  validation {
    regex = "a"
  }

}

data "coder_parameter" "r26" {
  name    = "r26"
  default = "a" # refused: error: Invalid parameter default value according to 'validation' block compile regex "("
  validation {
    regex = "("
    error = "e"
  }

}

data "coder_parameter" "r27" {
  name    = "r27"
  default = "b" # refused: error: Invalid parameter default value according to 'validation' block e (value "b" does not match "a")
  validation {
    regex = "a"
    error = "e"
  }

}

data "coder_parameter" "r28" {
  name    = "r28"
  type    = "list(string)"
  default = "b" # refused: error: Parameter value is not of type "list(string)"
}

data "coder_parameter" "r29" {
  name    = "r29"
  type    = "list(string)"
  default = "b" # refused: error: Invalid parameter default value according to 'validation' block value "b" is not valid list of strings: write it as a JSON array
  validation {

  }

}

data "coder_parameter" "r30" {
  name    = "r30"
  type    = "list(string)"
  default = "[1]" # refused: error: Parameter value is not of type "list(string)"
}

data "coder_parameter" "r31" {
  name    = "r31"
  type    = "list(string)"
  default = "null"
}

data "coder_parameter" "r32" {
  name      = "r32"
  type      = "list(string)"
  form_type = "multi-select"
  default   = "b" # refused: error: With type list(string), default value must be a JSON list of strings
  option {
    name  = "a"
    value = "a"

  }

}

data "coder_parameter" "r33" {
  name      = "r33"
  type      = "list(string)"
  form_type = "multi-select"
  default   = "[\"b\"]" # refused: error: Default values must be a valid option
  option {
    name  = "a"
    value = "a"

  }

}

data "coder_parameter" "r34" {
  name = "r34"
  type = "list(string)"
  option {
    name  = "a"
    value = "a" # refused: error: Option "a" with value="a" is not of type "list(string)"

  }

}

data "coder_parameter" "r35" {
  name    = "r35"
  type    = "number"
  default = "0x10" # refused: error: Parameter value is not of type "number"
}

data "coder_parameter" "r36" {
  name    = "r36"
  type    = "number"
  default = "1_0"
}

data "coder_parameter" "r37" {
  name    = "r37"
  type    = "number"
  default = "inf"
}

data "coder_parameter" "r38" {
  name    = "r38"
  type    = "number"
  default = "1e999" # refused: error: Parameter value is not of type "number"
}

data "coder_parameter" "r39" {
  name    = "r39"
  type    = "number"
  default = "+5"
  validation {
    min = 1
  }

}

data "coder_parameter" "r40" {
  name    = "r40"
  type    = "number"
  default = "1" # refused: error: Default value must be a valid option
  option {
    name  = "a"
    value = "1.0"

  }

}

data "coder_parameter" "r41" {
  name    = "r41"
  default = "x"
  validation {
    regex = "\\pL"
    error = "e"
  }

}

data "coder_parameter" "r42" {
  name    = "r42"
  default = "x"
  validation {
    regex = "(?<n>x)"
    error = "e"
  }

}

data "coder_parameter" "r43" {
  name    = "r43"
  default = "x" # refused: error: Invalid parameter default value according to 'validation' block compile regex "(?=x)"
  validation {
    regex = "(?=x)"
    error = "e"
  }

}

data "coder_parameter" "r44" {
  name    = "r44"
  default = "x"
  validation {
    error = "e"
  }

}

data "coder_parameter" "r45" {
  name    = "r45"
  type    = "number"
  default = 3 # refused: error: Invalid parameter default value according to 'validation' block parameter value '3' must be equal or greater than previous value: 4
  validation {
    monotonic = "increasing"
  }

}

data "coder_parameter" "r46" {
  name    = "r46"
  type    = "number"
  default = 3 # refused: error: Invalid parameter default value according to 'validation' block parameter value '3' must be equal or lower than previous value: 2
  validation {
    monotonic = "decreasing"
    error     = "q {value}"
  }

}

data "coder_parameter" "r47" { # refused: error: Invalid parameter value according to 'validation' block value "" is not a number: a whole one is needed
  name    = "r47"
  type    = "number"
  default = 3
  validation {
    min = 1
  }

}

data "coder_parameter" "r48" { # refused: error: Value must be a valid option
  name    = "r48"
  default = "a"
  option {
    name  = "a"
    value = "1"

  }

}

data "coder_parameter" "r49" {
  name      = "r49"
  type      = "list(string)"
  form_type = "multi-select"
  option {
    name  = "a"
    value = "a"

  }

}

data "coder_workspace_preset" "p" { # refused: error: schedules of prebuilds: "* 8-12 * * 1-5" and "* 10 * * 3" overlap
  name = "a"
  prebuilds {
    instances = 1
    scheduling {
      timezone = "Europe/Vienna"
      schedule {
        cron      = "* 8-12 * * 1-5"
        instances = 1
      }
      schedule {
        cron      = "* 10 * * 3"
        instances = 1
      }
    }
  }
}

data "coder_workspace_preset" "step" {
  name = "a"
  prebuilds {
    instances = 1
    scheduling {
      timezone = "Europe/Vienna"
      schedule {
        cron      = "* */2 * * 1-5"
        instances = 1
      }
    }
  }
}

data "coder_external_auth" "e" {
  id = "" # refused: error: id is required
}

data "coder_external_auth" "nowhere" {
  count = 0
  id    = ""
}
