//! Serves the router: bind, accept, drain.
//!
//! - Request heads are bounded in size and time, bodies by the router's own limits, so a slow or a huge request holds
//!   nothing but its own connection.
//! - When the process begins to stop, the listener closes at once, requests under way finish, event streams end, and
//!   whoever is still there after the deadline is cut off.

pub mod health;
pub mod process;

use std::net::SocketAddr;
use std::pin::pin;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::extract::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::app::App;
use crate::config::Obstacle;
use crate::limits;
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

/// Serves everything on `listener` until `app.stopping`, then drains.
pub async fn serve(app: App, listener: TcpListener) -> std::io::Result<()> {
    let stopping = app.stopping.clone();
    serve_router(routes::router(app), listener, stopping).await;
    Ok(())
}

/// Serves one router; the metrics listener uses it too.
pub async fn serve_router(router: Router, listener: TcpListener, stopping: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopping.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                connections.spawn(connection(router.clone(), stream, peer, stopping.clone()));
            }
            Err(error) => {
                // Out of file descriptors, most likely: those in use are given back in a moment.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(limits::ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits::SERVER_DRAIN, connections.wait())
        .await
        .is_err()
    {
        tracing::warn!(left = connections.len(), "connections outlived the drain");
    }
}

async fn connection(
    router: Router,
    stream: TcpStream,
    peer: SocketAddr,
    stopping: CancellationToken,
) {
    // Small events must not wait for more to come; a socket that refuses this still works.
    let _ = stream.set_nodelay(true);
    let service = router.map_request(move |request: http::Request<hyper::body::Incoming>| {
        let mut request: Request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::REQUEST_HEAD_TIME)
        .max_buf_size(limits::REQUEST_HEAD_MAX);
    let mut connection =
        pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A browser that goes away in the middle: ordinary.
        tracing::debug!(%error, "a connection ended early");
    }
}
