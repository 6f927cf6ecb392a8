//! What a metric is: a row of the table, and the handles through which its series are counted.

use metrics::{Counter, Gauge, Histogram, Key, Level, Metadata};

/// A row of the table. Series are registered through it, so that nothing is counted that the table does not have.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub unit: &'static str,
    pub help: &'static str,
    pub labels: &'static [Label],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Counter,
    Gauge,
    /// With the upper bounds of its buckets, which are fixed so that histograms of several nodes can be added up.
    Histogram(&'static [f64]),
}

/// A label and the values that it may have: a closed set, so that the number of series is bounded.
#[derive(Debug)]
pub struct Label {
    pub name: &'static str,
    pub values: Values,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    Listed(&'static [&'static str]),
    /// `database/container` of the first [`super::containers::CONTAINER_LABELS_MAX`] containers, `other` for later ones, `none` for what is of no container.
    Containers,
    /// The version of this build.
    Version,
}

impl Kind {
    /// As the exposition format calls it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// Handles are looked up once and kept by whoever counts; the values of labels come in the order of the table.
impl Metric {
    pub fn counter(&self, values: &[&str]) -> Counter {
        metrics::with_recorder(|recorder| recorder.register_counter(&self.key(values), &METADATA))
    }

    pub fn gauge(&self, values: &[&str]) -> Gauge {
        metrics::with_recorder(|recorder| recorder.register_gauge(&self.key(values), &METADATA))
    }

    pub fn histogram(&self, values: &[&str]) -> Histogram {
        metrics::with_recorder(|recorder| recorder.register_histogram(&self.key(values), &METADATA))
    }

    fn key(&self, values: &[&str]) -> Key {
        debug_assert_eq!(self.labels.len(), values.len(), "labels of {}", self.name);
        let pairs = self.labels.iter().zip(values);
        let labels =
            pairs.map(|(label, value)| metrics::Label::new(label.name, (*value).to_owned()));
        Key::from_parts(self.name, labels.collect::<Vec<_>>())
    }
}
