//! Random names: two words and a digit (http-api 6.3).

const FIRST: &[&str] = &[
    "amber", "bold", "brisk", "calm", "clear", "clever", "cosy", "crisp", "eager", "early", "fair", "fine",
    "fleet", "fond", "fresh", "gentle", "glad", "golden", "grand", "happy", "keen", "kind", "late", "light",
    "lively", "lucid", "mellow", "merry", "mild", "neat", "nimble", "noble", "plain", "proud", "quick",
    "quiet", "rapid", "rare", "ready", "rosy", "sharp", "silver", "sleek", "smooth", "snug", "solid",
    "sound", "spry", "steady", "still", "sunny", "swift", "tidy", "trim", "true", "vivid", "warm", "wide",
    "wise", "witty",
];
const SECOND: &[&str] = &[
    "acorn", "alder", "anchor", "aspen", "badger", "basin", "beacon", "birch", "brook", "canyon", "cedar",
    "cliff", "clover", "comet", "coral", "crane", "creek", "delta", "dune", "ember", "falcon", "fern",
    "field", "finch", "fjord", "forest", "garden", "glacier", "grove", "harbor", "hazel", "heron", "hill",
    "island", "ivy", "lagoon", "lake", "larch", "lark", "lily", "linden", "maple", "marsh", "meadow", "mesa",
    "moss", "oak", "orchid", "osprey", "otter", "pine", "pond", "prairie", "reef", "ridge", "river", "robin",
    "spruce", "stone", "valley", "willow", "wren",
];

/// A fresh name; about 37,000 exist, so callers retry when one is taken.
#[must_use]
pub fn generate() -> String {
    let mut bytes = [0; 8];
    crate::authn::token::random(&mut bytes);
    let [a, b, c, ..] = bytes.map(usize::from);
    let pick =
        |words: &'static [&'static str], high: usize, low: usize| words[(high * 256 + low) % words.len()];
    format!("{}_{}{}", pick(FIRST, a, b), pick(SECOND, usize::from(bytes[3]), usize::from(bytes[4])), c % 10)
}

#[cfg(test)]
mod tests {
    #[test]
    fn generated_names_are_legal_version_names() {
        for _ in 0..100 {
            let name = super::generate();
            assert_eq!(coder_domain::names::template_version(&name), Ok(()), "{name}");
        }
    }
}
