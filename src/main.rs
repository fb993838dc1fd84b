//! The program: read the command line, start telemetry, run the command, flush, exit.

use std::process::ExitCode;

use bazilion::cli::{self, Cli, Ran, ServerCommand};
use bazilion::console::output::to_stderr;
use bazilion::{bench, doctor, instance, serve, telemetry, up};

fn main() -> ExitCode {
    // The only TLS stack; every HTTP client of the process asks for it.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        to_stderr("bazilion: another TLS provider is already there");
    }
    let cli = match Cli::from_command_line() {
        Ok(cli) => cli,
        Err(refusal) => return refused(&refusal),
    };
    // Before the runtime: the exporter's client is a blocking one.
    let telemetry = match telemetry::start(cli.log_format(), !cli.is_server()) {
        Ok(telemetry) => telemetry,
        Err(error) => return failed(&error),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let code = match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => failed(&error),
    };
    drop(telemetry);
    code
}

async fn run(cli: Cli) -> ExitCode {
    match cli::run(cli).await {
        Ran::Done(exit) => exit.into(),
        Ran::Server(command) => server(command).await,
    }
}

async fn server(command: ServerCommand) -> ExitCode {
    match command {
        ServerCommand::Up(up) => Box::pin(up::run(up)).await,
        ServerCommand::Doctor(verb) => Box::pin(doctor::run(verb)).await,
        ServerCommand::Instance(verb) => Box::pin(instance::verbs::run(verb)).await,
        ServerCommand::Migrate(verb) => Box::pin(instance::verbs::migrate(verb)).await,
        ServerCommand::Serve(verb) => Box::pin(serve::run(verb)).await,
        ServerCommand::Bench(verb) => Box::pin(bench::run(verb)).await,
    }
}

/// Help and version are data; everything else that clap says is a usage error, exit code 2.
fn refused(refusal: &clap::Error) -> ExitCode {
    let code = u8::try_from(refusal.exit_code()).unwrap_or(2);
    // A closed pipe is no reason for another exit code.
    let _ = refusal.print();
    ExitCode::from(code)
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    to_stderr(&format!("bazilion: {error}"));
    let mut source = error.source();
    while let Some(cause) = source {
        to_stderr(&format!("  because {cause}"));
        source = cause.source();
    }
    ExitCode::FAILURE
}
