//! Figures of many operations in bounded memory.

use std::time::Duration;

/// Steps of a power of two: a latency is known to 1/32, 3 %.
const STEPS: u32 = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Powers of two above the exact part: up to 2^45 ns, nine hours.
const POWERS: u32 = 40;
const BUCKETS: usize = (STEPS * (POWERS + 1)) as usize;

/// Percentiles that are told.
pub const PERCENTILES: [f64; 3] = [50.0, 95.0, 99.0];

/// Latencies by size.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: Vec<u32>,
    total: u64,
    longest: u64,
}

impl Latencies {
    /// None yet.
    pub fn new() -> Latencies {
        Latencies {
            counts: vec![0; BUCKETS],
            total: 0,
            longest: 0,
        }
    }

    /// One more.
    pub fn add(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let count = &mut self.counts[bucket(nanos)];
        *count = count.saturating_add(1);
        self.total += 1;
        self.longest = self.longest.max(nanos);
    }

    /// The latency that `percent` of the operations do not exceed, nanoseconds: at most 3 % too
    /// much, and never more than the longest.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = (self.total as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return upper(index).min(self.longest);
            }
        }
        self.longest
    }

    /// The longest, nanoseconds.
    pub fn longest(&self) -> u64 {
        self.longest
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

/// Where a latency is counted: exact below 32 ns, 32 steps in each power of two above.
fn bucket(nanos: u64) -> usize {
    if nanos < u64::from(STEPS) {
        return nanos as usize;
    }
    let power = nanos.ilog2() - STEP_BITS;
    let step = (nanos >> power) as u32 - STEPS;
    ((STEPS + power * STEPS + step) as usize).min(BUCKETS - 1)
}

/// The largest latency of a bucket.
fn upper(index: usize) -> u64 {
    let index = index as u32;
    if index < STEPS {
        return u64::from(index);
    }
    let (power, step) = ((index - STEPS) / STEPS, (index - STEPS) % STEPS);
    (u64::from(STEPS + step + 1) << power) - 1
}

/// The mean of the runs; 0 without one.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// How far the runs lie apart: largest minus smallest, in per cent of the mean.
pub fn spread_percent(values: &[f64]) -> f64 {
    let mean = mean(values);
    if mean == 0.0 {
        return 0.0;
    }
    let largest = values.iter().copied().fold(f64::MIN, f64::max);
    let smallest = values.iter().copied().fold(f64::MAX, f64::min);
    (largest - smallest) / mean * 100.0
}

/// The change from `base` to `value` in per cent; 0 where there is no base.
pub fn change_percent(base: f64, value: f64) -> f64 {
    if base == 0.0 {
        return 0.0;
    }
    (value - base) / base * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_three_per_cent() {
        let mut latencies = Latencies::new();
        for n in 1..=10_000u64 {
            latencies.add(Duration::from_nanos(n * 1000));
        }
        for (percent, exact) in [
            (50.0, 5_000_000.0),
            (95.0, 9_500_000.0),
            (99.0, 9_900_000.0),
        ] {
            let told = latencies.percentile(percent) as f64;
            assert!((exact..exact * 1.032).contains(&told), "{percent}: {told}");
        }
        assert_eq!(latencies.percentile(100.0), 10_000_000);
        assert_eq!(latencies.longest(), 10_000_000);
    }

    #[test]
    fn every_latency_has_a_bucket_that_holds_it() {
        for nanos in [0, 1, 31, 32, 33, 63, 64, 65, 1_000, 999_999_999, 1 << 44] {
            let index = bucket(nanos);
            assert!(upper(index) >= nanos, "{nanos}");
            assert!(index == 0 || upper(index - 1) < nanos, "{nanos}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        let none = Latencies::new();
        assert_eq!((none.percentile(50.0), none.longest()), (0, 0));
    }

    #[test]
    fn a_single_outlier_is_the_longest_and_no_percentile() {
        let mut latencies = Latencies::new();
        for _ in 0..999 {
            latencies.add(Duration::from_micros(10));
        }
        latencies.add(Duration::from_secs(2));
        assert!(latencies.percentile(99.0) < 11_000);
        assert_eq!(latencies.longest(), 2_000_000_000);
    }

    #[test]
    fn the_thread_s_figures() {
        // https://lore.kernel.org/linux-mmc, October 2022: sequential write, FUA off and on.
        let off = [199.94, 199.1, 205.5, 206.5, 191.5];
        let on = [153.7, 146.2, 151.2, 148.8, 147.5];
        assert!((mean(&off) - 200.5).abs() < 0.05);
        assert!((mean(&on) - 149.48).abs() < 0.01);
        assert!((change_percent(mean(&off), mean(&on)) + 25.45).abs() < 0.05);
        assert!((spread_percent(&on) - 5.02).abs() < 0.05);
        assert_eq!(spread_percent(&[]), 0.0);
        assert_eq!(change_percent(0.0, 5.0), 0.0);
    }
}
