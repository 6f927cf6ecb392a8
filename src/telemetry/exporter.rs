//! The exporter: collects what is counted, and renders it as text for Prometheus.

use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use super::{
    metric::{Kind, Metric},
    table,
};

/// What is counted while things happen, for as long as the process lives.
#[derive(Clone)]
pub struct Exporter(PrometheusHandle);

impl Exporter {
    /// Installs the recorder of the process. Handles that were looked up before count nothing.
    pub fn install() -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new();
        for metric in table::all() {
            if let Kind::Histogram(buckets) = metric.kind {
                builder = builder
                    .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)?;
            }
        }
        let handle = builder.install_recorder()?;
        metrics::with_recorder(|recorder| describe(recorder));
        Ok(Self(handle))
    }

    /// Everything as text. `observe` sets the gauges that are looked up when asked for; they go into a recorder of their own
    /// that lives no longer than this call, so that what is gone (a container that was removed) is gone here, too.
    pub fn render(&self, observe: impl FnOnce()) -> String {
        let observed: PrometheusRecorder = PrometheusBuilder::new().build_recorder();
        describe(&observed);
        metrics::with_local_recorder(&observed, observe);
        let mut text = self.0.render();
        text.push_str(&observed.handle().render());
        text
    }

    /// Sorts what histograms have gathered into their buckets. Must be called now and then, whether anybody asks or not: until then
    /// every value is kept.
    pub fn tidy(&self) {
        self.0.run_upkeep();
    }
}

fn describe(recorder: &dyn metrics::Recorder) {
    for Metric {
        name, kind, help, ..
    } in table::all()
    {
        let (name, help) = ((*name).into(), (*help).into());
        match kind {
            Kind::Counter => recorder.describe_counter(name, None, help),
            Kind::Gauge => recorder.describe_gauge(name, None, help),
            Kind::Histogram(_) => recorder.describe_histogram(name, None, help),
        }
    }
}
