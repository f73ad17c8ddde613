//! The `coder` program. The code is in the library, so that tests can use it.

use std::process::ExitCode;

fn main() -> ExitCode {
    coder::main()
}
