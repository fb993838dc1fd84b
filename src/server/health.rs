//! Keeps the readiness of a process up to date: looks at each part now and then, so that asking costs nothing.

use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::limits::{READINESS_PATIENCE, READINESS_PERIOD};
use crate::readiness::Part;

/// Images that turns need, by reference.
#[derive(Debug, Clone)]
pub struct Images {
    pub toolbox: String,
    pub sandbox: String,
}

/// Looks again and again until the process stops.
pub async fn watch(app: App, images: Images) {
    loop {
        Box::pin(look(&app, &images)).await;
        tokio::select! {
            () = app.stopping.cancelled() => return,
            () = sleep(READINESS_PERIOD) => {}
        }
    }
}

/// Looks at every part once.
pub async fn look(app: &App, images: &Images) {
    let (database, migrations) = tokio::join!(database(app), migrations(app));
    let (pi, executor) = tokio::join!(pi(app), executor(app));
    let images = if executor.is_ok() {
        self::images(app, images).await
    } else {
        Part::Unknown
    };
    app.readiness.set(|readiness| {
        readiness.database = database;
        readiness.migrations = migrations;
        readiness.pi = pi;
        readiness.executor = executor;
        readiness.images = images;
    });
}

async fn database(app: &App) -> Part {
    match bounded(app.db.ping()).await {
        Some(Ok(())) => Part::Ok,
        _ => Part::missing(
            "The database does not answer.",
            "Look at its log; it is tried again by itself.",
        ),
    }
}

async fn migrations(app: &App) -> Part {
    match bounded(app.db.is_migrated()).await {
        Some(Ok(true)) => Part::Ok,
        Some(Ok(false)) => Part::missing(
            "The database is of another version.",
            "Stop the server and run `bazilion migrate`.",
        ),
        _ => Part::Unknown,
    }
}

async fn pi(app: &App) -> Part {
    let check = app.runtime.check().await;
    if check.ready {
        return Part::Ok;
    }
    let what = check
        .detail
        .unwrap_or_else(|| format!("{} is not ready.", check.engine));
    Part::missing(
        what,
        "Start `bazilion up` where an npm registry can be reached; it fetches the engine.",
    )
}

async fn executor(app: &App) -> Part {
    match app.executor.probe().await {
        Ok(_) => Part::Ok,
        Err(error) => Part::missing(
            error.to_string(),
            "Start the Docker engine, and be root or a member of the group docker; DOCKER_HOST names another socket.",
        ),
    }
}

async fn images(app: &App, images: &Images) -> Part {
    for reference in [&images.toolbox, &images.sandbox] {
        if let Err(error) = app.executor.image(reference).await {
            return Part::missing(
                error.to_string(),
                "Start `bazilion up` again; it builds the image.",
            );
        }
    }
    Part::Ok
}

async fn bounded<T>(work: impl Future<Output = T>) -> Option<T> {
    timeout(READINESS_PATIENCE, work).await.ok()
}
