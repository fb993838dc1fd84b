//! Containers on a real engine.

mod ending;
mod life;
mod posture;
mod prepared;
mod sandbox_image;
