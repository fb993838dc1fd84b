//! The embedded default: a private PostgreSQL below the data directory, for one machine and one `bazilion up`.
//!
//! - The server programs come from the machine; nothing is downloaded.
//! - PostgreSQL never runs as root, has no TCP port, and is reached over a socket in a directory of mode 0700 with
//!   generated passwords.
//! - One process holds a data directory, by a lock that the kernel drops when that process ends, however it ends.
//! - It stops with its parent. What a killed parent left behind is stopped by the next start, in its own directory only.

pub mod access;
pub mod account;
pub mod binaries;
pub mod cluster;
pub mod keys;
pub mod layout;
pub mod lock;
mod process;
mod roles;

pub use cluster::Cluster;
pub use layout::Layout;
pub use lock::{Hold, Lock};
