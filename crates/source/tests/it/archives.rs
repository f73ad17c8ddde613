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
