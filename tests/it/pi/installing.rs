//! The pinned engine, from tarballs to files that are watched.

use std::path::Path;

use axum::Router;
use bazilion::runtime::pi::install::{InstallError, PACKAGES, PiInstall, Progress, Source};

use super::harness::{cache, tarballs};

struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        let path = cache().join(format!("test-{}", bazilion::ids::RequestId::new()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn entries(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_changed_file_and_a_missing_one_are_noticed() {
    let folder = Folder::new();
    let install = PiInstall::at(&folder.0);
    assert!(matches!(install.check(), Err(InstallError::Missing(_))));
    let mut steps = Vec::new();
    let source = Source::Folder(tarballs());
    install
        .install(&source, &mut |step| steps.push(step))
        .await
        .unwrap();
    assert_eq!(steps.len(), PACKAGES.len() + 1);
    assert_eq!(steps.last(), Some(&Progress::Done));
    install.check().unwrap();
    install.verify().unwrap();
    // Doing it again does nothing.
    install
        .install(&Source::Folder("/nowhere".into()), &mut |_| {})
        .await
        .unwrap();

    let dir = folder.0.join(&entries(&folder.0)[0]);
    let entry = dir.join("app/node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js");
    let text = std::fs::read(&entry).unwrap();
    let time = std::fs::metadata(&entry).unwrap().modified().unwrap();
    let mut other = text.clone();
    other[0] ^= 1;
    std::fs::write(&entry, &other).unwrap();
    assert!(matches!(install.check(), Err(InstallError::Changed { .. })));
    let file = std::fs::File::options().write(true).open(&entry).unwrap();
    file.set_modified(time).unwrap();
    // Size and time were put back; only reading it finds it.
    install.check().unwrap();
    assert!(matches!(
        install.verify(),
        Err(InstallError::Changed { .. })
    ));
    std::fs::remove_file(&entry).unwrap();
    assert!(matches!(install.check(), Err(InstallError::Changed { .. })));
    // A damaged engine is replaced as a whole.
    install.install(&source, &mut |_| {}).await.unwrap();
    install.verify().unwrap();
}

#[tokio::test]
async fn a_wrong_hash_unpacks_nothing() {
    let folder = Folder::new();
    let wrong = folder.0.join("wrong");
    std::fs::create_dir(&wrong).unwrap();
    for name in entries(&tarballs()) {
        std::fs::write(wrong.join(name), b"not what was pinned").unwrap();
    }
    let install = PiInstall::at(&folder.0);
    let refused = install.install(&Source::Folder(wrong), &mut |_| {}).await;
    assert!(matches!(refused, Err(InstallError::Hash { .. })));
    assert_eq!(entries(&folder.0), ["wrong"]);
}

#[tokio::test]
async fn a_registry_is_asked_for_the_pinned_versions() {
    let folder = Folder::new();
    let tarballs = tarballs();
    let serve = move |request: axum::extract::Request| {
        let path = request.uri().path().to_owned();
        let package = PACKAGES
            .iter()
            .find(|p| path.starts_with(&format!("/registry/{}/-/", p.name)))
            .unwrap();
        let flat = package.name.trim_start_matches('@').replace('/', "-");
        let file = tarballs.join(format!("{flat}-{}.tgz", package.version));
        assert!(path.ends_with(&format!("-{}.tgz", package.version)));
        async move { std::fs::read(file).unwrap() }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/registry/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        axum::serve(listener, Router::new().fallback(serve))
            .await
            .unwrap()
    });
    let install = PiInstall::at(&folder.0);
    let mut fetched = 0;
    let mut progress = |step| {
        if let Progress::Fetching {
            total, received, ..
        } = step
        {
            assert!(received <= total.unwrap());
            fetched += 1;
        }
    };
    install
        .install(&Source::Registry(base), &mut progress)
        .await
        .unwrap();
    assert!(fetched >= PACKAGES.len());
    install.verify().unwrap();
    assert_eq!(entries(&folder.0).len(), 1);
}
