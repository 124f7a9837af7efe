//! Exports the spans and events of tidelock with OpenTelemetry: each wait in a queue and each piece of work under a
//! lock is a span inside the spans of your own code, and a loss is an event of the span that it happened in.
//!
//! `cargo run -p opentelemetry-example` prints the spans. Replace the exporter by that of your collector.

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tidelock::Locks;
use tracing::{Level, Subscriber};
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, registry::Registry};

#[tokio::main]
async fn main() -> tidelock::Result<()> {
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(opentelemetry_stdout::SpanExporter::default())
        .build();
    tracing::subscriber::set_global_default(exporting(&provider)).expect("nothing else listens yet");
    let locks = Locks::connect("memory:").await?;
    sell(&locks, "orders/42").await?;
    // Whatever was not exported yet is lost otherwise.
    provider.shutdown().unwrap_or_else(|error| eprintln!("spans were not exported: {error}"));
    Ok(())
}

/// Gives spans and events to OpenTelemetry: those of tidelock at the level `debug`, which has `wait` and `run`, and your
/// own.
fn exporting(provider: &SdkTracerProvider) -> impl Subscriber + Send + Sync + use<> {
    let levels = Targets::new().with_target("tidelock", Level::DEBUG).with_default(Level::INFO);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
    Registry::default().with(layer.with_filter(levels))
}

/// Work of your own, in a span of your own.
#[tracing::instrument(skip(locks))]
async fn sell(locks: &Locks, order: &str) -> tidelock::Result<()> {
    let first = locks.mutex(order).lock().await?;
    let next = locks.mutex(order);
    // The second one waits for the first.
    let (guard, released) = tokio::join!(next.lock(), first.release());
    released?;
    guard?.run(|holding| async move { tracing::info!(token = holding.token().get(), "sold") }).await
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::trace::InMemorySpanExporter;

    use super::*;

    #[test]
    fn waits_and_work_are_spans_inside_those_of_the_program() {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tracing::subscriber::with_default(exporting(&provider), || {
            runtime.block_on(async {
                let locks = Locks::connect("memory:").await.unwrap();
                sell(&locks, "orders/42").await.unwrap();
            });
        });
        let spans = exporter.get_finished_spans().unwrap();
        let find = |name: &str| {
            spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name} in {spans:?}"))
        };
        let (sell, wait, run) = (find("sell"), find("wait"), find("run"));
        for inner in [wait, run] {
            assert_eq!(inner.parent_span_id, sell.span_context.span_id(), "{inner:?}");
        }
        assert!(run.attributes.iter().any(|attribute| attribute.key.as_str() == "lock"), "{run:?}");
        assert!(run.events.iter().any(|event| event.name == "sold"), "{run:?}");
        let _ = provider.shutdown();
    }
}
