//! The one integration binary. Everything here runs on the real thing: PostgreSQL, Docker, Pi, a browser; fakes only
//! for what cannot be here, and those speak the real protocol over loopback.

mod api;
mod architecture;
mod bench;
mod browser;
mod cli;
mod coding;
mod database;
mod dispatch;
mod e2e;
mod embedded;
mod executor;
mod instance;
mod pi;
mod queue;
mod repo;
mod restored;
mod support;
mod up;
mod web;
mod wire;
mod workspace;
