//! `values.schema.json`: what Helm refuses before it renders. That it accepts all values of the official charts is shown by the
//! golden files.

use super::render::Chart;

#[test]
fn misspelt_values_are_refused_where_they_are() {
    for (chart, set, expected) in [
        ("coder", "coder.replicas=2", "at '/coder': additional properties 'replicas' not allowed"),
        ("coder", "provisionerDeamon.pskSecretName=psk", "invalid propertyName 'provisionerDeamon'"),
        ("coder", "coder.service.type=Loadbalancer", "at '/coder/service/type': value must be one of"),
        ("coder-provisioner", "coder.env[0].value=x", "at '/coder/env/0': missing property 'name'"),
        ("coder-provisioner", "coder.replicaCount=many", "at '/coder/replicaCount'"),
        (
            "coder-provisioner",
            "provisionerDaemon.keySecret=key",
            "additional properties 'keySecret' not allowed",
        ),
        ("coder-operator", "watchNamespace=pools", "invalid propertyName 'watchNamespace'"),
    ] {
        let Some(chart) = Chart::find(chart) else { return };
        let error = chart.refusal(&["--set", "coder.image.tag=latest", "--set", set]);
        assert!(error.contains(expected), "{set}: {error}");
    }
}

#[test]
fn extra_templates_may_have_values_of_their_own() {
    let Some(chart) = Chart::find("coder") else { return };
    chart.render("extra_templates");
    let error = chart.refusal(&["--set", "coder.image.tag=latest", "--set", "someValue=1"]);
    assert!(error.contains("invalid propertyName 'someValue'"), "{error}");
}
