//! The `coder` program; everything is in the library beside it so that tests can reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    coder::main()
}
