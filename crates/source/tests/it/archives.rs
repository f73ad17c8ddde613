//! Which files are read, and the bounds of archives.

use std::io::{Cursor, Write as _};

use coder_source::{Inputs, ReadError, Template};

use crate::{map, module, tar, template};

#[test]
fn tag_16_only_tar_and_zip_are_read() {
    let files = [("main.tf", module("", "a = \"b\""))];
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in &files {
        zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(content.as_bytes()).unwrap();
    }
    let zip = zip.finish().unwrap().into_inner();
    for kind in ["application/zip", "Application/ZIP; x=y"] {
        let template = Template::read(&zip, kind).unwrap();
        assert!(template.has_workspace_tags());
        assert_eq!(template.workspace_tags(&Inputs::default()), Ok(map(&[("a", "b")])));
    }
    let wrong = Template::read(b"hello", "text/plain").unwrap_err();
    assert!(matches!(wrong, ReadError::MediaType(kind) if kind == "text/plain"));
    assert!(matches!(Template::read(b"hello", "application/zip"), Err(ReadError::Malformed(_))));
    assert!(matches!(Template::read(&[7; 700], "application/x-tar"), Err(ReadError::Malformed(_))));
}

/// Its directory is at the end, so it is held as a whole.
#[test]
fn a_zip_may_have_sixteen_mebibytes() {
    let error = |length| Template::read(&vec![0; length], "application/zip").unwrap_err().to_string();
    assert!(!error(16 << 20).contains("too long"));
    assert!(error((16 << 20) + 1).contains("the zip is too long"));
}

#[test]
fn only_the_root_module_counts() {
    let block = |key: &str| module("", &format!("{key} = 1"));
    let template = template(&[
        ("./main.tf", &block("root")),
        ("modules/x/main.tf", &block("inner")),
        (".hidden.tf", &block("hidden")),
        ("main.tf~", &block("backup")),
        ("notes.txt", "not hcl {"),
    ]);
    assert_eq!(template.workspace_tags(&Inputs::default()), Ok(map(&[("root", "1")])));
}

#[test]
fn archives_are_bounded() {
    let empty = Template::read(&tar(&[]), "application/x-tar").unwrap();
    assert!(!empty.has_workspace_tags());
    assert_eq!(empty.workspace_tags(&Inputs::default()), Ok(map(&[])));

    let large = "#".repeat((1 << 20) + 1);
    let one = Template::read(&tar(&[("a.tf", &large)]), "application/x-tar").unwrap_err();
    assert!(one.to_string().contains("a.tf"), "{one}");
    let other = Template::read(&tar(&[("scripts/a.sh", &large)]), "application/x-tar");
    assert!(other.is_ok(), "files that are not read do not count");
    let names: Vec<_> = (0..9).map(|i| format!("{i}.tf")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), &large[..1 << 20])).collect();
    assert!(matches!(Template::read(&tar(&many), "application/x-tar"), Err(ReadError::TooLarge(_))));

    let names: Vec<_> = (0..10_001).map(|i| format!("f{i}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    assert!(matches!(Template::read(&tar(&many), "application/x-tar"), Err(ReadError::TooManyEntries(_))));
}

#[test]
fn a_zip_bomb_is_not_unpacked() {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("main.tf", zip::write::SimpleFileOptions::default()).unwrap();
    for _ in 0..3 {
        zip.write_all(&[b'#'; 1 << 20]).unwrap();
    }
    let zip = zip.finish().unwrap().into_inner();
    assert!(matches!(Template::read(&zip, "application/zip"), Err(ReadError::TooLarge(_))));
}

#[test]
fn invalid_configuration_files_are_named() {
    let template =
        template(&[("bad.tf", "resource {{{"), ("main.tf", &module("", "a = \"b\"")), ("x.tf.json", "{")]);
    assert_eq!(template.invalid_files().len(), 2, "{:?}", template.invalid_files());
    assert!(template.invalid_files()[0].starts_with("bad.tf: line 1"), "{:?}", template.invalid_files());
    assert_eq!(template.workspace_tags(&Inputs::default()), Ok(map(&[("a", "b")])));
}

#[test]
fn opentofu_files_replace_their_terraform_counterparts() {
    let template = template(&[
        ("main.tf", &module("", "from = \"terraform\"")),
        ("main.tofu", &module("", "from = \"opentofu\"")),
        ("other.tofu.json", "{"),
    ]);
    assert_eq!(template.workspace_tags(&Inputs::default()), Ok(map(&[("from", "opentofu")])));
    assert_eq!(template.invalid_files().len(), 1, "{:?}", template.invalid_files());
}

#[test]
fn zips_are_bounded_in_entries() {
    let zip = |count: usize| {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for index in 0..count {
            zip.start_file(format!("f{index}"), zip::write::SimpleFileOptions::default()).unwrap();
        }
        zip.finish().unwrap().into_inner()
    };
    assert!(Template::read(&zip(10_000), "application/zip").is_ok());
    for count in [10_001, 10_002] {
        let refused = Template::read(&zip(count), "application/zip");
        assert!(matches!(refused, Err(ReadError::TooManyEntries(10_000))), "{count}");
    }
}

#[test]
fn files_have_one_mebibyte_each_and_eight_together() {
    let full = "#".repeat(1 << 20);
    let one = Template::read(&tar(&[("main.tf", &full)]), "application/x-tar");
    assert!(one.is_ok());
    let names: Vec<_> = (0..8).map(|n| format!("{n}.tf")).collect();
    let mut files: Vec<_> = names.iter().map(|name| (name.as_str(), full.as_str())).collect();
    assert!(Template::read(&tar(&files), "application/tar").is_ok());
    files.push(("z.tf", "#"));
    assert!(
        matches!(Template::read(&tar(&files), "application/tar"), Err(ReadError::TooLarge(name)) if name == "z.tf")
    );
}

#[test]
fn other_files_are_kept_up_to_eight_mebibytes() {
    let known = |path: &str, files: &[(&str, &str)]| {
        let main = module("", &format!("a = filemd5(\"{path}\")\nb = fileexists(\"{path}\")"));
        let files: Vec<_> = [("main.tf", main.as_str())].into_iter().chain(files.iter().copied()).collect();
        match template(&files).workspace_tags(&Inputs::default()) {
            Ok(found) => found["b"] == "true",
            Err(errors) => {
                assert_eq!(errors.len(), 1, "{errors:?}");
                assert!(errors[0].to_string().contains("too large to be read"), "{errors:?}");
                false
            }
        }
    };
    let full = "x".repeat(1 << 20);
    let longer = "x".repeat((1 << 20) + 1);
    assert!(known("a.sh", &[("a.sh", &full)]));
    assert!(!known("a.sh", &[("a.sh", &longer)]));
    // A file without content leaves room for others.
    assert!(known("b.sh", &[("a.sh", &longer), ("b.sh", &full)]));
    let names: Vec<_> = (0..8).map(|n| format!("d/{n}.sh")).collect();
    let mut files: Vec<_> = names.iter().map(|name| (name.as_str(), full.as_str())).collect();
    assert!(known("d/7.sh", &files));
    files.extend([("d/8.sh", "x"), ("d/9.sh", "")]);
    assert!(known("d/0.sh", &files) && !known("d/8.sh", &files) && known("d/9.sh", &files));
}

#[test]
fn only_files_of_an_archive_count() {
    let mut archive = tar::Builder::new(Vec::new());
    let main =
        module("", "a = fileexists(\"link\")\nb = fileexists(\"dir.tf\")\nc = fileexists(\"x\\\\y.tf\")");
    for (name, kind, content) in [
        ("main.tf", tar::EntryType::Regular, main.as_bytes()),
        ("x\\y.tf", tar::EntryType::Regular, b"{"),
        ("dir.tf", tar::EntryType::Directory, b""),
        ("link", tar::EntryType::Symlink, b""),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(kind);
        if kind == tar::EntryType::Symlink {
            header.set_link_name("main.tf").unwrap();
        }
        archive.append_data(&mut header, name, content).unwrap();
    }
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    zip.add_directory("dir.tf", options).unwrap();
    zip.start_file("x\\y.tf", options).unwrap();
    zip.start_file("main.tf", options).unwrap();
    zip.write_all(main.as_bytes()).unwrap();
    for (bytes, kind) in [
        (archive.into_inner().unwrap(), "application/x-tar"),
        (zip.finish().unwrap().into_inner(), "application/x-zip-compressed"),
    ] {
        let found = Template::read(&bytes, kind).unwrap();
        assert_eq!(found.invalid_files(), [] as [String; 0], "{kind}");
        let expected = [("a", "false"), ("b", "false"), ("c", "true")];
        assert_eq!(found.workspace_tags(&Inputs::default()), Ok(map(&expected)), "{kind}");
    }
}

#[test]
fn only_certain_values_files_are_read() {
    for (name, expected) in [
        ("terraform.tfvars", "given"),
        ("terraform.tfvars.json", "given"),
        ("a.auto.tfvars", "given"),
        ("a.auto.tfvars.json", "given"),
        ("a.tfvars", "default"),
        ("a.tfvars.json", "default"),
        ("auto.tfvars", "default"),
        ("sub/terraform.tfvars", "default"),
    ] {
        let content = if name.ends_with(".json") { r#"{"v":"given"}"# } else { "v = \"given\"" };
        let main = module("variable \"v\" {\n  default = \"default\"\n}\n", "a = var.v");
        let found = template(&[("main.tf", &main), (name, content)]);
        assert_eq!(found.workspace_tags(&Inputs::default()), Ok(map(&[("a", expected)])), "{name}");
    }
}
