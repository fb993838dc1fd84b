//! Serves web and API until it is told to stop, and then ends within a bounded time.

pub mod health;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::app::App;
use crate::config::Obstacle;
use crate::limits::SERVER_DRAIN;
use crate::routes;

/// Opens the listener. A taken port is the commonest reason why a start fails.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, Obstacle> {
    TcpListener::bind(address).await.map_err(|e| {
        let next = match e.kind() {
            std::io::ErrorKind::AddrInUse => {
                "Stop the program that uses it, or choose another: --listen 127.0.0.1:0 picks a free port.".to_owned()
            }
            std::io::ErrorKind::PermissionDenied => "Choose a port above 1023 with --listen.".to_owned(),
            _ => "Choose an address of this machine with --listen.".to_owned(),
        };
        Obstacle::new(format!("The address {address} cannot be used: {e}."), next)
    })
}

/// Serves until `app.stopping` is cancelled. Requests under way are finished; streams end by the same token; what is
/// left after the drain time is cut.
pub async fn serve(app: App, listener: TcpListener) -> std::io::Result<()> {
    let stopping = app.stopping.clone();
    let service = routes::router(app).into_make_service_with_connect_info::<SocketAddr>();
    let stop = stopping.clone();
    let served = axum::serve(listener, service)
        .with_graceful_shutdown(async move { stop.cancelled().await });
    let served = tokio::spawn(served.into_future());
    let abort = served.abort_handle();
    tokio::select! {
        ended = served => ended.unwrap_or_else(|e| Err(std::io::Error::other(e))),
        () = overdue(&stopping, SERVER_DRAIN) => {
            tracing::warn!("connections that did not end were cut");
            abort.abort();
            Ok(())
        }
    }
}

async fn overdue(stopping: &tokio_util::sync::CancellationToken, patience: Duration) {
    stopping.cancelled().await;
    // Nothing ever answers this; only the time ends it.
    let _ = timeout(patience, std::future::pending::<()>()).await;
}
