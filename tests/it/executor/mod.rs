//! Containers on a real engine.

mod ending;
mod life;
mod posture;
mod sandbox_image;
