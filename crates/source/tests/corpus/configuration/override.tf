locals {
  l = { a = "o" }
}
