//! Scripts, styles and icons, served from memory.
//!
//! - One digest over all files is part of their address, so modules that import each other stay together and an answer
//!   may be kept for a year. Under an old digest the file of today is served, but not kept.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, header};

use crate::error::Error;
use crate::secret;

struct Asset {
    name: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
}

macro_rules! assets {
    ($($name:literal => $media_type:literal),+ $(,)?) => {
        &[$(Asset {
            name: $name,
            media_type: $media_type,
            bytes: include_bytes!(concat!("../../static/", $name)),
        }),+]
    };
}

const ASSETS: &[Asset] = assets! {
    "app.css" => "text/css; charset=utf-8",
    "app.js" => "text/javascript; charset=utf-8",
    "saved.js" => "text/javascript; charset=utf-8",
    "composer.js" => "text/javascript; charset=utf-8",
    "live.js" => "text/javascript; charset=utf-8",
    "icon.svg" => "image/svg+xml",
    "vendor/htmx.min.js" => "text/javascript; charset=utf-8",
    "vendor/hx-sse.min.js" => "text/javascript; charset=utf-8",
};

/// The digest of all assets together, as it stands in their addresses.
pub static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut digests = Vec::with_capacity(ASSETS.len() * 32);
    for asset in ASSETS {
        digests.extend_from_slice(&secret::digest(asset.bytes));
    }
    hex::encode(&secret::digest(&digests)[..8])
});

/// The folder of today's assets, without a slash at the end.
pub fn folder() -> String {
    format!("/static/{}", *VERSION)
}

/// `GET /static/{version}/{*name}`.
pub async fn serve(Path((version, name)): Path<(String, String)>) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return Error::not_found().into_response();
    };
    let keep = if version == *VERSION {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    (
        [
            (
                header::CONTENT_TYPE,
                HeaderValue::from_static(asset.media_type),
            ),
            (header::CACHE_CONTROL, HeaderValue::from_static(keep)),
        ],
        asset.bytes,
    )
        .into_response()
}
