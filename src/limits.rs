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

// --- queue and approvals ------------------------------------------------------------------------------------------

/// Open items of one Agent.
pub const AGENT_OPEN_ITEMS_MAX: usize = 20;
/// Text of one item, in UTF-8 bytes.
pub const ITEM_TEXT_MAX: usize = 64 * KIB;
/// Files of one item.
pub const ITEM_FILES_MAX: usize = 16;
/// All files of one item together, in bytes.
pub const ITEM_FILE_BYTES_MAX: usize = 25 * MIB;
/// A file's name, in characters.
pub const FILE_NAME_MAX_CHARS: usize = 255;
/// A file's type, in characters.
pub const MIME_TYPE_MAX_CHARS: usize = 200;
/// Body of a submission, in bytes.
pub const QUEUE_BODY_MAX: usize = 36 * MIB;
/// One stored piece of a file, in bytes.
pub const BLOB_CHUNK: usize = 256 * KIB;
/// A page of the queue, at most and by default.
pub const QUEUE_PAGE_MAX: usize = 100;
pub const QUEUE_PAGE_DEFAULT: usize = 50;
/// Characters of a diagnostic's message.
pub const DIAGNOSTIC_MAX_CHARS: usize = 500;
/// How long text and bytes of an ended item are kept.
pub const PAYLOAD_KEPT: Duration = Duration::from_hours(7 * 24);
/// Items whose payload one background step expires.
pub const EXPIRY_BATCH: i64 = 100;
/// Time an approval waits for a decision.
pub const APPROVAL_LIFE: Duration = Duration::from_hours(24);
/// Lease of a process on its claims, and how often it is renewed.
pub const CLAIM_LEASE: Duration = Duration::from_secs(30);
pub const CLAIM_RENEWAL: Duration = Duration::from_secs(10);
/// Pause before a head that could not start is looked at again without a wake-up.
pub const GIVE_BACK_PAUSE: Duration = Duration::from_secs(1);
/// How long durable live events are kept.
pub const EVENTS_KEPT: Duration = Duration::from_hours(1);
/// Events that one background step prunes.
pub const EVENTS_BATCH: i64 = 1000;
/// Events of one catch-up read.
pub const EVENTS_PAGE: i64 = 500;
/// A reader that no wake-up reached looks by itself this often.
pub const EVENTS_POLL: Duration = Duration::from_secs(1);
/// A comment keeps an event stream alive this often.
pub const EVENTS_KEEP_ALIVE: Duration = Duration::from_secs(15);
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
// --- command line -----------------------------------------------------------------------------------------------

/// Files of one `queue add`, `queue edit` or `agent chat`.
pub const CLI_FILES_MAX: usize = 16;
/// Bytes of those files together.
pub const CLI_FILES_BYTES_MAX: u64 = 25 * MIB as u64;
/// An upload below this many bytes is over before a bar could be read.
pub const CLI_PROGRESS_FROM: u64 = MIB as u64;
/// Longest wait for a connection.
pub const CLI_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence of a server before a request counts as unanswered; four times the pace of the stream's comments.
pub const CLI_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes a second of the slowest upload that is still waited for.
pub const CLI_UPLOAD_SLOWEST: u64 = 64 * KIB as u64;
/// Pages of one list before the rest is left to `--json` and a cursor.
pub const CLI_LIST_PAGES_MAX: usize = 1_000;
/// Attempts to open a broken event stream again.
pub const CLI_RECONNECT_ATTEMPTS: u32 = 8;
/// First pause between two of them; it doubles.
pub const CLI_RECONNECT_FIRST: Duration = Duration::from_millis(250);
/// Longest pause between two of them.
pub const CLI_RECONNECT_MAX: Duration = Duration::from_secs(5);
/// Lines of a command's output on its card; the end is what is shown.
pub const CLI_CARD_LINES: usize = 20;
/// Longest wait for spans and metrics to leave when a process ends.
pub const TELEMETRY_FLUSH: Duration = Duration::from_secs(3);
// --- command execution ------------------------------------------------------------------------------------------

/// Largest frame that the launcher of a command container takes.
pub const LAUNCH_FRAME_MAX: usize = MIB;
/// How much later than the command's own time limit the launcher ends everything by itself.
pub const LAUNCH_DEADLINE_MARGIN: Duration = Duration::from_secs(2);
/// How long one call to the container engine may take.
pub const ENGINE_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a started container may take until it is ready for its command.
pub const ENGINE_START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a removal is repeated before its outcome is called uncertain.
pub const REMOVE_PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two looks at a container that is being removed.
pub const REMOVE_POLL: Duration = Duration::from_millis(20);
/// Output kept of one command, after redaction: its end.
pub const OUTPUT_TAIL: usize = 64 * KIB;
/// Chunks of output on the way to a slow reader before the command is held back.
pub const OUTPUT_BUFFER: usize = 64;
/// Processes and threads of one container.
pub const SANDBOX_PIDS: i64 = 256;
/// Memory of one container; swap beyond it is off.
pub const SANDBOX_MEMORY: u64 = 2 * 1024 * MIB as u64;
/// Thousandths of a CPU that one container may use.
pub const SANDBOX_MILLI_CPUS: u32 = 2000;
/// Size of `/tmp` in one container.
pub const SANDBOX_TMP: u64 = 512 * MIB as u64;
/// Open files of one process in a container: above it an engine with a small limit of its own starts nothing.
pub const SANDBOX_OPEN_FILES: i64 = 16_384;

// --- turns, commands, receipts ----------------------------------------------------------------------------------

/// How often a running turn asks the database whether it shall end, when no notification comes.
pub const CANCEL_POLL: Duration = Duration::from_secs(1);
/// Age of the last confirmed renewal at which a process stops acting on what it claimed.
pub const RENEWAL_AGE_MAX: Duration = Duration::from_secs(20);
/// How often a process renews its incarnation.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long an incarnation lives without renewal, by the database's clock.
pub const INCARNATION_LEASE: Duration = Duration::from_secs(30);
/// How long after the end of an incarnation's lease nobody judges it yet.
pub const REAP_GRACE: Duration = Duration::from_secs(5);
/// One command's text, in bytes.
pub const COMMAND_MAX: usize = 4096;
/// Seconds that a command may ask for.
pub const COMMAND_SECONDS: std::ops::RangeInclusive<u64> = 1..=300;
/// Components of a command's working directory.
pub const COMMAND_CWD_PARTS: usize = 16;
/// Commands of one turn.
pub const COMMANDS_PER_TURN: usize = 64;
/// How often the output so far is shown while a command runs, at most.
pub const TAIL_INTERVAL: Duration = Duration::from_millis(250);
/// Ended receipts kept of a Team.
pub const RECEIPTS_KEPT: i64 = 20;
/// Age at which an ended receipt is no longer shown, and deleted.
pub const RECEIPT_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Age, from its start, at which a receipt no longer applies.
pub const RECEIPT_FRESH: Duration = Duration::from_secs(15 * 60);
/// Hints that one receipt carries.
pub const HINTS_MAX: usize = 8;
/// Shortest secret that is looked for in output; shorter ones would only mangle it.
pub const REDACT_MIN: usize = 4;
/// How long a worker waits between two looks for work when no wake-up comes.
pub const DISPATCH_POLL: Duration = Duration::from_secs(1);
/// How often leftovers are swept and expired things pruned.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Receipts that one pruning transaction deletes.
pub const PRUNE_BATCH: i64 = 500;
/// How long a stopping worker waits for what it cancelled.
pub const STOP_GRACE: Duration = Duration::from_secs(25);
// --- runtime ----------------------------------------------------------------------------------------------------

/// Longest line that Pi may write, on its standard output or into a session file; images travel inside lines.
pub const PI_LINE_MAX: usize = 64 * MIB;
/// Entries of one session file; a longer conversation must be continued in a new one.
pub const PI_SESSION_ENTRIES_MAX: usize = 200_000;
/// Size of one session file.
pub const PI_SESSION_MAX: usize = 512 * MIB;
/// How long Pi may take from its start to its first answer.
pub const PI_READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long Pi may take to accept a prompt.
pub const PI_PROMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an aborted turn may take to settle before its process is ended.
pub const PI_ABORT_WAIT: Duration = Duration::from_secs(20);
/// How long Pi may take to exit after its input closed, and again after SIGTERM.
pub const PI_EXIT_WAIT: Duration = Duration::from_secs(2);
/// Old-space limit of the Node process, in MiB.
pub const PI_HEAP_MIB: usize = 1024;
/// Events and lines that wait for a slow reader before Pi is held back.
pub const PI_EVENT_BUFFER: usize = 256;
/// Last part of Pi's standard error that is kept for a diagnosis.
pub const PI_STDERR_KEPT: usize = 8 * KIB;
/// One tool call's arguments as they arrive from Pi.
pub const TOOL_CALL_MAX: usize = 16 * MIB;
/// One request to a model provider.
pub const MODEL_REQUEST_MAX: usize = 64 * MIB;
/// What is read of a provider's error answer.
pub const MODEL_ERROR_MAX: usize = 64 * KIB;
/// How long connecting to a provider may take.
pub const MODEL_CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// A line of a model's event stream beyond which its token counts are not looked for.
pub const MODEL_EVENT_MAX: usize = MIB;
/// Silence of a model that ends a turn (the default of a home's setting).
pub const MODEL_SILENCE: Duration = Duration::from_secs(120);
/// Attempts that Pi makes for one model request after transient failures.
pub const MODEL_RETRIES: u32 = 3;
/// Context window of a model that does not say its own, in tokens.
pub const MODEL_CONTEXT_WINDOW: u32 = 128_000;
/// Longest answer of a model that does not say its own, in tokens.
pub const MODEL_MAX_TOKENS: u32 = 16_384;
/// One file of the pinned engine, packed; the largest is Node with 52 MB.
pub const ENGINE_TARBALL_MAX: u64 = 128 * MIB as u64;
/// All files of the pinned engine, unpacked.
pub const ENGINE_UNPACKED_MAX: u64 = 512 * MIB as u64;
/// How long a registry may send nothing while a package is fetched.
pub const ENGINE_FETCH_SILENCE: Duration = Duration::from_secs(60);
/// How long the self-test of a new engine may take.
pub const ENGINE_SELFTEST_TIMEOUT: Duration = Duration::from_secs(60);

// --- people and credentials -------------------------------------------------------------------------------------

/// Shortest password, in characters (`security.md`).
pub const PASSWORD_MIN_CHARS: usize = 12;
/// Longest password that is hashed, in bytes.
pub const PASSWORD_MAX: usize = 1024;
/// Passwords hashed at the same time: each takes 19 MiB and a core.
pub const PASSWORD_HASHES_AT_ONCE: usize = 2;
/// A browser session ends after this long without a request.
pub const SESSION_IDLE: Duration = Duration::from_secs(12 * 3600);
/// A browser session ends after this long in any case.
pub const SESSION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Default life of an API token, in days.
pub const TOKEN_DAYS: i64 = 90;
/// Longest life of an API token, in days.
pub const TOKEN_DAYS_MAX: i64 = 365;
/// A one-time sign-in link works this long.
pub const SIGN_IN_LINK: Duration = Duration::from_secs(3600);
/// Failed sign-ins of one account or one address within the window before further ones are refused.
pub const SIGN_IN_FAILURES_MAX: i64 = 10;
/// The window in which failed sign-ins count.
pub const SIGN_IN_WINDOW: Duration = Duration::from_secs(15 * 60);
/// The last use of a token is written at most this often.
pub const TOKEN_USE_PRECISION: Duration = Duration::from_secs(60);

// Web pages and the server.

/// Head of a request: first line and all header fields together.
pub const REQUEST_HEAD_MAX: usize = 64 * 1024;
/// Time for a request's head to arrive.
pub const REQUEST_HEAD_TIME: Duration = Duration::from_secs(30);
/// Pause after a connection could not be accepted.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Body of a page's form with files: their limit, and room for text and part heads.
pub const FORM_WITH_FILES_MAX: usize = 28 * MIB;
/// Body of any other page's form.
pub const FORM_MAX: usize = 512 * 1024;
// --- repository context and toolbox -----------------------------------------------------------------------------

/// A target or a path of a file tool, in characters.
pub const REPO_PATH_MAX_CHARS: usize = 4096;
/// Nested directories below the root that a scope may have.
pub const REPO_DEPTH_MAX: usize = 16;
/// Components of a target: the directories and a file.
pub const REPO_TARGET_PARTS_MAX: usize = REPO_DEPTH_MAX + 1;
/// Directories that a file tool descends below the root.
pub const FILE_DEPTH_MAX: usize = 64;
/// One `AGENTS.md`.
pub const INSTRUCTION_FILE_MAX: usize = 64 * KIB;
/// All `AGENTS.md` of a scope together.
pub const INSTRUCTIONS_TOTAL_MAX: usize = 128 * KIB;
/// Files that command suggestions are read from.
pub const COMMAND_SOURCES_MAX: usize = 32;
/// One such file.
pub const COMMAND_SOURCE_MAX: usize = 64 * KIB;
/// All such files together.
pub const COMMAND_SOURCES_TOTAL_MAX: usize = 256 * KIB;
/// Command suggestions of one report.
pub const COMMAND_CANDIDATES_MAX: usize = 32;
/// A suggested command, in characters.
pub const COMMAND_CANDIDATE_MAX_CHARS: usize = 4096;
/// A serialised repository context report.
pub const CONTEXT_REPORT_MAX: usize = 256 * KIB;
/// Git metadata that is copied for one report.
pub const GIT_COPY_MAX: usize = 64 * MIB;
/// Files and directories of that copy.
pub const GIT_COPY_ENTRIES_MAX: usize = 16_384;
/// Time for the copy.
pub const GIT_COPY_TIMEOUT: Duration = Duration::from_millis(2500);
/// Time for the copy and the reading of its state together.
pub const GIT_TIMEOUT: Duration = Duration::from_secs(5);
/// A repository's `config`; larger ones are refused.
pub const GIT_CONFIG_MAX: usize = 256 * KIB;
/// Readers of Git state that may hang at once before new ones are refused.
pub const GIT_STUCK_MAX: usize = 4;
/// A patch of the working tree.
pub const DIFF_MAX: usize = MIB;
/// A file that a patch shows line by line; larger ones are named only.
pub const DIFF_FILE_MAX: usize = 4 * MIB;
/// Time for a patch.
pub const DIFF_TIMEOUT: Duration = Duration::from_secs(20);
/// Manifests and lockfiles hashed for one receipt, together.
pub const IDENTITY_TOTAL_MAX: usize = 4 * MIB;
/// Text of one `read` call.
pub const READ_MAX: usize = 64 * KIB;
/// Bytes that one `read` call looks through to reach its first line.
pub const READ_SCAN_MAX: usize = 256 * MIB;
/// An image that `read` hands back.
pub const READ_IMAGE_MAX: usize = 5 * MIB;
/// A file that `write` or `edit` makes.
pub const WRITE_MAX: usize = 4 * MIB;
/// Replacements of one `edit` call.
pub const EDITS_MAX: usize = 100;
/// Entries that one `ls` call lists.
pub const LS_MAX: usize = 500;
/// Results of one `find` or `grep` call.
pub const SEARCH_RESULTS_MAX: usize = 200;
/// Files and directories that one search visits.
pub const SEARCH_ENTRIES_MAX: usize = 200_000;
/// A file that `grep` looks into.
pub const SEARCH_FILE_MAX: usize = 4 * MIB;
/// Text of one search answer.
pub const SEARCH_OUTPUT_MAX: usize = 64 * KIB;
/// Characters of one line that `grep` shows.
pub const SEARCH_LINE_MAX_CHARS: usize = 500;
/// Lines around a hit.
pub const SEARCH_CONTEXT_MAX: usize = 10;
/// Time for one search.
pub const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);
/// A `.gitignore` that a search reads; a larger one is not applied.
pub const IGNORE_FILE_MAX: usize = 256 * KIB;
/// A search pattern, in bytes.
pub const SEARCH_PATTERN_MAX: usize = 1024;
/// One message on the toolbox's streams.
pub const TOOLBOX_FRAME_MAX: usize = 16 * MIB;
/// Requests that a toolbox works on at once; more wait on the stream.
pub const TOOLBOX_CONCURRENCY: usize = 8;
/// Files laid out read-only for the commands of one turn.
pub const LAYOUT_FILES_MAX: usize = 10_000;
/// Bytes laid out for one turn.
pub const LAYOUT_TOTAL_MAX: usize = 512 * MIB;

// --- serving ----------------------------------------------------------------------------------------------------

/// Pause between two looks at what an instance needs.
pub const READINESS_PERIOD: Duration = Duration::from_secs(10);
/// How long one look at the database may take.
pub const READINESS_PATIENCE: Duration = Duration::from_secs(3);
/// How long requests under way may take to end after the stop.
pub const SERVER_DRAIN: Duration = Duration::from_secs(5);
/// Database connections of one process.
pub const DB_CONNECTIONS: u32 = 24;
/// Connections beside them, for whole transactions in one statement.
pub const DB_KEPT_CONNECTIONS: u32 = 4;
/// Lines of a conversation on one page.
pub const MESSAGES_PER_PAGE: i64 = 100;
/// Receipts of one turn that a page of its conversation shows.
pub const RECEIPTS_PER_TURN_SHOWN: i64 = 200;
/// Event streams that one person may hold open in one process.
pub const EVENT_STREAMS_PER_OPERATOR: usize = 24;
/// After this long a page's event stream ends, and the browser's next one is authorised anew.
pub const EVENT_STREAM_LIFE: Duration = Duration::from_secs(10 * 60);
/// A page looks for a running command's new output this often.
pub const LIVE_TAIL_EVERY: Duration = Duration::from_millis(700);
/// Repositories that one process looks at outside turns at once.
pub const INSPECTIONS_AT_ONCE: usize = 4;
/// How long a request waits for one of these places.
pub const INSPECTION_WAIT: Duration = Duration::from_secs(5);
/// How long the toolbox of such a look may take, start included; Git alone may take 5 s.
pub const INSPECTION_TIME: Duration = Duration::from_secs(10);
/// Lines of a conversation that one page of messages is read from.
pub const MESSAGES_PAGE: i64 = 100;
/// Receipts of one page.
pub const RECEIPTS_PAGE: i64 = 50;
/// How long a failed input is shown as something that needs a person.
pub const ATTENTION_FAILED: Duration = Duration::from_secs(24 * 3600);
/// Share of a home's receipts, in percent of its limit, from which an owner is told.
pub const ATTENTION_RECEIPTS_PERCENT: i64 = 90;
/// Matters of one list; the oldest first.
pub const ATTENTION_MAX: i64 = 500;
