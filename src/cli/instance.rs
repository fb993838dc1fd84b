//! `bazilion instance home create`: an operation of the API, unlike its sisters, which need the data directory.

use serde_json::json;

use super::server::HomeCreate;
use super::{Global, ended};
use crate::console::output::card;
use crate::console::{Exit, Failure, Out};

/// Asks the server for a new home.
pub async fn create_home(home: HomeCreate, global: &Global) -> Exit {
    let out = Out::new(global.json);
    let ran = ask(home, global, &out).await;
    ended(ran, &out)
}

async fn ask(home: HomeCreate, global: &Global, out: &Out) -> Result<Exit, Failure> {
    let session = global.session(out)?;
    let name = home.name.as_deref().unwrap_or(&home.slug);
    let body = json!({"slug": home.slug, "name": name, "ownerEmail": home.owner});
    let made = session.client.post(&["instance", "homes"], &body).await?;
    session.shown(&made, |made| {
        card(
            made,
            &[
                ("home", "/slug"),
                ("name", "/name"),
                ("id", "/id"),
                ("sign-in link", "/signInLink"),
            ],
        )
    })
}
