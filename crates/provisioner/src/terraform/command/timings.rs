//! The duration of each part of a step, from pairs of Terraform's events (terraform 1.8).

use std::collections::HashMap;

use coder_wire::messages::provisioner::{Timing, TimingState};
use jiff::Timestamp;

use super::events::Event;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerraformStep {
    Init,
    Plan,
    Graph,
    Apply,
}

impl TerraformStep {
    pub(crate) fn name(self) -> &'static str {
        match self {
            TerraformStep::Init => "init",
            TerraformStep::Plan => "plan",
            TerraformStep::Graph => "graph",
            TerraformStep::Apply => "apply",
        }
    }
}

/// Category, action, resource and provider identify a span.
type SpanKey = (&'static str, String, String, String);

#[derive(Debug)]
pub(crate) struct Timings {
    step: TerraformStep,
    started_at: Timestamp,
    open: HashMap<SpanKey, Timestamp>,
    init_part: Option<(&'static str, Timestamp)>,
    done: Vec<Timing>,
}

impl Timings {
    pub(crate) fn start(step: TerraformStep, now: Timestamp) -> Self {
        Self { step, started_at: now, open: HashMap::new(), init_part: None, done: Vec::new() }
    }

    pub(crate) fn observe(&mut self, event: &Event, now: Timestamp) {
        let at = instant(&event.timestamp).unwrap_or(now);
        if event.kind == "init_output" {
            self.init_output(&event.message_code, at);
            return;
        }
        let (category, end) = match event.kind.as_str() {
            "apply_start" => ("apply", None),
            "apply_complete" => ("apply", Some(TimingState::Completed)),
            "apply_errored" => ("apply", Some(TimingState::Failed)),
            "provision_start" => ("provision", None),
            "provision_complete" => ("provision", Some(TimingState::Completed)),
            "provision_errored" => ("provision", Some(TimingState::Failed)),
            "refresh_start" => ("state refresh", None),
            "refresh_complete" => ("state refresh", Some(TimingState::Completed)),
            _ => return,
        };
        let Some(hook) = &event.hook else { return };
        let action = if hook.action.is_empty() { category.to_owned() } else { hook.action.clone() };
        let key = (category, action, hook.resource.addr.clone(), hook.resource.implied_provider.clone());
        match end {
            None => {
                self.open.insert(key, at);
            }
            Some(state) => {
                if let Some(start) = self.open.remove(&key) {
                    let (_, action, resource, source) = key;
                    self.add(start, at, action, source, resource, state);
                }
            }
        }
    }

    /// Each phase of `init` ends where the next one starts.
    fn init_output(&mut self, code: &str, at: Timestamp) {
        let next = match code {
            "initializing_backend_message"
            | "initializing_state_store_message"
            | "initializing_terraform_cloud_message" => Some("backend"),
            "initializing_modules_message" | "upgrading_modules_message" => Some("modules"),
            "initializing_provider_plugin_message" => Some("provider plugins"),
            "output_init_success_message" | "output_init_success_cloud_message" => None,
            _ => return,
        };
        if let Some((part, start)) = self.init_part.take() {
            self.add(start, at, "load".to_owned(), String::new(), part.to_owned(), TimingState::Completed);
        }
        self.init_part = next.map(|part| (part, at));
    }

    fn add(
        &mut self,
        start: Timestamp,
        end: Timestamp,
        action: String,
        source: String,
        resource: String,
        state: TimingState,
    ) {
        self.done.push(Timing {
            start: Some(wire_time(start.min(end))),
            end: Some(wire_time(end)),
            action,
            source,
            resource,
            stage: self.step.name().to_owned(),
            state: state.into(),
        });
    }

    /// Ends the step, and returns all complete spans.
    pub(crate) fn finish(mut self, succeeded: bool, now: Timestamp) -> Vec<Timing> {
        let state = if succeeded { TimingState::Completed } else { TimingState::Failed };
        let resource = format!("coder_stage_{}", self.step.name());
        self.add(self.started_at, now, "terraform".to_owned(), "coder".to_owned(), resource, state);
        self.done
    }
}

/// Only times with exactly six fractional digits are used: `init` prints whole seconds.
fn instant(text: &str) -> Option<Timestamp> {
    let fraction = text.split_once('.')?.1;
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    if digits != 6 {
        return None;
    }
    text.parse().ok()
}

fn wire_time(at: Timestamp) -> prost_types::Timestamp {
    let micros = at.as_microsecond();
    let nanos = i32::try_from(micros.rem_euclid(1_000_000) * 1_000).expect("below one thousand million");
    prost_types::Timestamp { seconds: micros.div_euclid(1_000_000), nanos }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(timings: &mut Timings, line: &str) {
        timings.observe(&Event::parse(line).unwrap(), at("2024-01-01T00:00:09Z"));
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn spans_need_both_ends_and_never_run_backwards() {
        let mut timings = Timings::start(TerraformStep::Apply, at("2024-01-01T00:00:00Z"));
        let hook = r#""hook":{"action":"create","resource":{"addr":"a.b","implied_provider":"a"}}"#;
        observe(
            &mut timings,
            &format!(r#"{{"type":"apply_start","@timestamp":"2024-01-01T00:00:03.000002Z",{hook}}}"#),
        );
        observe(
            &mut timings,
            &format!(r#"{{"type":"apply_progress","@timestamp":"2024-01-01T00:00:03.000003Z",{hook}}}"#),
        );
        observe(
            &mut timings,
            &format!(r#"{{"type":"apply_errored","@timestamp":"2024-01-01T00:00:02.000001Z",{hook}}}"#),
        );
        observe(&mut timings, r#"{"type":"refresh_complete","hook":{"resource":{"addr":"c.d"}}}"#);
        observe(&mut timings, r#"{"type":"refresh_start","hook":{"resource":{"addr":"e.f"}}}"#);
        let done = timings.finish(false, at("2024-01-01T00:00:05.1234567Z"));
        assert_eq!(done.len(), 2);
        assert_eq!(
            (done[0].action.as_str(), done[0].source.as_str(), done[0].stage.as_str()),
            ("create", "a", "apply")
        );
        assert_eq!(done[0].start, done[0].end);
        assert_eq!(done[0].state(), TimingState::Failed);
        assert_eq!((done[1].resource.as_str(), done[1].action.as_str()), ("coder_stage_apply", "terraform"));
        assert_eq!(done[1].end.unwrap().nanos, 123_456_000);
    }

    #[test]
    fn init_parts_follow_each_other() {
        let mut timings = Timings::start(TerraformStep::Init, at("2024-01-01T00:00:00Z"));
        for code in [
            "initializing_backend_message",
            "initializing_modules_message",
            "other",
            "output_init_success_message",
        ] {
            observe(
                &mut timings,
                &format!(
                    r#"{{"type":"init_output","message_code":"{code}","@timestamp":"2024-01-01T00:00:01Z"}}"#
                ),
            );
        }
        let resources: Vec<_> = timings
            .finish(true, at("2024-01-01T00:00:02Z"))
            .into_iter()
            .map(|timing| timing.resource)
            .collect();
        assert_eq!(resources, ["backend", "modules", "coder_stage_init"]);
    }
}
