//! A template that prints numbered and identical lines, has countable side effects, and creates files that only a
//! deletion with the right state removes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::end_to_end::write;
use crate::program::Home;

/// The number of lines, and the place of the side effects.
pub(crate) struct LogTemplate {
    /// The number of resources, which are created one after the other.
    pub(crate) steps: usize,
    /// The numbered lines of each resource. An identical line follows each.
    pub(crate) lines: usize,
    /// The time between two lines.
    pub(crate) pause: Duration,
    /// Whether the last resource waits for the test.
    pub(crate) gated: bool,
    directory: tempfile::TempDir,
}

impl LogTemplate {
    pub(crate) fn new(steps: usize, lines: usize, pause: Duration) -> Self {
        Self { steps, lines, pause, gated: false, directory: tempfile::tempdir().unwrap() }
    }

    /// The last resource waits for [`Self::open`].
    pub(crate) fn gated(self) -> Self {
        Self { gated: true, ..self }
    }

    /// Creates the template of this name.
    pub(crate) fn push(&self, home: &Home, name: &str, flags: &[&str]) {
        let directory = write(home, name, &self.text());
        home.run(&[&["templates", "push", "-y", "-d", &directory][..], flags].concat()).success();
    }

    fn text(&self) -> String {
        let mut text = String::from(
            "terraform {\n  required_providers {\n    coder = {\n      source = \"coder/coder\"\n    }\n  }\n}\n\
             data \"coder_workspace\" \"me\" {}\n",
        );
        let (place, pause) = (self.directory.path().display(), self.pause.as_secs_f64());
        for step in 1..=self.steps {
            let after = if step == 1 { String::new() } else { format!("terraform_data.step_{}", step - 1) };
            // Terraform records a resource after its commands. Only then is there something to remove.
            let made = if step == 1 { ":".to_owned() } else { format!(": > things/{}", step - 1) };
            let lines = self.lines;
            let _ = write!(
                text,
                r#"
resource "terraform_data" "step_{step}" {{
  depends_on = [{after}]
  input      = "{place}/${{data.coder_workspace.me.name}}"
  provisioner "local-exec" {{
    command = <<-EOT
      cd ${{self.input}} || exit 1
      {made}
      echo {step} >> runs
      i=0
      while [ $i -lt {lines} ]; do
        i=$((i+1))
        echo "line {step}.$i."
        echo again
        date +%s%N >> said
        sleep {pause}
      done
    EOT
  }}
  provisioner "local-exec" {{
    when    = destroy
    command = "rm -f ${{self.input}}/things/{step}"
  }}
}}
"#
            );
        }
        let wait = if self.gated { "while [ ! -e open ]; do sleep 0.05; done" } else { ":" };
        let last = self.steps;
        let _ = write!(
            text,
            r#"
resource "terraform_data" "gate" {{
  depends_on = [terraform_data.step_{last}]
  input      = "{place}/${{data.coder_workspace.me.name}}"
  provisioner "local-exec" {{
    command = "cd ${{self.input}}; : > things/{last}; : > at-gate; {wait}"
  }}
}}
"#
        );
        text
    }

    /// The directory for the side effects of this workspace's build. It must exist before the build.
    pub(crate) fn place(&self, workspace: &str) -> WorkspaceFiles {
        let directory = self.directory.path().join(workspace);
        std::fs::create_dir_all(directory.join("things")).unwrap();
        WorkspaceFiles { directory }
    }

    /// All lines in order.
    pub(crate) fn expected(&self) -> Vec<String> {
        let steps = 1..=self.steps;
        steps.flat_map(|step| (1..=self.lines).flat_map(move |line| said(step, line))).collect()
    }

    /// The number of lines.
    pub(crate) fn size(&self) -> usize {
        self.steps * self.lines
    }
}

fn said(step: usize, line: usize) -> [String; 2] {
    [format!("line {step}.{line}."), "again".to_owned()]
}

/// The lines of a log that the template printed.
pub(crate) fn numbered_lines<'a>(outputs: impl Iterator<Item = &'a str>) -> Vec<String> {
    let words = outputs.filter_map(|output| output.split_once("(local-exec): ")).map(|(_, words)| words);
    words.filter(|words| *words == "again" || words.starts_with("line ")).map(str::to_owned).collect()
}

/// The side effects of one workspace's builds.
pub(crate) struct WorkspaceFiles {
    directory: PathBuf,
}

impl WorkspaceFiles {
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Lets the last resource end.
    pub(crate) fn open(&self) {
        std::fs::write(self.at("open"), "").unwrap();
    }

    /// The started steps, in order, with repetitions.
    pub(crate) fn runs(&self) -> Vec<usize> {
        read(&self.at("runs")).lines().map(|line| line.parse().unwrap()).collect()
    }

    /// When each line was printed.
    pub(crate) fn said(&self) -> Vec<SystemTime> {
        let text = read(&self.at("said"));
        let nanos = text.lines().filter_map(|line| line.parse().ok());
        nanos.map(|nanos| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos)).collect()
    }

    /// The steps that Terraform has recorded, and the latest time of each.
    pub(crate) fn things(&self) -> Vec<(usize, SystemTime)> {
        let entries = std::fs::read_dir(self.at("things")).unwrap().flatten();
        let thing = |entry: std::fs::DirEntry| {
            let step = entry.file_name().to_str()?.parse().ok()?;
            Some((step, entry.metadata().ok()?.modified().ok()?))
        };
        entries.filter_map(thing).collect()
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
