//! The result: a table, one sentence that a person can use, and JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::open_loop::{LoopPlan, LoopTimes};

/// The percentiles that are told.
pub(super) const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];
/// The share of a core from which on the load itself may have delayed requests.
const BUSY: f64 = 0.9;

/// All rounds of the application alone, or behind Offramp.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrangement {
    pub(super) times: LoopTimes,
    /// CPU time of the application, if this user may see its process.
    app_cpu: Option<Duration>,
    /// CPU time of Offramp.
    front_cpu: Duration,
    /// CPU time of the load.
    load_cpu: Duration,
}

impl Arrangement {
    pub(super) fn add(
        &mut self,
        times: &LoopTimes,
        app_cpu: Option<Duration>,
        front_cpu: Option<Duration>,
        load_cpu: Duration,
    ) {
        self.times.add(times);
        self.app_cpu = app_cpu.map(|cpu| cpu + self.app_cpu.unwrap_or_default());
        self.front_cpu += front_cpu.unwrap_or_default();
        self.load_cpu += load_cpu;
    }

    /// The time within which this share of the requests was answered.
    pub(super) fn percentile(&self, percentile: f64) -> Duration {
        Duration::from_micros(self.times.times.value_at_percentile(percentile))
    }
}

/// The result of `offramp bench`.
#[derive(Clone, Debug)]
pub(super) struct BenchReport {
    pub(super) url: String,
    pub(super) plan: LoopPlan,
    pub(super) rounds: u16,
    /// Status and size of the first answer, in words.
    pub(super) answer: String,
    pub(super) alone: Arrangement,
    pub(super) behind: Arrangement,
}

impl BenchReport {
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{}: {}, {} requests a second over {} connections, {} rounds of 2 × {}\n\n",
            self.url,
            self.answer,
            self.plan.rate,
            self.plan.connections,
            self.rounds,
            seconds(self.plan.time),
        );
        text += &format!("{:28}{:>14}{:>16}\n", "", "alone", "behind Offramp");
        let mut row = |name: &str, of: &dyn Fn(&Arrangement) -> String| {
            text += &format!("{name:28}{:>14}{:>16}\n", of(&self.alone), of(&self.behind));
        };
        for percentile in PERCENTILES {
            row(&format!("{percentile} % answered within"), &|of| milliseconds(of.percentile(percentile)));
        }
        row("answered", &|of| of.times.answered().to_string());
        row("with a status of 4xx", &|of| of.times.refused.to_string());
        row("failed", &|of| of.times.failed.to_string());
        row("CPU of the application", &|of| {
            of.app_cpu.map_or_else(|| "not seen".to_owned(), |cpu| self.core(cpu))
        });
        row("CPU of Offramp", &|of| self.core(of.front_cpu));
        text + "\n" + &self.sentence() + "\n"
    }

    /// The result in words.
    fn sentence(&self) -> String {
        let (rate, alone, behind) = (self.plan.rate, &self.alone, &self.behind);
        if alone.times.answered() == 0 || behind.times.answered() == 0 {
            return "Nothing was answered, so there is nothing to compare.".to_owned();
        }
        let [half, most] = [50.0, 99.0].map(|percentile| {
            format!(
                "{} alone and {} behind",
                milliseconds(alone.percentile(percentile)),
                milliseconds(behind.percentile(percentile))
            )
        });
        let tls = if self.url.starts_with("https:") { "" } else { ", which speaks TLS to the clients" };
        let mut text = format!(
            "At {rate} requests a second half of them are answered within {half} Offramp{tls}, and 99 of 100 within {most} it.\n\
             Offramp takes {} of a core for that.",
            self.core(behind.front_cpu),
        );
        let load = [alone, behind].map(|of| self.share(of.load_cpu)).into_iter().fold(0.0, f64::max);
        if load > BUSY {
            text +=
                "\nThe load itself took a whole core, so the times are partly its own: try a lower --rate.";
        }
        if alone.times.failed + behind.times.failed > 0 {
            text += &format!(
                "\nOf the requests {} failed alone and {} behind Offramp: a --rate that the application can answer says more.",
                alone.times.failed, behind.times.failed
            );
        }
        text
    }

    /// The reason for an exit status other than 0: requests that failed behind Offramp and not alone.
    pub(super) fn failure(&self) -> Option<String> {
        let times = &self.behind.times;
        let why = times.first_failure.as_deref().unwrap_or_default();
        (times.failed > 0 && self.alone.times.failed == 0).then(|| {
            format!("error: {} requests failed behind Offramp and none alone; the first: {why}", times.failed)
        })
    }

    pub(super) fn json(&self) -> Value {
        let of = |arrangement: &Arrangement| {
            let times = PERCENTILES.map(|percentile| {
                (format!("p{percentile}_us"), json!(arrangement.percentile(percentile).as_micros() as u64))
            });
            let mut object: serde_json::Map<String, Value> = times.into_iter().collect();
            object.insert("answered".to_owned(), arrangement.times.answered().into());
            object.insert("status_4xx".to_owned(), arrangement.times.refused.into());
            object.insert("failed".to_owned(), arrangement.times.failed.into());
            object.insert("first_failure".to_owned(), json!(arrangement.times.first_failure));
            object.insert(
                "application_cores".to_owned(),
                json!(arrangement.app_cpu.map(|cpu| self.share(cpu))),
            );
            object.insert("offramp_cores".to_owned(), json!(self.share(arrangement.front_cpu)));
            object.insert("load_cores".to_owned(), json!(self.share(arrangement.load_cpu)));
            Value::Object(object)
        };
        json!({
            "url": self.url, "rate": self.plan.rate, "connections": self.plan.connections, "rounds": self.rounds,
            "seconds": self.plan.time.as_secs_f64(), "alone": of(&self.alone), "behind": of(&self.behind),
            "says": self.sentence(),
        })
    }

    /// CPU time as a share of one core, over all rounds.
    fn share(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() / (self.plan.time.as_secs_f64() * f64::from(self.rounds)).max(f64::MIN_POSITIVE)
    }

    fn core(&self, cpu: Duration) -> String {
        let percent = self.share(cpu) * 100.0;
        if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
    }
}

/// A time in milliseconds, in three digits.
pub(super) fn milliseconds(time: Duration) -> String {
    let time = time.as_secs_f64() * 1e3;
    match time {
        ..10.0 => format!("{time:.2} ms"),
        ..100.0 => format!("{time:.1} ms"),
        _ => format!("{time:.0} ms"),
    }
}

fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds.fract() == 0.0 { format!("{seconds:.0} s") } else { format!("{seconds} s") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A report of requests that took a millisecond alone and two behind Offramp.
    pub(crate) fn report() -> BenchReport {
        let plan = LoopPlan { rate: 100.0, time: Duration::from_secs(2), connections: 8 };
        let arrangement = |took: u64| {
            let mut times = LoopTimes::default();
            (0..1000).for_each(|_| times.times.record(took).unwrap());
            let mut arrangement = Arrangement::default();
            arrangement.add(
                &times,
                Some(Duration::from_millis(400)),
                Some(Duration::from_millis(20)),
                Duration::ZERO,
            );
            arrangement
        };
        let (alone, behind) = (arrangement(1000), arrangement(2000));
        let url = "http://127.0.0.1:3000/".to_owned();
        BenchReport { url, plan, rounds: 1, answer: "200 with 10 bytes".to_owned(), alone, behind }
    }

    #[test]
    fn the_sentence_has_both_times_and_the_cost() {
        let text = report().text();
        let expected = "At 100 requests a second half of them are answered within 1.00 ms alone and 2.00 ms behind Offramp, \
                        which speaks TLS to the clients, and 99 of 100 within 1.00 ms alone and 2.00 ms behind it.\n\
                        Offramp takes 1.0 % of a core for that.\n";
        assert!(text.ends_with(expected), "{text}");
        assert!(text.contains("CPU of the application                20 %"), "{text}");
        assert_eq!(report().failure(), None);
    }

    #[test]
    fn failures_are_told_and_are_an_error_if_they_are_ours() {
        let mut both = report();
        both.behind.times.failed = 3;
        both.behind.times.first_failure = Some("connection reset".to_owned());
        assert!(
            both.failure()
                .unwrap()
                .contains("3 requests failed behind Offramp and none alone; the first: connection reset")
        );
        assert!(both.text().contains("0 failed alone and 3 behind Offramp"));
        both.alone.times.failed = 1;
        assert_eq!(both.failure(), None, "the application fails by itself");
        both.alone.times = LoopTimes::default();
        assert!(both.text().contains("nothing to compare"), "{}", both.text());
    }

    #[test]
    fn json_has_the_same() {
        let json = report().json();
        assert_eq!(
            (&json["behind"]["p50_us"], &json["alone"]["failed"]),
            (&2000.into(), &0.into()),
            "{json:#}"
        );
        assert_eq!(json["behind"]["offramp_cores"], 0.01);
    }
}
