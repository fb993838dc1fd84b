//! Copies and rewinds of a real cluster are recognised; restart, crash recovery and vacuum are none.

use bazilion::db::{Db, Op, SystemTx};
use bazilion::instance::restored::{self, Sign, Verdict};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _};

use crate::support::db::TestDb;

async fn identity(db: &Db) -> restored::Identity {
    db.system(
        Op::locking("test"),
        &(),
        async |tx: &mut SystemTx, (): &()| restored::find_identity_across_homes(tx).await,
    )
    .await
    .unwrap()
    .unwrap()
}

#[tokio::test]
async fn an_empty_database_is_new_and_then_the_same_also_after_vacuum() {
    let test = TestDb::new().await;
    let db = test.connect().await.unwrap();
    assert_eq!(restored::check(&db, None).await.unwrap(), Verdict::New);
    assert_eq!(restored::check(&db, None).await.unwrap(), Verdict::Same);
    let mut root = test.superuser().await;
    root.execute("VACUUM FREEZE instance").await.unwrap();
    root.execute("VACUUM FULL instance").await.unwrap();
    assert_eq!(restored::check(&db, None).await.unwrap(), Verdict::Same);
}

#[tokio::test]
async fn a_template_copy_is_another_database() {
    let test = TestDb::new().await;
    let db = test.connect().await.unwrap();
    restored::check(&db, None).await.unwrap();
    db.close().await;
    let mut root = test
        .login()
        .username("postgres")
        .database("postgres")
        .connect()
        .await
        .unwrap();
    let copy = format!("{}_copy", test.name());
    let sql = format!(
        r#"CREATE DATABASE "{copy}" TEMPLATE "{}" STRATEGY wal_log"#,
        test.name()
    );
    root.execute(AssertSqlSafe(sql)).await.unwrap();
    let copied = Db::connect(test.login().database(&copy), 2, time::Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(
        restored::check(&copied, None).await.unwrap(),
        Verdict::Restored(vec![Sign::OtherDatabase])
    );
}

#[tokio::test]
async fn a_row_that_was_loaded_from_a_dump_has_another_writer() {
    let test = TestDb::new().await;
    let db = test.connect().await.unwrap();
    restored::check(&db, None).await.unwrap();
    let before = identity(&db).await;
    // What a load does: the same values, written by another transaction.
    let mut root = test.superuser().await;
    root.execute(
        "CREATE TEMPORARY TABLE dump AS TABLE instance; DELETE FROM instance; INSERT INTO instance SELECT * FROM dump",
    )
    .await
    .unwrap();
    assert_eq!(
        restored::check(&db, None).await.unwrap(),
        Verdict::Restored(vec![Sign::Loaded])
    );

    let after = db
        .system(
            Op::serializable("test"),
            &(),
            async |tx: &mut SystemTx, (): &()| restored::begin_generation(tx, None, false).await,
        )
        .await
        .unwrap();
    assert_eq!(after.generation, before.generation + 1);
    assert_ne!(after.instance, before.instance);
    assert_eq!(restored::check(&db, None).await.unwrap(), Verdict::Same);
}
