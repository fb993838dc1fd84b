//! Containers on a real engine.

mod life;
