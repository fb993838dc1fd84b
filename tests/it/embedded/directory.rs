//! What stands in the way of a start, and what the message says to do.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use bazilion::embedded::binaries::Search;
use bazilion::embedded::{Cluster, Hold, Layout, Lock, keys, lock};
use serde_json::json;

use super::{Notes, Scratch, machine};

#[tokio::test]
async fn data_of_another_major_version_is_refused_before_anything_starts() {
    let scratch = Scratch::new();
    let layout = scratch.layout();
    fs::create_dir_all(layout.cluster()).unwrap();
    fs::write(layout.cluster().join("PG_VERSION"), "9\n").unwrap();
    let notes = Notes::default();
    let refusal = Cluster::start(&layout, &machine(), &notes.note())
        .await
        .unwrap_err();
    assert!(refusal.what.contains("made by PostgreSQL 9"), "{refusal}");
    assert!(
        refusal.next.contains("apt-get install -y postgresql-9"),
        "{refusal}"
    );
    assert!(!notes.contain("Starting"));
}

#[tokio::test]
async fn without_server_programs_the_message_has_the_install_command_and_nothing_is_stored() {
    let scratch = Scratch::new();
    let layout = scratch.layout();
    let nowhere = Search {
        path: Some("/nonexistent".into()),
        ..Search::default()
    };
    let refusal = Cluster::start(&layout, &nowhere, &Notes::default().note())
        .await
        .unwrap_err();
    assert!(
        refusal.what.contains("No PostgreSQL server programs"),
        "{refusal}"
    );
    assert!(
        refusal.next.contains("apt-get install -y postgresql"),
        "{refusal}"
    );
    assert!(!layout.postgres().exists() && !layout.passwords().exists());

    let named = Search {
        only: Some(scratch.path().into()),
        ..Search::default()
    };
    let refusal = named.choose(None).unwrap_err();
    assert!(refusal.what.contains("BAZILION_PG_BIN"), "{refusal}");
}

#[test]
fn a_directory_that_cannot_be_used_names_the_next_step() {
    let scratch = Scratch::new();
    let file = scratch.path().join("file");
    fs::write(&file, "").unwrap();
    let refusal = Layout::open(&file.join("data")).unwrap_err();
    assert!(refusal.next.contains("--data-dir"), "{refusal}");
    // Nobody, not even root, writes there.
    let refusal = Layout::open("/proc/bazilion".as_ref()).unwrap_err();
    assert!(refusal.next.contains("--data-dir"), "{refusal}");
}

#[test]
fn a_held_directory_says_who_holds_it_and_where_it_serves() {
    let scratch = Scratch::new();
    let layout = scratch.layout();
    let Hold::Ours(mut ours) = Lock::reach(&layout).unwrap() else {
        panic!("nobody else is here");
    };
    let Hold::Theirs(starting) = Lock::reach(&layout).unwrap() else {
        panic!("it is held");
    };
    let refusal = lock::still_starting(&layout, starting.as_ref());
    assert!(
        refusal.what.contains(&std::process::id().to_string()),
        "{refusal}"
    );

    ours.announce(&layout, json!({"url": "http://127.0.0.1:8080"}))
        .unwrap();
    let Hold::Theirs(Some(holder)) = Lock::reach(&layout).unwrap() else {
        panic!("it is held");
    };
    assert_eq!(holder.url(), Some("http://127.0.0.1:8080"));
    assert_eq!(
        fs::metadata(layout.lock()).unwrap().permissions().mode() & 0o777,
        0o600
    );
    drop(ours);
    assert!(matches!(Lock::reach(&layout).unwrap(), Hold::Ours(_)));
}

#[test]
fn the_master_key_is_made_once_for_one_reader() {
    let scratch = Scratch::new();
    let layout = scratch.layout();
    assert!(keys::existing_master_key(&layout.master_key()).is_err());
    let made = keys::master_key(&layout.master_key()).unwrap();
    let again = keys::master_key(&layout.master_key()).unwrap();
    assert_eq!(made.blind("p", b"v"), again.blind("p", b"v"));
    assert_eq!(
        fs::metadata(layout.master_key())
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );

    fs::set_permissions(layout.master_key(), fs::Permissions::from_mode(0o644)).unwrap();
    let Err(refusal) = keys::master_key(&layout.master_key()) else {
        panic!("a key that others may read is refused");
    };
    assert!(refusal.next.contains("chmod 600"), "{refusal}");
}

#[tokio::test]
async fn a_lost_password_file_is_said_and_the_database_is_left_alone() {
    let scratch = Scratch::new();
    let layout = scratch.layout();
    let cluster = Cluster::start(&layout, &machine(), &Notes::default().note())
        .await
        .unwrap();
    cluster.stop().await.unwrap();
    fs::remove_file(layout.passwords()).unwrap();
    let refusal = Cluster::start(&layout, &machine(), &Notes::default().note())
        .await
        .unwrap_err();
    assert!(refusal.what.contains("passwords"), "{refusal}");
    assert!(layout.cluster_major().is_some());
}
