//! Every number of the specification, once. Sizes are bytes unless the name says otherwise; times are `Duration`.
//!
//! Database CHECK constraints repeat a few of these; a test compares the two.

use std::time::Duration;

/// Bytes in a KiB.
pub const KIB: usize = 1024;
/// Bytes in a MiB.
pub const MIB: usize = 1024 * KIB;

// --- database ---------------------------------------------------------------------------------------------------

/// Attempts of one transaction before a serialization failure is reported.
pub const TX_ATTEMPTS: u32 = 12;
/// First pause between two attempts; it doubles, with full jitter.
pub const TX_BACKOFF_FIRST: Duration = Duration::from_millis(2);
/// Longest pause between two attempts.
pub const TX_BACKOFF_MAX: Duration = Duration::from_millis(250);
/// How long a request waits for a database connection.
pub const DB_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Wake-ups kept for a slow reader; beyond it the reader looks at the database itself.
pub const WAKE_BUFFER: usize = 1024;

// --- providers, teams, agents -----------------------------------------------------------------------------------

/// Models that one provider may list.
pub const PROVIDER_MODELS_MAX: usize = 100;
/// USER.md of a Team, in bytes (`domain.md`, Team).
pub const USER_MD_MAX: usize = 12_000;
/// One persona document of a profile, in bytes.
pub const PERSONA_MAX: usize = 64 * KIB;
/// A name or a title, in characters.
pub const TITLE_MAX_CHARS: usize = 200;
/// An Agent's name, in characters.
pub const AGENT_NAME_MAX_CHARS: usize = 100;
/// Shortest prefix of an id that names an Agent.
pub const AGENT_ID_PREFIX_MIN: usize = 8;

// --- the instance on one machine --------------------------------------------------------------------------------

/// Port of `bazilion up` and `bazilion serve` when none is named.
pub const DEFAULT_PORT: u16 = 8080;
/// Turns at a time on one executor, when its configuration says nothing.
pub const EXECUTOR_MAX_TURNS: usize = 4;
/// Oldest PostgreSQL that runs the migrations.
pub const POSTGRES_MAJOR_MIN: u32 = 15;
/// Connections that the embedded PostgreSQL takes.
pub const POSTGRES_CONNECTIONS: u32 = 60;
/// How long the embedded PostgreSQL may take to answer after its start, crash recovery included.
pub const POSTGRES_START_TIMEOUT: Duration = Duration::from_secs(120);
/// How long it may take to stop before it is told to abandon its connections.
pub const POSTGRES_STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two looks at a starting or stopping PostgreSQL.
pub const POSTGRES_POLL: Duration = Duration::from_millis(20);
/// Log of the embedded PostgreSQL above which the next start begins a new one.
pub const POSTGRES_LOG_MAX: u64 = 8 * MIB as u64;
/// Free space that a new data directory needs.
pub const DATA_SPACE_MIN: u64 = 300 * MIB as u64;
/// Longest path of a Unix socket: `sun_path` without its final zero.
pub const SOCKET_PATH_MAX: usize = 107;
/// Processes and threads of one container.
pub const SANDBOX_PIDS: i64 = 256;
/// Memory of one container; swap beyond it is off.
pub const SANDBOX_MEMORY: u64 = 2 * 1024 * MIB as u64;
/// Thousandths of a CPU that one container may use.
pub const SANDBOX_MILLI_CPUS: u32 = 2000;
/// Size of `/tmp` in one container.
pub const SANDBOX_TMP: u64 = 512 * MIB as u64;
