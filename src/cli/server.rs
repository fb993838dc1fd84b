//! The verbs that run on the server's machine: their arguments. `main` runs them.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use secrecy::SecretString;

/// A server verb with its arguments.
#[derive(Debug, Subcommand)]
pub enum ServerCommand {
    /// Start everything on this machine: database, web, API, workers
    #[command(after_help = UP_HELP)]
    Up(Up),
    /// Run one stateless server process on a database of yours
    Serve(Serve),
    /// Bring the database to this program's version
    Migrate(Migrate),
    /// Say what is ready, what is missing, and how to mend it
    Doctor(Doctor),
    /// Measure, and compare with what the same machine can do
    Bench(Bench),
    /// Acts of the instance's administrator
    #[command(subcommand)]
    Instance(Instance),
}

const UP_HELP: &str = "\
Finds or starts a PostgreSQL of its own below the data directory, prepares what is
missing, makes the first home and its owner, prints the address and a one-time
sign-in link, and stays in the foreground. Ctrl-C stops it in order.

Examples:
  bazilion up
  bazilion up --demo --listen 127.0.0.1:0 --json
  bazilion up --allow-root ~/src   Teams may link directories below ~/src";

/// `bazilion up`.
#[derive(Debug, Args)]
pub struct Up {
    /// Add a home with a sample repository that has a failing test, and a provider that needs no key
    #[arg(long)]
    pub demo: bool,
    /// Where everything lives [default: $XDG_DATA_HOME/bazilion, as root /var/lib/bazilion]
    #[arg(long, value_name = "DIR", env = "BAZILION_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where prepared images and Pi are kept, shared by data directories
    #[arg(long, value_name = "DIR", env = "BAZILION_CACHE_DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Address and port; port 0 picks a free one
    #[arg(long, value_name = "ADDR", env = "BAZILION_LISTEN")]
    pub listen: Option<String>,
    /// A directory below which Teams may be linked; may be repeated [default: your home directory]
    #[arg(long = "allow-root", value_name = "DIR")]
    pub allow_roots: Vec<PathBuf>,
    /// Serve browsers over plain HTTP beyond this machine; passwords then travel readable
    #[arg(long)]
    pub insecure_http: bool,
    /// Seconds that tests move the deciding clock by
    #[arg(
        long,
        value_name = "SECONDS",
        hide = true,
        allow_negative_numbers = true
    )]
    pub clock_offset: Option<i64>,
    /// From the global `--json`: one line of JSON when everything is ready.
    #[arg(skip)]
    pub json: bool,
}

/// `bazilion serve`. Without a role it has both.
#[derive(Debug, Args)]
pub struct Serve {
    /// Serve web and API
    #[arg(long)]
    pub web: bool,
    /// Claim and run work
    #[arg(long)]
    pub worker: bool,
    /// The database
    #[arg(
        long,
        value_name = "URL",
        env = "BAZILION_DATABASE_URL",
        hide_env_values = true
    )]
    pub database_url: Option<SecretString>,
    /// Address and port of web and API
    #[arg(long, value_name = "ADDR", env = "BAZILION_LISTEN")]
    pub listen: Option<String>,
    /// The address that people use: decides cookies, origins, links and the webhook
    #[arg(long, value_name = "URL", env = "BAZILION_PUBLIC_URL")]
    pub public_url: Option<String>,
    /// This machine's node id, lock and cache
    #[arg(long, value_name = "DIR", env = "BAZILION_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    /// Executors, allowed roots, limits
    #[arg(long, value_name = "FILE", env = "BAZILION_CONFIG")]
    pub config: Option<PathBuf>,
    /// Serve browsers over plain HTTP beyond this machine; passwords then travel readable
    #[arg(long)]
    pub insecure_http: bool,
    /// Seconds that tests move the deciding clock by
    #[arg(
        long,
        value_name = "SECONDS",
        hide = true,
        allow_negative_numbers = true
    )]
    pub clock_offset: Option<i64>,
}

/// `bazilion migrate`.
#[derive(Debug, Args)]
pub struct Migrate {
    /// The database, as the role that owns the tables
    #[arg(
        long,
        value_name = "URL",
        env = "BAZILION_DATABASE_URL",
        hide_env_values = true
    )]
    pub database_url: Option<SecretString>,
}

/// `bazilion doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// The data directory of `bazilion up`
    #[arg(long, value_name = "DIR", env = "BAZILION_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// From the global `--json`.
    #[arg(skip)]
    pub json: bool,
}

/// `bazilion bench`. Without a set: a command in a fresh container, an acceptance, the way to the model.
#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP)]
pub struct Bench {
    #[command(subcommand)]
    pub set: Option<BenchSet>,
    /// Samples of each measure; fewer than 20 show only that it works
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        global = true,
        hide = true
    )]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub samples: u16,
    /// From the global `--json`.
    #[arg(skip)]
    pub json: bool,
}

const BENCH_HELP: &str = "\
Measures the product beside docker, runc, bubblewrap and pgbench on this machine, in one
run, taking turns, with a PostgreSQL and containers of its own; all of it is removed at
the end. Ratios count, times depend on the machine. Nothing else should run meanwhile.";

/// A larger set of measures.
#[derive(Debug, Subcommand)]
pub enum BenchSet {
    /// The follow-up queue: submit, claim, end, beside pgbench with the same statements
    Queue(BenchQueue),
    /// Commands in containers one by one and eight at once, cancelling, the toolbox
    Coding,
}

/// `bazilion bench queue`.
#[derive(Debug, Args)]
pub struct BenchQueue {
    /// Longest run, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=180))]
    pub seconds: u64,
}

/// `bazilion instance`.
#[derive(Debug, Subcommand)]
pub enum Instance {
    /// Mint an API token of the built-in operator `local`, and print it alone
    Token(InstanceToken),
    /// Print a one-time sign-in link: the way back in
    SignInLink(SignInLink),
    /// Homes of the instance
    #[command(subcommand)]
    Home(InstanceHome),
    /// Say that this database was copied or taken back: nothing that was open goes on by itself
    MarkRestored(OnDataDir),
    /// Announce a planned move (pg_upgrade, failover), which is then no restore
    AcceptMove(OnDataDir),
}

/// `bazilion instance token`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("for").required(true).args(["home", "instance_admin"]))]
pub struct InstanceToken {
    /// The home that the token belongs to
    #[arg(long, value_name = "SLUG")]
    pub home: Option<String>,
    /// What it may do there
    #[arg(
        long,
        value_enum,
        default_value = "operator",
        conflicts_with = "instance_admin"
    )]
    pub role: Role,
    /// A token for the administration of the instance, without a home
    #[arg(long)]
    pub instance_admin: bool,
    #[command(flatten)]
    pub on: OnDataDir,
}

/// A role in a home, as the command line spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    Owner,
    Operator,
    Viewer,
}

/// `bazilion instance sign-in-link`.
#[derive(Debug, Args)]
pub struct SignInLink {
    /// The account
    pub email: String,
    #[command(flatten)]
    pub on: OnDataDir,
}

/// `bazilion instance home`.
#[derive(Debug, Subcommand)]
pub enum InstanceHome {
    /// Make a home (asks the server, with an instance administrator's token)
    Create(HomeCreate),
}

/// `bazilion instance home create`.
#[derive(Debug, Args)]
pub struct HomeCreate {
    /// Its short name in addresses
    pub slug: String,
    /// Its name [default: the slug]
    #[arg(long)]
    pub name: Option<String>,
    /// Email address of its first owner
    #[arg(long, value_name = "EMAIL")]
    pub owner: String,
}

/// Which instance on this machine an act is for.
#[derive(Debug, Args)]
pub struct OnDataDir {
    /// The data directory of `bazilion up`
    #[arg(long, value_name = "DIR", env = "BAZILION_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
}

impl ServerCommand {
    /// Takes the global `--json` along. `home create` is an operation of the API and comes back as an error.
    pub(super) fn into_client(mut self, json: bool) -> Result<Self, HomeCreate> {
        match &mut self {
            ServerCommand::Up(up) => up.json = json,
            ServerCommand::Doctor(doctor) => doctor.json = json,
            ServerCommand::Bench(bench) => bench.json = json,
            _ => {}
        }
        match self {
            ServerCommand::Instance(Instance::Home(InstanceHome::Create(home))) => Err(home),
            other => Ok(other),
        }
    }
}
