//! Logs, traces and metrics of a process.
//!
//! - Logs go to standard error, so that standard output stays data.
//! - With `OTEL_EXPORTER_OTLP_ENDPOINT` set, spans and metrics leave by OTLP over HTTP; otherwise nothing leaves.
//! - What a process still holds is flushed when its [`Telemetry`] ends, within a bounded time.
//! - Secrets are never fields, and texts of people or models only below `debug`: that is for whoever writes a span.

use clap::ValueEnum;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::limits;

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON document a line.
    Json,
}

/// Why telemetry could not start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("BAZILION_LOG is not a filter such as `info,bazilion=debug`")]
    Filter(#[from] tracing_subscriber::filter::FromEnvError),
    #[error("the OTLP exporter could not be made")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    #[error("telemetry was started twice")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Running telemetry. Keep it until the process ends; dropping it flushes.
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
}

/// Starts logs, and export when the environment asks for it. `quiet` is for commands of a person: warnings only.
///
/// Call it outside any async runtime: the exporter's client is a blocking one.
pub fn start(format: LogFormat, quiet: bool) -> Result<Telemetry, TelemetryError> {
    let telemetry = if exports() {
        let resource = Resource::builder()
            .with_service_name("bazilion")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        exporting(resource)?
    } else {
        Telemetry {
            traces: None,
            metrics: None,
        }
    };
    let spans = telemetry.traces.as_ref().map(|traces| {
        let tracer = traces.tracer("bazilion");
        // The exporter must not report about its own requests, or each export would cause the next.
        let own = EnvFilter::new("info,opentelemetry=off,reqwest=off,hyper_util=off,h2=off");
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_filter(own)
    });
    let default = if quiet { "warn" } else { "info" };
    let filter = EnvFilter::builder()
        .with_env_var("BAZILION_LOG")
        .with_default_directive(default.parse().unwrap_or_default())
        .from_env()?;
    tracing_subscriber::registry()
        .with(spans)
        .with(log(format).with_filter(filter))
        .try_init()?;
    Ok(telemetry)
}

fn exports() -> bool {
    std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some_and(|endpoint| !endpoint.is_empty())
}

fn exporting(resource: Resource) -> Result<Telemetry, TelemetryError> {
    let spans = SpanExporter::builder().with_http().build()?;
    let measures = MetricExporter::builder().with_http().build()?;
    let traces = SdkTracerProvider::builder()
        .with_batch_exporter(spans)
        .with_resource(resource.clone())
        .build();
    let metrics = SdkMeterProvider::builder()
        .with_periodic_exporter(measures)
        .with_resource(resource)
        .build();
    global::set_tracer_provider(traces.clone());
    global::set_meter_provider(metrics.clone());
    global::set_text_map_propagator(TraceContextPropagator::new());
    Ok(Telemetry {
        traces: Some(traces),
        metrics: Some(metrics),
    })
}

fn log<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span>,
{
    let layer = fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Pretty => {
            let ansi = anstream::AutoStream::choice(&std::io::stderr());
            layer
                .with_ansi(ansi != anstream::ColorChoice::Never)
                .boxed()
        }
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        let ended = [
            self.traces
                .as_ref()
                .map(|t| t.shutdown_with_timeout(limits::TELEMETRY_FLUSH)),
            self.metrics
                .as_ref()
                .map(|m| m.shutdown_with_timeout(limits::TELEMETRY_FLUSH)),
        ];
        for failed in ended.into_iter().flatten().filter_map(Result::err) {
            tracing::warn!(error = %failed, "telemetry of the last moments was not delivered");
        }
    }
}
