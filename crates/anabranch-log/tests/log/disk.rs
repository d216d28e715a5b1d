//! A disk that a power loss strikes: what was synced is there, of what was not, nothing or a part.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::scripted::Numbers;

/// A file or a directory, whatever its names.
pub type Inode = usize;

/// The directory that everything lies in; it was there, and durable, before anything else.
pub const ROOT: Inode = 0;

/// A change of a file.
#[derive(Clone, Debug)]
pub enum Change {
    /// These bytes were written at this place.
    Write(u64, Vec<u8>),
    /// It has this length now.
    Length(u64),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(at, written) => {
                let end = *at as usize + written.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*at as usize..end].copy_from_slice(written);
            }
            Self::Length(length) => bytes.resize(*length as usize, 0),
        }
    }
}

/// Names of a directory that change together: a rename is never half done.
type Renaming = Vec<(String, Option<Inode>)>;
type Names = BTreeMap<String, Inode>;

enum Node {
    File { live: Vec<u8>, durable: Vec<u8>, unsynced: Vec<Change> },
    Directory { live: Names, durable: Names, unsynced: Vec<Renaming> },
}

fn directory() -> Node {
    Node::Directory { live: Names::new(), durable: Names::new(), unsynced: Vec::new() }
}

/// What of the unsynced survives.
pub enum Luck<'a> {
    /// Nothing.
    None,
    /// A part of each file and of each directory, in the order of its changes.
    Some(&'a mut Numbers),
}

impl Luck<'_> {
    fn of(&mut self, changes: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Some(numbers) => numbers.below(changes as u64 + 1) as usize,
        }
    }
}

/// The disk.
pub struct Disk(Vec<Node>);

impl Disk {
    pub fn new() -> Self {
        Self(vec![directory()])
    }

    fn names(&self, of: Inode) -> &Names {
        match &self.0[of] {
            Node::Directory { live, .. } => live,
            Node::File { .. } => panic!("{of} is a file"),
        }
    }

    /// What has this name in the directory.
    pub fn find(&self, parent: Inode, name: &str) -> Option<Inode> {
        self.names(parent).get(name).copied()
    }

    pub fn make_file(&mut self, parent: Inode, name: &str) -> Inode {
        self.make(parent, name, Node::File { live: Vec::new(), durable: Vec::new(), unsynced: Vec::new() })
    }

    pub fn make_directory(&mut self, parent: Inode, name: &str) -> Inode {
        self.make(parent, name, directory())
    }

    fn make(&mut self, parent: Inode, name: &str, node: Node) -> Inode {
        self.0.push(node);
        let made = self.0.len() - 1;
        self.rename(parent, vec![(name.to_owned(), Some(made))]);
        made
    }

    /// Gives names, and takes them, in one step.
    pub fn rename(&mut self, parent: Inode, renaming: Renaming) {
        let Node::Directory { live, unsynced, .. } = &mut self.0[parent] else { panic!("{parent} is a file") };
        apply(&renaming, live);
        unsynced.push(renaming);
    }

    pub fn change(&mut self, file: Inode, change: Change) {
        let Node::File { live, unsynced, .. } = &mut self.0[file] else { panic!("{file} is a directory") };
        change.apply(live);
        unsynced.push(change);
    }

    pub fn length(&self, file: Inode) -> u64 {
        match &self.0[file] {
            Node::File { live, .. } => live.len() as u64,
            Node::Directory { .. } => 0,
        }
    }

    /// How many changes a sync that begins now covers.
    pub fn unsynced(&self, of: Inode) -> usize {
        match &self.0[of] {
            Node::File { unsynced, .. } => unsynced.len(),
            Node::Directory { unsynced, .. } => unsynced.len(),
        }
    }

    /// The first `covered` unsynced changes are durable.
    pub fn sync(&mut self, of: Inode, covered: usize) {
        match &mut self.0[of] {
            Node::File { durable, unsynced, .. } => {
                let covered = covered.min(unsynced.len());
                unsynced.drain(..covered).for_each(|change| change.apply(durable));
            }
            Node::Directory { durable, unsynced, .. } => {
                let covered = covered.min(unsynced.len());
                unsynced.drain(..covered).for_each(|renaming| apply(&renaming, durable));
            }
        }
    }

    /// The power goes: what is found on the disk is written below `to`.
    pub fn after_power_loss(&self, to: &Path, luck: &mut Luck<'_>) {
        self.write(ROOT, to, luck);
    }

    fn write(&self, of: Inode, to: &Path, luck: &mut Luck<'_>) {
        match &self.0[of] {
            Node::File { durable, unsynced, .. } => {
                let mut bytes = durable.clone();
                unsynced[..luck.of(unsynced.len())].iter().for_each(|change| change.apply(&mut bytes));
                fs::write(to, bytes).unwrap();
            }
            Node::Directory { durable, unsynced, .. } => {
                let mut names = durable.clone();
                unsynced[..luck.of(unsynced.len())].iter().for_each(|renaming| apply(renaming, &mut names));
                fs::create_dir_all(to).unwrap();
                for (name, inode) in names {
                    self.write(inode, &to.join(name), luck);
                }
            }
        }
    }
}

fn apply(renaming: &Renaming, names: &mut Names) {
    for (name, inode) in renaming {
        match inode {
            Some(inode) => names.insert(name.clone(), *inode),
            None => names.remove(name),
        };
    }
}
