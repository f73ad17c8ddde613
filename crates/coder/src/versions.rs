//! The version of this program, and the official version that it is compatible with.

use std::sync::LazyLock;

/// Our own version.
pub const PRODUCT: &str = env!("CARGO_PKG_VERSION");

/// The official release whose clients and daemons we work with.
const COMPATIBLE: &str = "v2.30.0";

/// Seven hexadecimal digits that name this build; fixed where the build does not say.
const BUILD: &str = match option_env!("CODER_BUILD_REVISION") {
    Some(revision) => revision,
    None => "0000000",
};

/// The version sent to peers (http-api 1.8): `v2.30.0+0123abc`.
#[must_use]
pub fn compatible() -> String {
    let revision: String = BUILD.chars().take(7).collect();
    format!("{COMPATIBLE}+{revision}")
}

/// The text of `coder --version` after the program's name.
pub(crate) fn line() -> &'static str {
    static VERSION_LINE: LazyLock<String> =
        LazyLock::new(|| format!("{PRODUCT} (compatible with Coder {})", compatible()));
    &VERSION_LINE
}
