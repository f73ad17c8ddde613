//! Settings that are stored and returned but have no effect yet. The response to a request that sets one contains a warning. `docs/operators/limits.md` lists them.

use coder_api::templates::UpdateTemplateRequest;

pub const TRIAL: &str = "the request for a trial license is not used, because this server has no licenses";

const CLASSIC: &str = "use_classic_parameter_flow is stored as false, but clients still get the classic form, because \
    this server has no dynamic-parameters endpoint; only the values of builds are evaluated dynamically";

/// Warnings about a request that creates a template. `classic` is its parameter flow.
pub fn of_new_template(classic: Option<bool>) -> Vec<&'static str> {
    (classic == Some(false)).then_some(CLASSIC).into_iter().collect()
}

/// Warnings about a request that changes a template.
pub fn of_template_update(request: &UpdateTemplateRequest) -> Vec<&'static str> {
    of_new_template(request.use_classic_parameter_flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_acted_on_warns() {
        assert!(of_new_template(None).is_empty() && of_new_template(Some(true)).is_empty());
        let request = UpdateTemplateRequest {
            use_classic_parameter_flow: Some(false),
            ..UpdateTemplateRequest::default()
        };
        assert_eq!(of_template_update(&request), [CLASSIC]);
    }
}
