//! The system calls of a process, as strace recorded them, played on a [`Disk`].

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use crate::disk::{Change, Disk, Inode, ROOT};

/// What is recorded; what a machine lacks is marked as optional.
pub const CALLS: &str = "trace=?open,openat,?creat,close,?dup,?dup2,dup3,fcntl,lseek,write,pwrite64,writev,pwritev,\
                         ?pwritev2,ftruncate,truncate,fallocate,?rename,?renameat,?renameat2,?link,linkat,?unlink,\
                         unlinkat,?mkdir,mkdirat,?rmdir,fsync,fdatasync,sync,syncfs,?copy_file_range,?sendfile,mmap,chdir";

/// An open file or directory. Duplicates share it.
#[derive(Clone)]
struct Open {
    inode: Inode,
    offset: u64,
    append: bool,
    path: PathBuf,
}

/// What a line of the recording came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Played {
    /// Something synced: the state before was at risk until now.
    Synced,
    /// Nothing of note.
    Other,
}

/// Plays recorded calls.
pub struct Player {
    pub disk: Disk,
    root: PathBuf,
    descriptors: HashMap<i64, usize>,
    opened: Vec<Open>,
    /// Calls that have begun, by thread: their text, and what a sync among them covers.
    begun: HashMap<String, (String, Option<(Inode, usize)>)>,
    /// What the process wrote to its standard output.
    pub said: Vec<u8>,
}

struct Call<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
    result: i64,
}

impl Call<'_> {
    fn number(&self, index: usize) -> i64 {
        self.arguments[index].parse().unwrap_or_else(|_| panic!("{} of {:?}", self.arguments[index], self.name))
    }

    fn bytes(&self, index: usize) -> Vec<u8> {
        let quoted = self.arguments[index];
        assert!(!quoted.ends_with("..."), "strace cut the argument of {}", self.name);
        let hex = quoted.trim_matches('"').split("\\x").skip(1);
        hex.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    }

    fn path(&self, index: usize) -> PathBuf {
        PathBuf::from(String::from_utf8(self.bytes(index)).unwrap())
    }
}

impl Player {
    pub fn new(root: &Path) -> Self {
        let (descriptors, opened) = (HashMap::new(), Vec::new());
        let (begun, said) = (HashMap::new(), Vec::new());
        Self { disk: Disk::new(), root: root.to_owned(), descriptors, opened, begun, said }
    }

    /// Whether this line ends a sync of something on the disk.
    pub fn is_sync(&self, line: &str) -> bool {
        let (thread, text) = line.split_once(' ').unwrap_or((line, ""));
        if text.trim_start().starts_with("<...") {
            return self.begun.get(thread).is_some_and(|(_, covers)| covers.is_some());
        }
        !text.ends_with("<unfinished ...>") && self.covers(text.trim_start()).is_some()
    }

    /// What a sync that begins with this text covers.
    fn covers(&self, text: &str) -> Option<(Inode, usize)> {
        let (name, rest) = text.split_once('(')?;
        if !matches!(name, "fsync" | "fdatasync") {
            assert!(!matches!(name, "sync" | "syncfs"), "{name} is not modelled");
            return None;
        }
        let descriptor = rest.split([')', ' ', ',']).next()?.parse().ok()?;
        let inode = self.opened[*self.descriptors.get(&descriptor)?].inode;
        Some((inode, self.disk.unsynced(inode)))
    }

    /// Plays a line.
    pub fn play(&mut self, line: &str) -> Played {
        let (thread, text) = line.split_once(' ').unwrap_or((line, ""));
        let text = text.trim_start();
        if let Some(begin) = text.strip_suffix("<unfinished ...>") {
            let begin = begin.trim_end().to_owned();
            if begin.starts_with("write(1, ") {
                // Said as soon as it may be heard.
                let argument = begin.split(", ").nth(1).unwrap_or_default().to_owned();
                let call = Call { name: "write", arguments: vec![&argument], result: 0 };
                self.said.extend(call.bytes(0));
            }
            let covers = self.covers(&begin);
            self.begun.insert(thread.to_owned(), (begin, covers));
            return Played::Other;
        }
        let (whole, covers, late) = match text.strip_prefix("<... ") {
            Some(rest) => {
                let Some((begin, covers)) = self.begun.remove(thread) else { return Played::Other };
                let (_, end) = rest.split_once(" resumed>").unwrap();
                // What is resumed without further arguments has its separator in the first part.
                (format!("{begin}{end}"), covers, true)
            }
            None => (text.to_owned(), self.covers(text), false),
        };
        let Some((called, result)) = whole.rsplit_once(" = ") else { return Played::Other };
        let result = result.split(' ').next().and_then(|result| result.parse().ok()).unwrap_or(-1);
        let Some((name, arguments)) = called.trim_end().strip_suffix(')').and_then(|call| call.split_once('(')) else {
            return Played::Other;
        };
        let call = Call { name, arguments: arguments.split(", ").collect(), result };
        if call.result < 0 {
            return Played::Other;
        }
        if let Some((inode, changes)) = covers {
            self.disk.sync(inode, changes);
            return Played::Synced;
        }
        if name == "write" && call.arguments[0] == "1" {
            if !late {
                self.said.extend(call.bytes(1));
            }
            return Played::Other;
        }
        self.call(&call);
        Played::Other
    }

    fn call(&mut self, call: &Call<'_>) {
        let at = |index| Some((Some(index), index + 1));
        match call.name {
            "open" => self.open(None, 0, 1, call),
            "openat" => self.open(Some(0), 1, 2, call),
            "creat" => panic!("creat is not modelled"),
            "close" => drop(self.descriptors.remove(&call.number(0))),
            "dup" | "dup2" | "dup3" => self.duplicate(call),
            "fcntl" if call.arguments[1].starts_with("F_DUPFD") => self.duplicate(call),
            "lseek" => {
                if let Some(open) = self.of(call.number(0)) {
                    self.opened[open].offset = call.result as u64;
                }
            }
            "write" | "pwrite64" => {
                let Some(open) = self.of(call.number(0)) else { return };
                let mut bytes = call.bytes(1);
                bytes.truncate(call.result as usize);
                let inode = self.opened[open].inode;
                let at = match call.name {
                    "pwrite64" => call.number(3) as u64,
                    _ if self.opened[open].append => self.disk.length(inode),
                    _ => self.opened[open].offset,
                };
                if call.name == "write" {
                    self.opened[open].offset = at + bytes.len() as u64;
                }
                self.disk.change(inode, Change::Write(at, bytes));
            }
            "ftruncate" => {
                if let Some(open) = self.of(call.number(0)) {
                    self.disk.change(self.opened[open].inode, Change::Length(call.number(1) as u64));
                }
            }
            "fallocate" => {
                let Some(open) = self.of(call.number(0)) else { return };
                let keeps = call.arguments[1].contains("KEEP_SIZE") || call.arguments[1] == "0x1";
                let inode = self.opened[open].inode;
                let end = (call.number(2) + call.number(3)) as u64;
                if !keeps && end > self.disk.length(inode) {
                    self.disk.change(inode, Change::Length(end));
                }
            }
            "mkdir" => self.make_directory(None, 0, call),
            "mkdirat" => self.make_directory(Some(0), 1, call),
            "unlink" | "rmdir" => self.remove(None, 0, call),
            "unlinkat" => self.remove(Some(0), 1, call),
            "rename" => self.give(None, call, true),
            "renameat" | "renameat2" => self.give(at(0), call, true),
            "link" => self.give(None, call, false),
            "linkat" => self.give(at(0), call, false),
            "writev" | "pwritev" | "pwritev2" | "sendfile" => self.not_ours(call, 0),
            "copy_file_range" => self.not_ours(call, 2),
            "mmap" if call.arguments[2].contains("PROT_WRITE") && call.arguments[3].contains("MAP_SHARED") => {
                self.not_ours(call, 4);
            }
            "truncate" | "chdir" => panic!("{} is not modelled", call.name),
            _ => {}
        }
    }

    fn not_ours(&self, call: &Call<'_>, index: usize) {
        assert!(self.of(call.number(index)).is_none(), "{} of a file of the run is not modelled", call.name);
    }

    fn of(&self, descriptor: i64) -> Option<usize> {
        self.descriptors.get(&descriptor).copied()
    }

    fn duplicate(&mut self, call: &Call<'_>) {
        match self.of(call.number(0)) {
            Some(open) => self.descriptors.insert(call.result, open),
            None => self.descriptors.remove(&call.result),
        };
    }

    /// The full path of an argument; nothing where it lies elsewhere.
    fn full(&self, base: Option<usize>, index: usize, call: &Call<'_>) -> Option<PathBuf> {
        let path = call.path(index);
        let full = match base.map(|base| call.arguments[base]) {
            Some(base) if base != "AT_FDCWD" && path.is_relative() => {
                self.opened[self.of(base.parse().unwrap())?].path.join(path)
            }
            _ => path,
        };
        full.starts_with(&self.root).then_some(full)
    }

    /// The directory and the name of a full path.
    fn parent<'a>(&self, full: &'a Path) -> (Inode, &'a str) {
        let directory = full.parent().and_then(|parent| self.find(parent));
        let directory = directory.unwrap_or_else(|| panic!("nobody made the directory of {}", full.display()));
        (directory, full.file_name().unwrap().to_str().unwrap())
    }

    fn find(&self, full: &Path) -> Option<Inode> {
        full.strip_prefix(&self.root).ok()?.components().try_fold(ROOT, |inode, part| match part {
            Component::Normal(name) => self.disk.find(inode, name.to_str()?),
            _ => Some(inode),
        })
    }

    fn open(&mut self, base: Option<usize>, path: usize, flags: usize, call: &Call<'_>) {
        self.descriptors.remove(&call.result);
        let Some(full) = self.full(base, path, call) else { return };
        let flags = call.arguments[flags];
        let inode = self.find(&full).unwrap_or_else(|| {
            assert!(flags.contains("O_CREAT"), "{} was opened, but nobody made it", full.display());
            let (parent, name) = self.parent(&full);
            self.disk.make_file(parent, name)
        });
        if flags.contains("O_TRUNC") && self.disk.length(inode) > 0 {
            self.disk.change(inode, Change::Length(0));
        }
        self.opened.push(Open { inode, offset: 0, append: flags.contains("O_APPEND"), path: full });
        self.descriptors.insert(call.result, self.opened.len() - 1);
    }

    fn make_directory(&mut self, base: Option<usize>, path: usize, call: &Call<'_>) {
        let Some(full) = self.full(base, path, call) else { return };
        let (parent, name) = self.parent(&full);
        self.disk.make_directory(parent, name);
    }

    fn remove(&mut self, base: Option<usize>, path: usize, call: &Call<'_>) {
        let Some(full) = self.full(base, path, call) else { return };
        let (parent, name) = self.parent(&full);
        self.disk.rename(parent, vec![(name.to_owned(), None)]);
    }

    /// Gives a file another name, beside its own or instead of it.
    fn give(&mut self, at: Option<(Option<usize>, usize)>, call: &Call<'_>, instead: bool) {
        let (from, to) = match at {
            None => (self.full(None, 0, call), self.full(None, 1, call)),
            Some(_) => (self.full(Some(0), 1, call), self.full(Some(2), 3, call)),
        };
        let (Some(from), Some(to)) = (from, to) else { return };
        let inode = self.find(&from).unwrap_or_else(|| panic!("nobody made {}", from.display()));
        let ((old, old_name), (new, new_name)) = (self.parent(&from), self.parent(&to));
        let (taken, given) = ((old_name.to_owned(), None), (new_name.to_owned(), Some(inode)));
        match (instead, old == new) {
            (true, true) => self.disk.rename(old, vec![taken, given]),
            (true, false) => {
                self.disk.rename(new, vec![given]);
                self.disk.rename(old, vec![taken]);
            }
            (false, _) => self.disk.rename(new, vec![given]),
        }
        // Whoever holds a directory open knows it by its new name.
        for open in &mut self.opened {
            if let Ok(rest) = open.path.strip_prefix(&from) {
                open.path = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
            }
        }
    }
}
