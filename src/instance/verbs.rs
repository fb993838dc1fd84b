//! `bazilion instance …` and `bazilion migrate`: acts of the person who runs the machine.

use std::process::ExitCode;
use std::str::FromStr as _;

use secrecy::ExposeSecret as _;
use sqlx::postgres::PgConnectOptions;

use super::here::{Here, refused};
use super::restored::Sign;
use super::restored::apply;
use super::ways_in::{self, Mint};
use crate::cli::server::{self, Instance, InstanceToken, Migrate, OnDataDir, SignInLink};
use crate::config::Obstacle;
use crate::console::Out;
use crate::console::output::to_stderr;
use crate::db::Db;
use crate::identity::Role;

/// Runs one verb of `bazilion instance`.
pub async fn run(verb: Instance) -> ExitCode {
    let done = match verb {
        Instance::Token(token) => mint_token(token).await,
        Instance::SignInLink(link) => make_link(link).await,
        Instance::MarkRestored(on) => mark_restored(on).await,
        Instance::AcceptMove(on) => accept_move(on).await,
        Instance::Home(_) => Err(Obstacle::new(
            "Homes are made by the server.",
            "Sign in with an instance admin's token: bazilion login --server URL",
        )),
    };
    finish(done)
}

/// Runs `bazilion migrate`.
pub async fn migrate(verb: Migrate) -> ExitCode {
    finish(migrate_to(verb).await)
}

fn finish(done: Result<(), Obstacle>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(obstacle) => {
            to_stderr(&format!("bazilion: {obstacle}"));
            ExitCode::FAILURE
        }
    }
}

async fn mint_token(token: InstanceToken) -> Result<(), Obstacle> {
    let mint = match token.home {
        Some(slug) => Mint::Home {
            slug,
            role: match token.role {
                server::Role::Owner => Role::Owner,
                server::Role::Operator => Role::Operator,
                server::Role::Viewer => Role::Viewer,
            },
        },
        None => Mint::InstanceAdmin,
    };
    let here = Here::open(token.on.data_dir).await?;
    let minted = ways_in::token(&here.db, &mint)
        .await
        .map_err(|e| refused(&e));
    here.close().await?;
    // Alone on standard output, so that a script can take it as it is.
    Out::new(false).data(minted?.expose_secret());
    Ok(())
}

async fn make_link(link: SignInLink) -> Result<(), Obstacle> {
    let here = Here::open(link.on.data_dir).await?;
    let url = here.url.clone();
    let made = ways_in::sign_in_link(&here.db, &link.email)
        .await
        .map_err(|e| refused(&e));
    here.close().await?;
    let path = made?;
    match url {
        Some(url) => Out::new(false).data(&format!("{url}{path}")),
        None => {
            to_stderr(
                "bazilion: the server does not run; put its address before this path when it does",
            );
            Out::new(false).data(&path);
        }
    }
    Ok(())
}

async fn mark_restored(on: OnDataDir) -> Result<(), Obstacle> {
    let here = Here::open(on.data_dir).await?;
    let directory = here.directory()?;
    let marked = apply::mark(&here.db, Some(&directory), &[Sign::Declared]).await;
    here.close().await?;
    let items = marked.map_err(|e| refused(&e))?;
    to_stderr(&format!(
        "bazilion: marked as restored; every queue is paused and {items} open item(s) are uncertain. Restart a running server now."
    ));
    Ok(())
}

async fn accept_move(on: OnDataDir) -> Result<(), Obstacle> {
    let here = Here::open(on.data_dir).await?;
    let directory = here.directory()?;
    let accepted = apply::accept_move(&here.db, Some(&directory)).await;
    here.close().await?;
    accepted.map_err(|e| refused(&e))?;
    to_stderr("bazilion: the move is accepted; the database goes on where it was");
    Ok(())
}

async fn migrate_to(verb: Migrate) -> Result<(), Obstacle> {
    let next =
        "Give it as --database-url or BAZILION_DATABASE_URL, with the role that owns the tables.";
    let url = verb
        .database_url
        .ok_or_else(|| Obstacle::new("No database is named.", next))?;
    // The parser's message may repeat the URL, which holds a password.
    let options = PgConnectOptions::from_str(url.expose_secret())
        .map_err(|_| Obstacle::new("The database's URL cannot be read.", next))?;
    Db::migrate(options).await.map_err(|e| refused(&e))?;
    to_stderr("bazilion: the database is at this program's version");
    Ok(())
}
