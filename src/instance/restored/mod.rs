//! Recognises a database that was copied or taken back (`queue.md`, "Restored databases").
//!
//! - One row remembers where it was written. It is compared at the start and on every reconnect, under an advisory
//!   lock, before any claim or sweep.
//! - What differs is named, so that a person can tell a restore from a planned move, which is announced.
//! - A rewind of the same directory cannot be seen from inside; the executor's workspace base keeps the highest
//!   fencing number outside the database (see `witness`).

pub mod apply;
mod store;
pub mod witness;

use std::path::Path;

use crate::db::{Db, Op, SystemTx};
use crate::error::{Error, Result};

pub use store::{Identity, find_identity_across_homes};

const CHECK: Op = Op::serializable("instance.check_identity");

/// The data directory of the embedded cluster, as the file system knows it. Only `bazilion up` can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDirectory {
    pub path: String,
    pub device: i64,
    pub inode: i64,
}

impl DataDirectory {
    /// Looks at an existing directory.
    pub fn look(path: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let meta = std::fs::metadata(path)?;
        Ok(Self {
            path: path.to_string_lossy().into_owned(),
            device: i64::from_ne_bytes(meta.dev().to_ne_bytes()),
            inode: i64::from_ne_bytes(meta.ino().to_ne_bytes()),
        })
    }
}

/// Where a row of this database is written, or was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub database_oid: i64,
    pub system_identifier: i64,
    pub timeline: i32,
    pub directory: Option<DataDirectory>,
}

/// What says that this is not the database that wrote the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The row's writer is another transaction than the row says: dumped and loaded.
    Loaded,
    /// Another database of the cluster: `CREATE DATABASE … TEMPLATE`.
    OtherDatabase,
    /// Another timeline: point-in-time recovery or a promoted standby.
    OtherTimeline,
    /// Another cluster.
    OtherCluster,
    /// The data directory lies elsewhere or was copied.
    OtherDirectory,
    /// Fencing numbers outside are ahead of those inside: rewound.
    Rewound,
    /// A person said so.
    Declared,
}

impl Sign {
    /// A word for logs and the audit.
    pub fn as_str(self) -> &'static str {
        match self {
            Sign::Loaded => "dump_and_restore",
            Sign::OtherDatabase => "template_copy",
            Sign::OtherTimeline => "timeline",
            Sign::OtherCluster => "cluster",
            Sign::OtherDirectory => "data_directory",
            Sign::Rewound => "rewound",
            Sign::Declared => "declared",
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The first start on an empty database.
    New,
    /// The database that wrote the row.
    Same,
    /// A copy or a rewind: the conservative rules apply before anything else happens.
    Restored(Vec<Sign>),
}

/// Compares what the row says with what is so. Pure.
pub fn compare(row: &store::Written, here: &Place) -> Vec<Sign> {
    let was = &row.place;
    let directory_differs = match (&was.directory, &here.directory) {
        (Some(was), Some(now)) => was != now,
        // A server without `up` cannot see the directory: nothing to compare.
        _ => false,
    };
    [
        (row.writer != row.written_xid, Sign::Loaded),
        (was.database_oid != here.database_oid, Sign::OtherDatabase),
        (
            was.system_identifier != here.system_identifier,
            Sign::OtherCluster,
        ),
        (was.timeline != here.timeline, Sign::OtherTimeline),
        (directory_differs, Sign::OtherDirectory),
    ]
    .into_iter()
    .filter_map(|(differs, sign)| differs.then_some(sign))
    .collect()
}

/// Checks the row; on an empty database writes it. The caller applies a `Restored` verdict before it does anything
/// else, with [`begin_generation`] first.
pub async fn check(db: &Db, directory: Option<&DataDirectory>) -> Result<Verdict> {
    db.system(
        CHECK,
        &directory,
        async |tx: &mut SystemTx, directory: &Option<&DataDirectory>| {
            store::lock_across_homes(tx).await?;
            let here = store::place_across_homes(tx, directory.cloned()).await?;
            let Some(row) = store::find_written_across_homes(tx).await? else {
                store::insert_across_homes(tx, &here).await?;
                return Ok(Verdict::New);
            };
            let signs = compare(&row, &here);
            if signs.is_empty() {
                Ok(Verdict::Same)
            } else {
                Ok(Verdict::Restored(signs))
            }
        },
    )
    .await
}

/// Writes a new instance id and the next generation, here and now. Part of the transaction that applies the rules of a
/// restore, or alone for a move that was announced.
pub async fn begin_generation(
    tx: &mut SystemTx,
    directory: Option<&DataDirectory>,
    keep_identity: bool,
) -> Result<Identity> {
    store::lock_across_homes(tx).await?;
    let here = store::place_across_homes(tx, directory.cloned()).await?;
    store::rewrite_across_homes(tx, &here, keep_identity).await?;
    let identity = find_identity_across_homes(tx).await?;
    identity.ok_or_else(|| Error::Corrupt {
        table: "instance",
        what: "no row".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            database_oid: 5,
            system_identifier: 7,
            timeline: 1,
            directory: Some(DataDirectory {
                path: "/d".into(),
                device: 1,
                inode: 2,
            }),
        }
    }

    fn written(place: Place) -> store::Written {
        store::Written {
            writer: 100,
            written_xid: 100,
            place,
        }
    }

    #[test]
    fn the_same_place_gives_no_sign_and_every_difference_gives_its_own() {
        assert_eq!(compare(&written(place()), &place()), []);
        assert_eq!(
            compare(
                &store::Written {
                    writer: 9,
                    ..written(place())
                },
                &place()
            ),
            [Sign::Loaded]
        );
        let cases = [
            (
                Place {
                    database_oid: 6,
                    ..place()
                },
                Sign::OtherDatabase,
            ),
            (
                Place {
                    system_identifier: 8,
                    ..place()
                },
                Sign::OtherCluster,
            ),
            (
                Place {
                    timeline: 2,
                    ..place()
                },
                Sign::OtherTimeline,
            ),
            (
                Place {
                    directory: Some(DataDirectory {
                        path: "/e".into(),
                        device: 1,
                        inode: 2,
                    }),
                    ..place()
                },
                Sign::OtherDirectory,
            ),
        ];
        for (here, sign) in cases {
            assert_eq!(compare(&written(place()), &here), [sign]);
        }
        assert_eq!(
            compare(
                &written(place()),
                &Place {
                    directory: None,
                    ..place()
                }
            ),
            []
        );
    }
}
