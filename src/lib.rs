//! Bazilion: teams of coding Agents for many tenants.
//!
//! The tiers, from the ground up; a module imports only from below its own:
//!
//! ```text
//! T5  main.rs
//! T4  routes, server, web, attention, worker, cli, up, serve, embedded, instance, rehearsal, doctor, bench
//! T3  team, queue, approval, workspace, turn, coding, message                 features
//! T2  tenant, auth, provider, events
//! T1  app, db, http, console, executor, launcher, runtime, toolbox, repo, telemetry
//! T0  limits, error, ids, identity, clock, config, secret, readiness
//! ```
//!
//! `tests/it/architecture.rs` reads the `use` lines and fails on any other edge.

pub mod app;
pub mod approval;
pub mod attention;
pub mod auth;
pub mod bench;
pub mod cli;
pub mod clock;
pub mod coding;
pub mod config;
pub mod console;
#[expect(
    clippy::disallowed_methods,
    reason = "the one module that begins transactions"
)]
pub mod db;
pub mod doctor;
pub mod embedded;
pub mod error;
pub mod events;
pub mod executor;
pub mod http;
pub mod identity;
pub mod ids;
pub mod instance;
pub mod launcher;
pub mod limits;
pub mod provider;
pub mod queue;
pub mod readiness;
pub mod rehearsal;
pub mod repo;
pub mod routes;
pub mod runtime;
pub mod secret;
pub mod serve;
pub mod server;
pub mod team;
pub mod telemetry;
pub mod tenant;
pub mod toolbox;
pub mod turn;
pub mod up;
pub mod web;
pub mod worker;
pub mod workspace;
