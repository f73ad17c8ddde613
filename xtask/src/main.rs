//! `cargo xtask`: everything around the product that is not the product. `ci` is the whole of continuous integration.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a developer's tool prints to the terminal")]

use std::process::ExitCode;

mod bench;
mod charts;
mod ci;
mod codegen;
mod dist;
mod helm;
mod image;
mod postgres;
mod run;
mod test;
mod tidy;
mod tools;

const HELP: &str = "\
usage: cargo xtask COMMAND

  test [ARGS…]      run every test, with Postgres started for them; ARGS go to cargo test
  ci                format, lints, tests, generated files: what decides whether a change lands
  codegen [--check] regenerate the committed protocol code, or fail when it is stale
  tidy              print the largest files and check the house rules
  dist              build the static, stripped binary into target/dist
  charts [ARGS…]    package the Helm charts into target/charts, with the index of their repository
  image [ARGS…]     write the container images into target/images as OCI archives
  helm              build the Helm that the tests of the charts use into target/tools
  bench [NAME…]     measure the figures of docs/performance.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let result = match command {
        "test" => test::run(rest),
        "ci" => ci::run(),
        "codegen" => codegen::run(rest.iter().any(|argument| argument == "--check")),
        "tidy" => tidy::run(),
        "dist" => dist::run().map(|path| println!("{}", path.display())),
        "charts" => charts::run(rest),
        "image" => image::run(rest),
        "helm" => helm::build().map(|path| println!("{}", path.display())),
        "bench" => bench::run(rest),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(anyhow::anyhow!("unknown command {other:?}\n{HELP}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
