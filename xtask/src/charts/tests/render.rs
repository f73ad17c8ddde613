//! Renders a chart with the values of a case, compares the result with its golden file, and finds objects in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api;
use serde_json::Value;

use crate::charts::package;
use crate::run::root;

/// The version for which is rendered; a Helm that was built by `go build` has no default of its own.
const KUBERNETES: &str = "1.33.0";

/// The chart and its Helm.
pub(super) struct Chart {
    pub(super) name: &'static str,
    helm: PathBuf,
}

/// What a chart rendered.
pub(super) struct Rendered(Vec<Value>);

impl Chart {
    /// None without Helm; the test is then recorded as skipped.
    #[track_caller]
    pub(super) fn find(name: &'static str) -> Option<Self> {
        coder_requirements::program(coder_requirements::Requirement::Helm).map(|helm| Self { name, helm })
    }

    fn directory(&self) -> PathBuf {
        root().join("deploy/helm").join(self.name)
    }

    fn case(&self, case: &str, kind: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/charts").join(self.name);
        folder.join(format!("{case}.{kind}.yaml"))
    }

    fn run(&self, arguments: &[&str], values: Option<&Path>) -> Result<String, String> {
        let mut command = Command::new(&self.helm);
        command.args(arguments);
        if let Some(values) = values {
            command.arg("--values").arg(values);
        }
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    fn template(&self, case: &str, namespace: &str) -> Result<String, String> {
        self.template_file(&self.case(case, "values"), namespace, &[])
    }

    fn template_file(&self, values: &Path, namespace: &str, more: &[&str]) -> Result<String, String> {
        let directory = self.directory();
        let directory = directory.to_str().unwrap();
        let arguments =
            ["template", "release-name", directory, "--namespace", namespace, "--kube-version", KUBERNETES];
        self.run(&[&arguments, more].concat(), Some(values))
    }

    /// Renders a values file of the examples.
    #[track_caller]
    pub(super) fn render_example(&self, name: &str) -> Rendered {
        let values = root().join("examples/kubernetes/helm").join(name);
        let tag = ["--set", "coder.image.tag=latest"];
        let text =
            self.template_file(&values, "coder", &tag).unwrap_or_else(|error| panic!("{name}: {error}"));
        let rendered = Rendered::parse(&text);
        rendered.check_schema();
        rendered
    }

    /// Renders a case in the namespaces `default` and `coder`. The first result is equal to the golden file, and the second to
    /// the first with the other namespace. `UPDATE_REFERENCE` writes the golden file.
    #[track_caller]
    pub(super) fn render(&self, case: &str) -> Rendered {
        let text = self.template(case, "default").unwrap_or_else(|error| panic!("{case}: {error}"));
        let golden = self.case(case, "golden");
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&golden, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert!(text == expected, "{case} renders something else than {}:\n{text}", golden.display());
        let rendered = Rendered::parse(&text);
        rendered.check_schema();
        let other = self.template(case, "coder").unwrap_or_else(|error| panic!("{case}: {error}"));
        let moved = text
            .replace("namespace: default\n", "namespace: coder\n")
            .replace("coder.default.svc", "coder.coder.svc")
            .replace("coder-operator-default\n", "coder-operator-coder\n")
            .replace("pools-default\n", "pools-coder\n");
        assert_eq!(other, moved, "{case} in the namespace coder");
        rendered
    }

    /// The error with which a case fails.
    #[track_caller]
    pub(super) fn error(&self, case: &str, namespace: &str) -> String {
        match self.template(case, namespace) {
            Ok(text) => panic!("{case} renders:\n{text}"),
            Err(error) => error,
        }
    }

    /// The error with which the chart fails with these arguments.
    #[track_caller]
    pub(super) fn refusal(&self, arguments: &[&str]) -> String {
        let directory = self.directory();
        let all = ["template", "release-name", directory.to_str().unwrap(), "--kube-version", KUBERNETES];
        self.run(&[&all, arguments].concat(), None).expect_err("it renders")
    }

    /// What `helm install` prints after a case was installed. Only a template can be rendered without a cluster, so the notes of
    /// a copy of the chart are in an object.
    #[track_caller]
    pub(super) fn notes(&self, case: &str) -> String {
        let copy = tempfile::tempdir().unwrap();
        let directory = self.directory();
        for path in package::files(&directory).unwrap() {
            let place = copy.path().join(path.strip_prefix(&directory).unwrap());
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::copy(path, place).unwrap();
        }
        let templates = copy.path().join("templates");
        let notes = std::fs::read_to_string(templates.join("NOTES.txt")).unwrap();
        std::fs::write(
            templates.join("_notes.tpl"),
            format!("{{{{ define \"notes\" }}}}{notes}{{{{ end }}}}"),
        )
        .unwrap();
        let object = "kind: ConfigMap\nmetadata: { name: notes }\ndata: { notes: {{ include \"notes\" . | toJson }} }\n";
        std::fs::write(templates.join("notes.yaml"), object).unwrap();
        let copy = copy.path().to_str().unwrap();
        let arguments =
            ["template", "release-name", copy, "--namespace", "coder", "--kube-version", KUBERNETES];
        let text = self.run(&arguments, Some(&self.case(case, "values"))).unwrap();
        Rendered::parse(&text).object("ConfigMap", "notes")["data"]["notes"].as_str().unwrap().to_owned()
    }

    /// `helm lint`, which fails on warnings too.
    #[track_caller]
    pub(super) fn lint(&self, case: &str) {
        let directory = self.directory();
        let arguments = ["lint", "--strict", directory.to_str().unwrap(), "--kube-version", KUBERNETES];
        self.run(&arguments, Some(&self.case(case, "values"))).unwrap();
    }
}

impl Rendered {
    #[track_caller]
    pub(super) fn parse(text: &str) -> Self {
        let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        Self(objects.into_iter().filter(|object| !object.is_null()).collect())
    }

    /// Kinds with names, sorted.
    pub(super) fn objects(&self) -> Vec<String> {
        let mut names: Vec<_> = self
            .0
            .iter()
            .map(|object| {
                format!(
                    "{}/{}",
                    object["kind"].as_str().unwrap(),
                    object["metadata"]["name"].as_str().unwrap()
                )
            })
            .collect();
        names.sort();
        names
    }

    /// The object of a kind and a name.
    #[track_caller]
    pub(super) fn object(&self, kind: &str, name: &str) -> &Value {
        let found = self.0.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name} in {:?}", self.objects()))
    }

    /// All objects of a kind.
    pub(super) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    /// The only Deployment.
    #[track_caller]
    pub(super) fn deployment(&self) -> &Value {
        let mut found = self.of_kind("Deployment");
        let deployment = found.next().expect("a Deployment");
        assert!(found.next().is_none(), "more than one Deployment");
        deployment
    }

    /// The specification of its pods.
    #[track_caller]
    pub(super) fn pod(&self) -> &Value {
        &self.deployment()["spec"]["template"]["spec"]
    }

    /// The only container.
    #[track_caller]
    pub(super) fn container(&self) -> &Value {
        let containers = self.pod()["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        &containers[0]
    }

    /// A variable of the container: its value, or where it comes from. Null if it has none of that name. The last one
    /// counts, as in Kubernetes.
    #[track_caller]
    pub(super) fn env(&self, name: &str) -> Value {
        let variables = self.container()["env"].as_array().unwrap();
        let found = variables.iter().rev().find(|variable| variable["name"] == name);
        found.map_or(Value::Null, |variable| {
            if variable["value"].is_null() {
                variable["valueFrom"].clone()
            } else {
                variable["value"].clone()
            }
        })
    }

    /// The names of the variables, in order.
    #[track_caller]
    pub(super) fn env_names(&self) -> Vec<&str> {
        let variables = self.container()["env"].as_array().unwrap();
        variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect()
    }

    /// Kubernetes' own types have every field of every object, and lose nothing of it.
    #[track_caller]
    fn check_schema(&self) {
        for object in &self.0 {
            let same = match object["kind"].as_str().unwrap() {
                "ConfigMap" => through::<api::core::v1::ConfigMap>(object),
                "CustomResourceDefinition" | "HTTPRoute" | "ListenerSet" | "PodMonitor" => continue,
                "ClusterRole" => through::<api::rbac::v1::ClusterRole>(object),
                "ClusterRoleBinding" => through::<api::rbac::v1::ClusterRoleBinding>(object),
                "Deployment" => through::<api::apps::v1::Deployment>(object),
                "Ingress" => through::<api::networking::v1::Ingress>(object),
                "NetworkPolicy" => through::<api::networking::v1::NetworkPolicy>(object),
                "PersistentVolumeClaim" => through::<api::core::v1::PersistentVolumeClaim>(object),
                "PodDisruptionBudget" => through::<api::policy::v1::PodDisruptionBudget>(object),
                "Role" => through::<api::rbac::v1::Role>(object),
                "RoleBinding" => through::<api::rbac::v1::RoleBinding>(object),
                "Service" => through::<api::core::v1::Service>(object),
                "ServiceAccount" => through::<api::core::v1::ServiceAccount>(object),
                other => panic!("no schema for {other}"),
            };
            assert_eq!(same, without_nulls(object));
        }
    }
}

/// The object as Kubernetes understands it.
#[track_caller]
fn through<T: serde::de::DeserializeOwned + serde::Serialize>(object: &Value) -> Value {
    let typed: T = serde_json::from_value(object.clone())
        .unwrap_or_else(|error| panic!("{}: {error}", object["metadata"]["name"]));
    without_nulls(&serde_json::to_value(typed).unwrap())
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_nulls(value)))
            .collect(),
        Value::Array(values) => values.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}
