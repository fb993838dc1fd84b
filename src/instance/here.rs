//! The instance of this machine's data directory, for acts that need no server: its database is reached beside a
//! running `up`, or started for the moment.

use std::path::PathBuf;

use crate::config::{self, Asked, Config, Obstacle};
use crate::db::Db;
use crate::embedded::binaries::Search;
use crate::embedded::cluster::Role;
use crate::embedded::{Cluster, Hold, Layout, Lock, keys, lock};
use crate::error::Error;
use crate::instance::restored::DataDirectory;
use crate::secret::MasterKey;

/// Connections that one act needs.
const CONNECTIONS: u32 = 2;

/// An opened data directory.
pub struct Here {
    pub db: Db,
    pub master: MasterKey,
    /// The address that a running `up` serves.
    pub url: Option<String>,
    /// The cluster's own directory.
    cluster_directory: PathBuf,
    /// What we started for the moment, and must end.
    started: Option<(Cluster, Lock)>,
}

impl Here {
    /// Opens the data directory. Reading its master key is the right to act.
    pub async fn open(data_dir: Option<PathBuf>) -> Result<Self, Obstacle> {
        let asked = Asked {
            data_dir,
            ..Asked::default()
        };
        let layout = Layout::look(&Config::load(&asked, &config::environment)?.data_dir);
        let master = keys::existing_master_key(&layout.master_key())?;
        let (options, url, started) = match Lock::reach(&layout)? {
            Hold::Theirs(holder) => {
                let url = holder
                    .as_ref()
                    .and_then(lock::Holder::url)
                    .map(str::to_owned);
                if url.is_none() {
                    return Err(lock::still_starting(&layout, holder.as_ref()));
                }
                (
                    Cluster::options_of_running(&layout, Role::Login)?,
                    url,
                    None,
                )
            }
            Hold::Ours(lock) => {
                let cluster = Cluster::start(&layout, &Search::of_machine(), &|_| {}).await?;
                (cluster.options(Role::Login), None, Some((cluster, lock)))
            }
        };
        let db = Db::connect(options, CONNECTIONS, time::Duration::ZERO)
            .await
            .map_err(|e| refused(&e))?;
        Ok(Self {
            db,
            master,
            url,
            cluster_directory: layout.cluster(),
            started,
        })
    }

    /// The cluster's directory as the file system knows it.
    pub fn directory(&self) -> Result<DataDirectory, Obstacle> {
        DataDirectory::look(&self.cluster_directory)
            .map_err(|e| Obstacle::file("Looking at", &self.cluster_directory, &e))
    }

    /// Ends what was started for the moment.
    pub async fn close(self) -> Result<(), Obstacle> {
        self.db.close().await;
        match self.started {
            Some((cluster, _lock)) => cluster.stop().await,
            None => Ok(()),
        }
    }
}

/// A refusal of an operation, as an obstacle for the terminal.
pub fn refused(error: &Error) -> Obstacle {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    Obstacle::new(text, "Look with `bazilion doctor`, then try again.")
}
