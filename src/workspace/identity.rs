//! What a workspace is: a directory tree, known by its canonical path and by device and inode of it and its ancestors.
//!
//! - Overlap is symmetric and complete: the same directory, one inside the other, under whatever name each was reached
//!   (links are resolved; bind mounts share device and inode).
//! - Pure, but for [`RootIdentity::capture`].

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Device and inode of a directory on the executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectoryId {
    pub device: u64,
    pub inode: u64,
}

impl DirectoryId {
    fn of(path: &Path) -> io::Result<Self> {
        let meta = std::fs::metadata(path)?;
        if !meta.is_dir() {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
        })
    }
}

/// A workspace root on one executor, as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootIdentity {
    /// Canonical: absolute, without links.
    pub path: PathBuf,
    pub root: DirectoryId,
    /// The parent first, `/` last.
    pub ancestors: Vec<DirectoryId>,
}

impl RootIdentity {
    /// Resolves a root, which may itself be a link, and records it with all of its ancestors.
    pub fn capture(root: &Path) -> io::Result<Self> {
        let path = root.canonicalize()?;
        if path.to_str().is_none() {
            // The database keeps paths as text, and two different roots must never read as the same text.
            return Err(io::Error::from(io::ErrorKind::InvalidFilename));
        }
        let identity = Self {
            root: DirectoryId::of(&path)?,
            ancestors: path
                .ancestors()
                .skip(1)
                .map(DirectoryId::of)
                .collect::<io::Result<_>>()?,
            path,
        };
        Ok(identity)
    }

    /// Whether two turns in these trees could touch the same file.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other) || other.contains(self)
    }

    /// `other` is this directory, or lies below it.
    fn contains(&self, other: &Self) -> bool {
        other.path.starts_with(&self.path)
            || other.root == self.root
            || other.ancestors.contains(&self.root)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A model of a file system: directories are numbered, each has one real parent, and may be mounted elsewhere too.
    #[derive(Debug, Clone)]
    struct Tree {
        /// Path below `/` → number of the directory there.
        at: BTreeMap<PathBuf, u64>,
    }

    impl Tree {
        fn new(
            parents: &[prop::sample::Index],
            binds: &[(prop::sample::Index, prop::sample::Index)],
        ) -> Self {
            let mut paths = vec![PathBuf::from("/")];
            for (n, parent) in parents.iter().enumerate() {
                let path = parent.get(&paths).join(format!("d{n}"));
                paths.push(path);
            }
            let mut at: BTreeMap<PathBuf, u64> = paths
                .iter()
                .enumerate()
                .map(|(n, p)| (p.clone(), n as u64))
                .collect();
            for (n, (from, onto)) in binds.iter().enumerate() {
                let (from, onto) = (
                    from.get(&paths).clone(),
                    onto.get(&paths).join(format!("m{n}")),
                );
                let below: Vec<_> = at
                    .iter()
                    .filter(|(p, _)| p.starts_with(&from))
                    .map(|(p, id)| (onto.join(p.strip_prefix(&from).unwrap()), *id))
                    .collect();
                if !onto.starts_with(&from) {
                    at.extend(below);
                }
            }
            Self { at }
        }

        fn identity(&self, path: &Path) -> RootIdentity {
            let id = |p: &Path| DirectoryId {
                device: 1,
                inode: self.at[p],
            };
            RootIdentity {
                path: path.to_owned(),
                root: id(path),
                ancestors: path.ancestors().skip(1).map(id).collect(),
            }
        }

        /// Everything that can be reached below a path, itself included.
        fn reach(&self, path: &Path) -> std::collections::BTreeSet<u64> {
            self.at
                .iter()
                .filter(|(p, _)| p.starts_with(path))
                .map(|(_, id)| *id)
                .collect()
        }
    }

    proptest! {
        #[test]
        fn overlap_is_symmetric_and_misses_no_shared_directory(
            parents in prop::collection::vec(any::<prop::sample::Index>(), 1..12),
            binds in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..2),
        ) {
            let tree = Tree::new(&parents, &binds);
            let paths: Vec<_> = tree.at.keys().cloned().collect();
            for a in &paths {
                for b in &paths {
                    let (one, two) = (tree.identity(a), tree.identity(b));
                    prop_assert_eq!(one.overlaps(&two), two.overlaps(&one));
                    // A root that is reached below the other one, or at it, in whatever way, is an overlap.
                    let inside = tree.reach(a).contains(&two.root.inode) || tree.reach(b).contains(&one.root.inode);
                    let nested = a.starts_with(b) || b.starts_with(a);
                    let through_ancestors = one.ancestors.contains(&two.root) || two.ancestors.contains(&one.root);
                    if nested || one.root == two.root || through_ancestors {
                        prop_assert!(one.overlaps(&two), "{a:?} {b:?}");
                    }
                    if !inside && !nested && !through_ancestors {
                        prop_assert!(!one.overlaps(&two), "{a:?} {b:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn d66_every_spelling_of_a_directory_is_the_same_workspace() {
        let base = std::env::temp_dir().join(format!("bazilion-root-{}", std::process::id()));
        std::fs::create_dir_all(base.join("w/x")).unwrap();
        std::fs::create_dir_all(base.join("b")).unwrap();
        let link = base.join("link");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(base.join("w"), &link).unwrap();
        let w = RootIdentity::capture(&base.join("w")).unwrap();
        for spelling in ["w/.", "w/x/..", "link", "w/x", "."] {
            let other = RootIdentity::capture(&base.join(spelling)).unwrap();
            assert!(w.overlaps(&other), "{spelling}");
        }
        assert!(!w.overlaps(&RootIdentity::capture(&base.join("b")).unwrap()));
        std::fs::remove_dir_all(base).unwrap();
    }
}
