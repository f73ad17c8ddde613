//! `coder_env`: one variable of an agent's sessions.

use super::Resource;
use crate::check::{Check, CheckResult};
use crate::schema::Type::Text;
use crate::schema::{Attribute, Block, Schema};
use crate::value::Value;

pub(super) fn resource() -> Resource {
    let block = Block::new(vec![
        Attribute::id(),
        Attribute::required("agent_id", Text, "Id of the agent."),
        Attribute::required("name", Text, "Name of the variable.").check(Check::Text(name)),
        Attribute::optional("value", Text, "Value of the variable."),
        Attribute::optional("merge_strategy", Text, "What happens when the variable is set already.")
            .default(Value::text("replace"))
            .check(Check::OneOf(&["replace", "append", "prepend", "error"])),
    ]);
    Resource::plain("coder_env", Schema { version: 1, block })
}

fn name(name: &str) -> CheckResult {
    let starts = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let bytes = name.as_bytes();
    let fits = bytes.first().copied().is_some_and(starts)
        && bytes.iter().all(|byte| starts(*byte) || byte.is_ascii_digit());
    if fits {
        CheckResult::Passed
    } else {
        CheckResult::error(format!("invalid value for name {name:?}: it must match ^[a-zA-Z_][a-zA-Z0-9_]*$"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_a_shell_takes() {
        let fits = |text| matches!(name(text), CheckResult::Passed);
        assert!(["A", "_", "a1_B"].into_iter().all(fits));
        assert!(!["", "1a", "a-b", "a b", "ä"].into_iter().any(fits));
    }
}
