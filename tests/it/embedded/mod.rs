//! The private PostgreSQL of a data directory: real programs, real directories.

mod cluster;
mod directory;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bazilion::embedded::Layout;
use bazilion::embedded::binaries::Search;
use bazilion::ids::RequestId;

/// A directory that goes away with the test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        let name = RequestId::new().to_string();
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn layout(&self) -> Layout {
        Layout::open(&self.0.join("data")).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Progress lines, kept.
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub fn note(&self) -> impl Fn(&str) + Send + Sync + use<> {
        let kept = self.0.clone();
        move |line| kept.lock().unwrap().push(line.to_owned())
    }

    pub fn contain(&self, part: &str) -> bool {
        self.0
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains(part))
    }
}

pub fn machine() -> Search {
    Search::of_machine()
}
