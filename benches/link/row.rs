//! [`Row`]: one measurement beside its limit, as text or JSON.

use super::reach::Reach;
use super::rig::Rig;

/// One measurement, and its limit in the same run.
#[derive(Debug, Default)]
pub(crate) struct Row<'a> {
    pub(crate) job: String,
    pub(crate) bytes: usize,
    pub(crate) seconds: f64,
    pub(crate) limit_seconds: f64,
    /// How many batches the bytes were, where that was counted.
    pub(crate) batches: usize,
    /// How long the link alone takes for as many bytes.
    pub(crate) link_seconds: Option<f64>,
    /// Processor time of the whole process, for each second.
    pub(crate) cores: Option<f64>,
    /// What it is to come to on a GPU.
    pub(crate) reaches: &'a [Reach],
    /// Of what arrived; empty where that was compared with what is expected.
    pub(crate) sha256: &'a str,
    /// What else is worth a word.
    pub(crate) note: String,
}

impl Row<'_> {
    /// Microseconds a batch.
    pub(crate) fn micros(&self) -> f64 {
        self.seconds * 1e6 / self.batches as f64
    }

    /// In GB/s.
    fn rate(&self, seconds: f64) -> f64 {
        self.bytes as f64 / seconds / 1e9
    }

    fn text(&self, is_gpu: bool) -> String {
        let mut text = format!(
            "{:44} {:9.3} GB/s, limit {:9.3}: {:.3} of it",
            self.job,
            self.rate(self.seconds),
            self.rate(self.limit_seconds),
            self.limit_seconds / self.seconds
        );
        if let Some(link) = self.link_seconds.filter(|link| *link != self.limit_seconds) {
            text += &format!(", link {:.3}: {:.3} of it", self.rate(link), link / self.seconds);
        }
        if self.batches > 0 {
            text += &format!(", {:.2} µs a batch", self.micros());
        }
        if let Some(cores) = self.cores {
            text += &format!(", {cores:.2} cores");
        }
        for reach in self.reaches {
            let verdict = match (is_gpu, reach.is_reached(self)) {
                (false, _) => "on a GPU",
                (true, true) => "reached",
                (true, false) => "SHORT",
            };
            text += &format!("; {reach}: {verdict}");
        }
        if !self.note.is_empty() {
            text += &format!("  {}", self.note);
        }
        text
    }

    fn json(&self, rig: &Rig) -> String {
        let number = |value: Option<f64>| {
            value.filter(|value| value.is_finite()).map_or("null".to_owned(), |value| format!("{value:e}"))
        };
        let reach = |reach: &Reach| {
            let reached = if rig.is_gpu() { reach.is_reached(self).to_string() } else { "null".to_owned() };
            let found = number(reach.found(self));
            format!("{{\"reach\": \"{reach}\", \"found\": {found}, \"reached\": {reached}}}")
        };
        let reaches: Vec<_> = self.reaches.iter().map(reach).collect();
        format!(
            "{{\"job\": \"{}\", \"bytes\": {}, \"batches\": {}, \"seconds\": {:e}, \"limit_seconds\": {:e}, \
             \"link_seconds\": {}, \"cores\": {}, \"reaches\": [{}], \"device\": \"{}\", \"modelled\": {}, \"sha256\": \
             \"{}\", \"note\": \"{}\"}}",
            self.job,
            self.bytes,
            self.batches,
            self.seconds,
            self.limit_seconds,
            number(self.link_seconds),
            number(self.cores),
            reaches.join(", "),
            rig.device.name(),
            rig.modelled,
            self.sha256,
            self.note
        )
    }
}

impl Rig {
    pub(crate) fn row(&self, row: &Row<'_>) {
        println!("{}", if self.json { row.json(self) } else { row.text(self.is_gpu()) });
    }
}
