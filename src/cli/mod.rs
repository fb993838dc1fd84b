//! The command line: one program that is client and server.
//!
//! - A client verb is an operation of the HTTP API and nothing more: same words, same limits, same errors.
//! - Server verbs are parsed here and handed back to `main`, which alone knows how to run them.

mod account;
mod agent;
mod approval;
mod card;
mod chat;
mod conversation;
mod inbox;
mod instance;
mod profile;
mod provider;
mod queue;
pub mod server;
mod session;
mod submit;
mod team;
mod token;
mod workspace;

use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use secrecy::SecretString;
use tracing::Instrument;

use crate::console::login::Given;
use crate::console::{Exit, Failure, Out};
use crate::limits;
use crate::telemetry::LogFormat;
pub use server::ServerCommand;
use session::Session;

const AFTER_HELP: &str = "\
Examples:
  bazilion up --demo            start everything here, with a sample repository
  bazilion login --server URL   use a server from here
  bazilion agent chat ada --wait --message 'Fix the failing test and run it'
  bazilion queue add ada --message 'Then update the changelog' --file ./notes.md
  bazilion queue list ada | jq '.items[].status'
  bazilion status               what waits, and for what

Exit codes:
  0 ok                     4 not signed in, or not allowed
  1 server or connection   5 not found
  2 usage, confirmation    6 a limit
  3 conflict
  agent chat --wait: 0 completed, 10 failed, 11 cancelled, 12 uncertain, 13 held

Environment:
  BAZILION_SERVER, BAZILION_TOKEN   after the flags, before the file of `login`
  BAZILION_LOG, BAZILION_LOG_FORMAT filter and form (pretty, json) of the log
  NO_COLOR                          no colours

Data goes to standard output, everything else to standard error.";

/// Teams of coding Agents, a durable follow-up queue, and evidence for every command.
#[derive(Debug, Parser)]
#[command(name = "bazilion", version, after_help = AFTER_HELP, max_term_width = 100)]
#[command(arg_required_else_help = true, propagate_version = false)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Global {
    /// Address of the server, such as http://127.0.0.1:8080
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help_heading = "Client settings"
    )]
    server: Option<String>,
    /// API token; better BAZILION_TOKEN, which other users of the machine can not see
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        help_heading = "Client settings"
    )]
    token: Option<String>,
    /// Longest silence of the server, in seconds
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        help_heading = "Client settings"
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: Option<u64>,
    /// JSON on standard output
    #[arg(long, global = true)]
    json: bool,
    /// Form of the log on standard error
    #[arg(
        long,
        global = true,
        value_enum,
        env = "BAZILION_LOG_FORMAT",
        value_name = "FORMAT"
    )]
    #[arg(default_value = "pretty", hide_env = true, hide = true)]
    log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Server(ServerCommand),
    #[command(flatten)]
    Client(ClientCommand),
}

#[derive(Debug, Subcommand)]
enum ClientCommand {
    /// Store a server and a token for later commands
    Login(account::Login),
    /// Who the token speaks for
    Whoami,
    /// What waits, and for what
    Status,
    /// What needs a person: held, uncertain, paused, failed, blocked
    Attention,
    /// Follow-ups of an Agent (always JSON)
    #[command(subcommand)]
    Queue(queue::Queue),
    /// Agents: make, talk to, move, archive
    #[command(subcommand)]
    Agent(agent::Agent),
    /// Conversations of an Agent
    #[command(subcommand)]
    Conversation(conversation::Conversation),
    /// Teams, their repository, their command receipts
    #[command(subcommand)]
    Team(team::Team),
    /// Model providers of the home
    #[command(subcommand)]
    Provider(provider::Provider),
    /// Agent templates
    #[command(subcommand)]
    Profile(profile::Profile),
    /// Questions that wait for a person's decision
    #[command(subcommand)]
    Approval(approval::Approval),
    /// Messages between Agents
    #[command(subcommand)]
    Inbox(inbox::Inbox),
    /// API tokens
    #[command(subcommand)]
    Token(token::Token),
    /// Workspace leases of the instance
    #[command(subcommand)]
    Workspace(workspace::Workspace),
    /// Print completions for a shell
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// What is left to do after the command line was read.
#[derive(Debug)]
pub enum Ran {
    /// A client verb ran; this is its exit.
    Done(Exit),
    /// A server verb, for `main` to run.
    Server(ServerCommand),
}

impl Cli {
    /// Reads the command line of this process. Help and version come back as errors, as clap has it.
    pub fn from_command_line() -> Result<Self, clap::Error> {
        let matches = Self::whole_command().try_get_matches()?;
        Self::from_arg_matches(&matches)
    }

    /// The command with the client's settings kept out of the server verbs' help, where they mean nothing.
    fn whole_command() -> clap::Command {
        let verbs = ["up", "serve", "migrate", "doctor", "bench"];
        verbs.into_iter().fold(Self::command(), |command, verb| {
            command.mut_subcommand(verb, |verb| {
                let hidden = |name| clap::Arg::new(name).long(name).hide(true).global(true);
                verb.args(["server", "token"].map(hidden))
                    .arg(hidden("timeout").value_parser(clap::value_parser!(u64)))
            })
        })
    }

    /// How the log is to look.
    pub fn log_format(&self) -> LogFormat {
        self.global.log_format
    }

    /// A server verb: it logs more, and runs longer.
    pub fn is_server(&self) -> bool {
        matches!(self.command, Command::Server(_))
    }
}

/// Runs a client verb, or hands a server verb back.
pub async fn run(cli: Cli) -> Ran {
    let Cli { global, command } = cli;
    let command = match command {
        Command::Server(server) => match server.into_client(global.json) {
            Ok(server) => return Ran::Server(server),
            Err(home) => Box::pin(instance::create_home(home, &global)).await,
        },
        Command::Client(command) => {
            let span = tracing::info_span!("cli.run");
            Box::pin(client(command, &global).instrument(span)).await
        }
    };
    Ran::Done(command)
}

async fn client(command: ClientCommand, global: &Global) -> Exit {
    let out = Out::new(global.json);
    let out = match &command {
        ClientCommand::Queue(_) => out.always_json(),
        _ => out,
    };
    let ran = match command {
        ClientCommand::Completion { shell } => Ok(completion(shell, &out)),
        ClientCommand::Login(login) => login.run(global, &out).await,
        other => match global.session(&out) {
            Ok(session) => run_signed_in(other, &session).await,
            Err(failure) => Err(failure),
        },
    };
    ended(ran, &out)
}

fn ended(ran: Result<Exit, Failure>, out: &Out) -> Exit {
    ran.unwrap_or_else(|failure| {
        out.failure(&failure);
        failure.exit()
    })
}

async fn run_signed_in(command: ClientCommand, session: &Session<'_>) -> Result<Exit, Failure> {
    match command {
        ClientCommand::Whoami => account::whoami(session).await,
        ClientCommand::Status => account::status(session).await,
        ClientCommand::Attention => account::attention(session).await,
        ClientCommand::Queue(verb) => verb.run(session).await,
        ClientCommand::Agent(verb) => verb.run(session).await,
        ClientCommand::Conversation(verb) => verb.run(session).await,
        ClientCommand::Team(verb) => verb.run(session).await,
        ClientCommand::Provider(verb) => verb.run(session).await,
        ClientCommand::Profile(verb) => verb.run(session).await,
        ClientCommand::Approval(verb) => verb.run(session).await,
        ClientCommand::Inbox(verb) => verb.run(session).await,
        ClientCommand::Token(verb) => verb.run(session).await,
        ClientCommand::Workspace(verb) => verb.run(session).await,
        ClientCommand::Login(_) | ClientCommand::Completion { .. } => Ok(Exit::Ok),
    }
}

impl Global {
    fn given(&self) -> Given {
        Given::from_flags(
            self.server.clone(),
            self.token.clone().map(SecretString::from),
        )
    }

    fn timeout(&self) -> Duration {
        self.timeout
            .map_or(limits::CLI_TIMEOUT, Duration::from_secs)
    }

    fn session<'o>(&self, out: &'o Out) -> Result<Session<'o>, Failure> {
        let settings = self.given().resolve(self.timeout())?;
        Session::new(settings, self.server.clone(), out)
    }
}

fn completion(shell: clap_complete::Shell, out: &Out) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::whole_command(), "bazilion", &mut script);
    out.data(String::from_utf8_lossy(&script).trim_end());
    Exit::Ok
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::whole_command().debug_assert();
    }

    #[test]
    fn help_names_every_exit_code() {
        let help = Cli::command().render_help().to_string();
        for word in [
            "0 ok",
            "6 a limit",
            "10 failed",
            "13 held",
            "BAZILION_TOKEN",
        ] {
            assert!(help.contains(word), "{word} is missing in\n{help}");
        }
    }
}
