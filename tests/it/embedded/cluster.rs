//! From nothing to a migrated database and down again, also after the parent was killed.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use bazilion::db::Db;
use bazilion::embedded::Cluster;
use bazilion::embedded::cluster::Role;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};

use super::{Notes, Scratch, machine};

async fn start(scratch: &Scratch, notes: &Notes) -> Cluster {
    Cluster::start(&scratch.layout(), &machine(), &notes.note())
        .await
        .unwrap()
}

async fn migrate(cluster: &Cluster) {
    Db::migrate(cluster.options(Role::Owner)).await.unwrap();
    cluster.grant().await.unwrap();
}

#[tokio::test]
async fn a_database_is_made_from_nothing_and_found_again_at_the_second_start() {
    let (scratch, notes) = (Scratch::new(), Notes::default());
    let cluster = start(&scratch, &notes).await;
    assert!(notes.contain("Making a private PostgreSQL"));
    migrate(&cluster).await;
    let db = Db::connect(cluster.options(Role::Login), 2, time::Duration::ZERO)
        .await
        .unwrap();
    db.ping().await.unwrap();
    assert!(db.is_migrated().await.unwrap());
    db.close().await;
    let pid = cluster.pid();
    cluster.stop().await.unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());

    let notes = Notes::default();
    let cluster = start(&scratch, &notes).await;
    assert!(!notes.contain("Making a private PostgreSQL"));
    migrate(&cluster).await;
    let db = Db::connect(cluster.options(Role::Login), 2, time::Duration::ZERO)
        .await
        .unwrap();
    assert!(db.is_migrated().await.unwrap());
    db.close().await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn postgresql_never_runs_as_root_and_listens_on_a_private_socket_only() {
    let (scratch, notes) = (Scratch::new(), Notes::default());
    let cluster = start(&scratch, &notes).await;
    let process = format!("/proc/{}", cluster.pid());
    assert_ne!(std::fs::metadata(&process).unwrap().uid(), 0);
    let mut conn = cluster.options(Role::Admin).connect().await.unwrap();
    let show = |name| sqlx::query_scalar::<_, String>(name);
    assert_eq!(
        show("SHOW listen_addresses")
            .fetch_one(&mut conn)
            .await
            .unwrap(),
        ""
    );
    let socket = show("SHOW unix_socket_directories")
        .fetch_one(&mut conn)
        .await
        .unwrap();
    let meta = std::fs::metadata(&socket).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o700);
    assert!(socket.len() + "/.s.PGSQL.5432".len() <= 107);
    let passwords = std::fs::metadata(scratch.layout().passwords()).unwrap();
    assert_eq!(passwords.mode() & 0o777, 0o600);
    conn.close().await.unwrap();

    let wrong = cluster.options(Role::Admin).password("wrong");
    assert!(wrong.connect().await.is_err(), "a password is always asked");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn the_roles_of_the_server_and_the_reader_own_nothing_and_bypass_nothing() {
    let (scratch, notes) = (Scratch::new(), Notes::default());
    let cluster = start(&scratch, &notes).await;
    migrate(&cluster).await;
    // Granting again is what every later start does.
    cluster.grant().await.unwrap();
    let mut admin = cluster.options(Role::Admin).connect().await.unwrap();
    let bypassing: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'bazilion%' AND rolname <> 'bazilion_admin' AND (rolbypassrls OR rolsuper)",
    )
    .fetch_one(&mut admin)
    .await
    .unwrap();
    assert_eq!(bypassing, 0);
    admin.close().await.unwrap();

    let mut server = cluster.options(Role::Login).connect().await.unwrap();
    assert!(
        server.execute("SELECT * FROM teams").await.is_err(),
        "nothing without a role"
    );
    server.close().await.unwrap();

    let url = cluster.reader_url();
    let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
    let mut reader = options.connect().await.unwrap();
    reader.execute("SELECT * FROM teams").await.unwrap();
    assert!(
        reader
            .execute("SET default_transaction_read_only = off; DELETE FROM teams")
            .await
            .is_err()
    );
    reader.close().await.unwrap();
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_killed_parent_left_running_is_stopped_and_its_data_kept() {
    let (scratch, notes) = (Scratch::new(), Notes::default());
    let cluster = start(&scratch, &notes).await;
    let mut owner = cluster.options(Role::Owner).connect().await.unwrap();
    owner
        .execute("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
        .await
        .unwrap();
    owner.close().await.unwrap();
    cluster.stop().await.unwrap();

    // A server in the same directory that nobody looks after any more.
    let layout = scratch.layout();
    let binaries = machine().choose(layout.cluster_major()).unwrap();
    let owner = std::fs::metadata(layout.cluster()).unwrap();
    let mut orphan = Command::new(binaries.program("postgres"));
    orphan
        .arg("-D")
        .arg(layout.cluster())
        .args(["-c", "listen_addresses=", "-c"]);
    orphan.arg(format!(
        "unix_socket_directories={}",
        layout.postgres().display()
    ));
    orphan
        .current_dir(layout.postgres().parent().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if rustix::process::geteuid().is_root() {
        orphan.uid(owner.uid()).gid(owner.gid());
    }
    let mut orphan = orphan.spawn().unwrap();
    let socket = layout.postgres().join(".s.PGSQL.5432");
    until("the orphan listens", || socket.exists()).await;

    let notes = Notes::default();
    let cluster = start(&scratch, &notes).await;
    assert!(notes.contain("left behind"));
    assert!(orphan.try_wait().unwrap().is_some(), "the orphan has ended");
    let mut owner = cluster.options(Role::Owner).connect().await.unwrap();
    let kept: i32 = sqlx::query_scalar("SELECT n FROM kept")
        .fetch_one(&mut owner)
        .await
        .unwrap();
    assert_eq!(kept, 7);
    owner.close().await.unwrap();
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_dies_by_itself_is_noticed() {
    let (scratch, notes) = (Scratch::new(), Notes::default());
    let cluster = start(&scratch, &notes).await;
    let pid = rustix::process::Pid::from_raw(cluster.pid().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::QUIT).unwrap();
    let obstacle = cluster.ended().await;
    assert!(obstacle.what.contains("ended by itself"), "{obstacle}");
}

/// Looks until it is so.
async fn until(what: &str, so: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while !so() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::task::yield_now().await;
    }
}
