//! Containers on a real engine.

mod life;
mod sandbox_image;
