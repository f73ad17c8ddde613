# Configurations of data sources that validation refuses.

terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_parameter" "t" {
  name = "t"
  type = "x" # refused: error: expected type to be one of ["number" "string" "bool" "list(string)"], got "x"
}

data "coder_parameter" "ft" {
  name      = "ft"
  form_type = "zz" # refused: error: expected form_type to be one of ["radio" "slider" "input" "dropdown" "checkbox" "switch" "multi-select" "tag-select" "textarea" "error"], got "zz"
}

data "coder_parameter" "ic" {
  name = "ic"
  icon = "/%zz" # refused: error: invalid URL in icon: a percent sign is not followed by two hexadecimal digits
}

data "coder_parameter" "oi" {
  name = "oi"
  option {
    name  = "a"
    value = "b"
    icon  = "http://a b" # refused: error: invalid URL in icon: the host contains a character that is not allowed there
  }

}

data "coder_parameter" "rm" {
  name = "rm"
  validation {
    regex = "a" # refused: error: "regex": conflicts with min
    min   = 1
    error = "x"
  }

}

data "coder_parameter" "comp" {
  name  = "comp"
  value = "x" # refused: error: Value for unconfigurable attribute
}

data "coder_parameter" "comp2" {
  name = "comp2"
  validation {
    min_disabled = true # refused: error: Value for unconfigurable attribute
  }

}

data "coder_parameter" "id" {
  name = "id"
  id   = "x" # refused: error: Invalid or unknown key
}

data "coder_parameter" "minf" {
  name = "minf"
  type = "number"
  validation {
    min = 1.5 # refused: error: Attribute must be a whole number, got 1.5
  }

}

data "coder_parameter" "ofr" {
  name  = "ofr"
  order = 2.5 # refused: error: Attribute must be a whole number, got 2.5
}

data "coder_workspace_preset" "n" {
  name = "" # refused: error: expected name to not be an empty string
}

data "coder_workspace_preset" "d" {
  name        = "a"
  description = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"                                                                                                                                 # refused: error: expected description to have at most 128 characters, got 129
  icon        = "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy" # refused: error: expected icon to have at most 256 characters, got 257
}

data "coder_workspace_preset" "neg" { # refused: error: "ttl" must be 0 or between 3600 and 31536000, got 1800 | error: cron expression "* 2 * * * *" should have 5 fields, found 6: minute hour day-of-month month day-of-week | error: expected instances to be at least (0), got -1 | error: failed to load timezone "Mars/X": it is not in the time zone database | error: failed to parse cron expression "* 25 * * *": "25" is outside of 0 to 23 | error: minute field of cron expression "0 8 * * *" should be *
  name = "a"
  icon = "/%zz" # refused: error: invalid URL in icon: a percent sign is not followed by two hexadecimal digits
  prebuilds {
    instances = -1
    expiration_policy {
      ttl = 1800
    }
    scheduling {
      timezone = "Mars/X"
      schedule {
        cron      = "0 8 * * *"
        instances = 1
      }
      schedule {
        cron      = "* 25 * * *"
        instances = 1
      }
      schedule {
        cron      = "* 2 * * * *"
        instances = 1
      }
    }
  }
}

data "coder_parameter" "v" {
  name      = "v"
  form_type = "" # refused: error: expected form_type to be one of ["radio" "slider" "input" "dropdown" "checkbox" "switch" "multi-select" "tag-select" "textarea" "error"], got ""
}
