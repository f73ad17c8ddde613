//! The operations on files.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use russh_sftp::extensions::{
    ExpandPathExtension, FsyncExtension, HardlinkExtension, LimitsExtension, Statvfs, StatvfsExtension,
};
use russh_sftp::protocol::{
    Attrs, Data, ExtendedReply, File as Entry, FileAttributes, Handle, Name, OpenFlags, Packet, Status,
    StatusCode,
};
use serde::de::DeserializeOwned;

use super::MAX_PACKET_BYTES;

/// Open files and directories of one client.
const MAX_HANDLES: usize = 1024;
/// Longest answer to a read.
const MAX_READ_BYTES: u32 = 255 << 10;
/// Entries of a directory in one answer.
const ENTRIES_PER_REPLY: usize = 128;
/// The permissions of new files and directories, before the umask.
const FILE_MODE: u32 = 0o666;
const FOLDER_MODE: u32 = 0o777;

enum Open {
    File { file: File, appends: bool },
    Folder(fs::ReadDir),
}

/// The state of one client.
pub(super) struct Files {
    directory: PathBuf,
    home: PathBuf,
    open: HashMap<String, Open>,
    next: u64,
}

/// What answers a request besides its id.
enum Answer {
    Done,
    End,
    Handle(String),
    Data(Vec<u8>),
    Names(Vec<Entry>),
    Attributes(FileAttributes),
    Extended(Vec<u8>),
    Unsupported,
}

impl Files {
    pub(super) fn new(directory: PathBuf, home: PathBuf) -> Self {
        Self { directory, home, open: HashMap::new(), next: 0 }
    }

    /// Does what a packet asks for.
    pub(super) fn answer(&mut self, request: Packet) -> Packet {
        let id = request.get_request_id();
        match self.run(request) {
            Ok(Answer::Done) => status(id, StatusCode::Ok, "Success".to_owned()),
            Ok(Answer::End) => status(id, StatusCode::Eof, "End of file".to_owned()),
            Ok(Answer::Handle(handle)) => Packet::Handle(Handle { id, handle }),
            Ok(Answer::Data(data)) => Packet::Data(Data { id, data }),
            Ok(Answer::Names(files)) => Packet::Name(Name { id, files }),
            Ok(Answer::Attributes(attrs)) => Packet::Attrs(Attrs { id, attrs }),
            Ok(Answer::Extended(data)) => Packet::ExtendedReply(ExtendedReply { id, data }),
            Ok(Answer::Unsupported) => {
                status(id, StatusCode::OpUnsupported, "the operation is not supported".to_owned())
            }
            Err(error) => status(id, code(&error), error.to_string()),
        }
    }

    fn run(&mut self, request: Packet) -> io::Result<Answer> {
        match request {
            Packet::Open(open) => self.open_file(&open.filename, open.pflags, &open.attrs),
            Packet::Close(close) => {
                self.open.remove(&close.handle).ok_or_else(unknown_handle)?;
                Ok(Answer::Done)
            }
            Packet::Read(read) => self.read(&read.handle, read.offset, read.len),
            Packet::Write(write) => self.write(&write.handle, write.offset, &write.data),
            Packet::Lstat(lstat) => attributes_of(fs::symlink_metadata(self.path(&lstat.path))),
            Packet::Stat(stat) => attributes_of(fs::metadata(self.path(&stat.path))),
            Packet::Fstat(fstat) => attributes_of(self.file(&fstat.handle)?.0.metadata()),
            Packet::SetStat(set) => set_attributes(&self.path(&set.path), &set.attrs),
            Packet::FSetStat(set) => set_file_attributes(self.file(&set.handle)?.0, &set.attrs),
            Packet::OpenDir(open) => {
                let entries = fs::read_dir(self.path(&open.path))?;
                self.insert(Open::Folder(entries))
            }
            Packet::ReadDir(read) => self.read_folder(&read.handle),
            Packet::Remove(remove) => done(fs::remove_file(self.path(&remove.filename))),
            Packet::MkDir(make) => {
                let mode = make.attrs.permissions.map_or(FOLDER_MODE, |mode| mode & 0o7777);
                let mut builder = fs::DirBuilder::new();
                done(std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode).create(self.path(&make.path)))
            }
            Packet::RmDir(remove) => done(fs::remove_dir(self.path(&remove.path))),
            Packet::RealPath(real) => {
                Ok(Answer::Names(vec![Entry::dummy(text(&self.real_path(&real.path)))]))
            }
            Packet::Rename(rename) => {
                let (from, to) = (self.path(&rename.oldpath), self.path(&rename.newpath));
                // Version 3 does not replace files; posix-rename does.
                if to.symlink_metadata().is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                done(fs::rename(from, to))
            }
            Packet::ReadLink(read) => {
                let target = fs::read_link(self.path(&read.path))?;
                Ok(Answer::Names(vec![Entry::dummy(text(&target))]))
            }
            // OpenSSH sends the target first, against the text of version 3, and everybody follows it.
            Packet::Symlink(link) => {
                done(std::os::unix::fs::symlink(&link.linkpath, self.path(&link.targetpath)))
            }
            Packet::Extended(extended) => self.extended(&extended.request, &extended.data),
            _ => Ok(Answer::Unsupported),
        }
    }

    fn extended(&mut self, request: &str, data: &[u8]) -> io::Result<Answer> {
        match request {
            "posix-rename@openssh.com" => {
                let paths = decode::<HardlinkExtension>(data)?;
                done(fs::rename(self.path(&paths.oldpath), self.path(&paths.newpath)))
            }
            "hardlink@openssh.com" => {
                let paths = decode::<HardlinkExtension>(data)?;
                done(fs::hard_link(self.path(&paths.oldpath), self.path(&paths.newpath)))
            }
            "fsync@openssh.com" => done(self.file(&decode::<FsyncExtension>(data)?.handle)?.0.sync_all()),
            "statvfs@openssh.com" => {
                let path = self.path(&decode::<StatvfsExtension>(data)?.path);
                encode(&file_system(&rustix::fs::statvfs(&path)?))
            }
            "expand-path@openssh.com" => {
                let path = decode::<ExpandPathExtension>(data)?.path;
                let expanded = match path.strip_prefix('~') {
                    Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                        self.home.join(rest.trim_start_matches('/'))
                    }
                    Some(_) => return Err(io::Error::from(io::ErrorKind::NotFound)),
                    None => self.path(&path),
                };
                Ok(Answer::Names(vec![Entry::dummy(text(&normalize(&expanded)))]))
            }
            "limits@openssh.com" => encode(&LimitsExtension {
                max_packet_len: MAX_PACKET_BYTES.into(),
                max_read_len: MAX_READ_BYTES.into(),
                max_write_len: MAX_READ_BYTES.into(),
                max_open_handles: MAX_HANDLES as u64,
            }),
            _ => Ok(Answer::Unsupported),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    /// The absolute path without links. A path that does not exist is only made absolute.
    fn real_path(&self, path: &str) -> PathBuf {
        let path = self.path(path);
        fs::canonicalize(&path).unwrap_or_else(|_| normalize(&path))
    }

    fn insert(&mut self, open: Open) -> io::Result<Answer> {
        if self.open.len() >= MAX_HANDLES {
            return Err(io::Error::other(format!("at most {MAX_HANDLES} files may be open")));
        }
        self.next += 1;
        let handle = self.next.to_string();
        self.open.insert(handle.clone(), open);
        Ok(Answer::Handle(handle))
    }

    fn file(&self, handle: &str) -> io::Result<(&File, bool)> {
        match self.open.get(handle) {
            Some(Open::File { file, appends }) => Ok((file, *appends)),
            _ => Err(unknown_handle()),
        }
    }

    fn open_file(&mut self, path: &str, flags: OpenFlags, attributes: &FileAttributes) -> io::Result<Answer> {
        let has = |flag| flags.contains(flag);
        let appends = has(OpenFlags::APPEND);
        let mut options = OpenOptions::new();
        options.read(has(OpenFlags::READ)).write(has(OpenFlags::WRITE) && !appends).append(appends);
        options.truncate(has(OpenFlags::TRUNCATE));
        if has(OpenFlags::EXCLUDE) && has(OpenFlags::CREATE) {
            options.create_new(true);
        } else {
            options.create(has(OpenFlags::CREATE));
        }
        options.mode(attributes.permissions.map_or(FILE_MODE, |mode| mode & 0o7777));
        // A pipe without a reader must not hold the connection up.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(self.path(path))?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::other("it is a directory"));
        }
        self.insert(Open::File { file, appends })
    }

    fn read(&self, handle: &str, offset: u64, length: u32) -> io::Result<Answer> {
        let mut data = vec![0; length.min(MAX_READ_BYTES) as usize];
        let count = self.file(handle)?.0.read_at(&mut data, offset)?;
        if count == 0 {
            return Ok(Answer::End);
        }
        data.truncate(count);
        Ok(Answer::Data(data))
    }

    fn write(&self, handle: &str, offset: u64, data: &[u8]) -> io::Result<Answer> {
        let (mut file, appends) = self.file(handle)?;
        if appends {
            return done(io::Write::write_all(&mut file, data));
        }
        done(file.write_all_at(data, offset))
    }

    fn read_folder(&mut self, handle: &str) -> io::Result<Answer> {
        let Some(Open::Folder(entries)) = self.open.get_mut(handle) else { return Err(unknown_handle()) };
        let mut names = Vec::new();
        for entry in entries.by_ref().take(ENTRIES_PER_REPLY) {
            let entry = entry?;
            // It may have been removed meanwhile.
            let found = entry.metadata().map(|metadata| attributes(&metadata)).unwrap_or_default();
            names.push(Entry::new(entry.file_name().to_string_lossy(), found));
        }
        Ok(if names.is_empty() { Answer::End } else { Answer::Names(names) })
    }
}

fn done(result: io::Result<()>) -> io::Result<Answer> {
    result.map(|()| Answer::Done)
}

fn status(id: u32, status_code: StatusCode, error_message: String) -> Packet {
    Packet::Status(Status { id, status_code, error_message, language_tag: "en".to_owned() })
}

fn unknown_handle() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no open file or directory has this handle")
}

fn code(error: &io::Error) -> StatusCode {
    match error.kind() {
        io::ErrorKind::NotFound => StatusCode::NoSuchFile,
        io::ErrorKind::PermissionDenied => StatusCode::PermissionDenied,
        io::ErrorKind::InvalidData => StatusCode::BadMessage,
        _ => StatusCode::Failure,
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Removes `.` and `..` without looking at links.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::Normal(name) => normal.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    normal
}

fn decode<T: DeserializeOwned>(data: &[u8]) -> io::Result<T> {
    let mut bytes = bytes::Bytes::copy_from_slice(data);
    russh_sftp::de::from_bytes(&mut bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

fn encode(value: &impl serde::Serialize) -> io::Result<Answer> {
    let data = russh_sftp::ser::to_bytes(value).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(Answer::Extended(data.to_vec()))
}

fn attributes_of(metadata: io::Result<Metadata>) -> io::Result<Answer> {
    Ok(Answer::Attributes(attributes(&metadata?)))
}

fn attributes(metadata: &Metadata) -> FileAttributes {
    let seconds = |time: i64| u32::try_from(time).unwrap_or_default();
    FileAttributes {
        size: Some(metadata.len()),
        uid: Some(metadata.uid()),
        gid: Some(metadata.gid()),
        permissions: Some(metadata.mode()),
        atime: Some(seconds(metadata.atime())),
        mtime: Some(seconds(metadata.mtime())),
        user: None,
        group: None,
    }
}

fn set_attributes(path: &Path, attributes: &FileAttributes) -> io::Result<Answer> {
    if let Some(size) = attributes.size {
        OpenOptions::new().write(true).open(path)?.set_len(size)?;
    }
    if attributes.uid.is_some() || attributes.gid.is_some() {
        std::os::unix::fs::chown(path, attributes.uid, attributes.gid)?;
    }
    if let Some(mode) = attributes.permissions {
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777))?;
    }
    if let Some(times) = times(attributes) {
        File::open(path)?.set_times(times)?;
    }
    Ok(Answer::Done)
}

fn set_file_attributes(file: &File, attributes: &FileAttributes) -> io::Result<Answer> {
    if let Some(size) = attributes.size {
        file.set_len(size)?;
    }
    if attributes.uid.is_some() || attributes.gid.is_some() {
        std::os::unix::fs::fchown(file, attributes.uid, attributes.gid)?;
    }
    if let Some(mode) = attributes.permissions {
        file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))?;
    }
    if let Some(times) = times(attributes) {
        file.set_times(times)?;
    }
    Ok(Answer::Done)
}

fn times(attributes: &FileAttributes) -> Option<fs::FileTimes> {
    let at = |seconds: u32| -> SystemTime { UNIX_EPOCH + Duration::from_secs(seconds.into()) };
    let (accessed, modified) = (attributes.atime?, attributes.mtime?);
    Some(fs::FileTimes::new().set_accessed(at(accessed)).set_modified(at(modified)))
}

fn file_system(stat: &rustix::fs::StatVfs) -> Statvfs {
    Statvfs {
        block_size: stat.f_bsize,
        fragment_size: stat.f_frsize,
        blocks: stat.f_blocks,
        blocks_free: stat.f_bfree,
        blocks_avail: stat.f_bavail,
        inodes: stat.f_files,
        inodes_free: stat.f_ffree,
        inodes_avail: stat.f_favail,
        fs_id: stat.f_fsid,
        flags: stat.f_flag.bits(),
        name_max: stat.f_namemax,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use russh_sftp::protocol::{Close, Open as OpenRequest, Read, Rename, Write};

    fn is_status(packet: &Packet, wanted: StatusCode) -> bool {
        matches!(packet, Packet::Status(status) if status.status_code == wanted)
    }

    fn open(files: &mut Files, name: &str, pflags: OpenFlags) -> Packet {
        let attrs = FileAttributes { permissions: Some(0o600), ..FileAttributes::empty() };
        files.answer(Packet::Open(OpenRequest { id: 1, filename: name.to_owned(), pflags, attrs }))
    }

    #[test]
    fn files_are_written_and_read_at_offsets() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::new(folder.path().to_owned(), "/home/ann".into());
        let Packet::Handle(Handle { handle, .. }) =
            open(&mut files, "a", OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE)
        else {
            panic!("it is opened")
        };
        let write = Write { id: 2, handle: handle.clone(), offset: 3, data: b"xyz".to_vec() };
        assert!(is_status(&files.answer(Packet::Write(write)), StatusCode::Ok));
        let mut read =
            |offset, len| files.answer(Packet::Read(Read { id: 3, handle: handle.clone(), offset, len }));
        assert!(matches!(read(2, 10), Packet::Data(Data { data, .. }) if data == b"\0xyz"));
        assert!(is_status(&read(6, 10), StatusCode::Eof));
        assert!(
            matches!(read(0, u32::MAX), Packet::Data(_)),
            "a longest read allocates no more than the limit"
        );
        assert_eq!(fs::metadata(folder.path().join("a")).unwrap().mode() & 0o777, 0o600);
        assert!(is_status(
            &files.answer(Packet::Close(Close { id: 4, handle: handle.clone() })),
            StatusCode::Ok
        ));
        assert!(is_status(&files.answer(Packet::Close(Close { id: 5, handle })), StatusCode::Failure));
    }

    #[test]
    fn errors_and_limits_are_answers() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::new(folder.path().to_owned(), "/home/ann".into());
        assert!(is_status(&open(&mut files, "missing", OpenFlags::READ), StatusCode::NoSuchFile));
        assert!(is_status(&open(&mut files, ".", OpenFlags::READ), StatusCode::Failure));
        fs::write(folder.path().join("a"), "1").unwrap();
        fs::write(folder.path().join("b"), "2").unwrap();
        let rename = Rename { id: 1, oldpath: "a".to_owned(), newpath: "b".to_owned() };
        assert!(is_status(&files.answer(Packet::Rename(rename)), StatusCode::Failure), "it does not replace");
        for _ in 0..MAX_HANDLES {
            assert!(matches!(open(&mut files, "a", OpenFlags::READ), Packet::Handle(_)));
        }
        assert!(is_status(&open(&mut files, "a", OpenFlags::READ), StatusCode::Failure));
    }

    #[test]
    fn paths_become_absolute() {
        let files = Files::new("/nonexistent/dir".into(), "/home/ann".into());
        assert_eq!(files.real_path("x/../y"), Path::new("/nonexistent/dir/y"));
        assert_eq!(files.real_path("/../.."), Path::new("/"));
        assert_eq!(normalize(Path::new("/a/./b/../../../c")), Path::new("/c"));
    }
}
