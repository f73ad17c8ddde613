v = { a = [1, true, null], "b" = "c" }
