//! Whether an agent uses too much of a watched resource.

/// Whether a resource is used too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorState {
    /// Below the threshold.
    Ok,
    /// Above the threshold.
    Exceeded,
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// In use.
    pub used: i64,
    /// What there is.
    pub total: i64,
}

/// Samples at the end of a series that decide.
const DECIDING_SAMPLES: usize = 4;
/// Samples above the threshold that are too many, in a whole series.
const MIN_EXCEEDED: usize = 10;

/// Decides from a series of samples, the oldest first. One that was exceeded is well again after [`DECIDING_SAMPLES`] samples
/// below the threshold. Samples without a total say nothing.
#[must_use]
pub fn is_exceeded(before: MonitorState, samples: &[Sample], threshold_percent: i32) -> MonitorState {
    let above: Vec<bool> = samples
        .iter()
        .filter(|sample| sample.total > 0 && sample.used >= 0)
        .map(|sample| {
            i128::from(sample.used) * 100 >= i128::from(sample.total) * i128::from(threshold_percent)
        })
        .collect();
    let Some(last) = above.len().checked_sub(DECIDING_SAMPLES).and_then(|from| above.get(from..)) else {
        return before;
    };
    if last.iter().all(|above| *above) || above.iter().filter(|above| **above).count() >= MIN_EXCEEDED {
        MonitorState::Exceeded
    } else if last.iter().any(|above| *above) {
        before
    } else {
        MonitorState::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(used: &[i64]) -> Vec<Sample> {
        used.iter().map(|used| Sample { used: *used, total: 100 }).collect()
    }

    #[test]
    fn a_few_samples_in_a_row_decide() {
        use MonitorState::{Exceeded, Ok};
        let after = |before, used: &[i64]| is_exceeded(before, &samples(used), 80);
        assert_eq!(after(Ok, &[90, 90, 90]), Ok, "too few");
        assert_eq!(after(Ok, &[10, 80, 90, 90, 90]), Exceeded);
        assert_eq!(after(Ok, &[10, 90, 10, 90, 10]), Ok);
        assert_eq!(after(Exceeded, &[90, 10, 10, 10, 90]), Exceeded, "not yet");
        assert_eq!(after(Exceeded, &[90, 79, 10, 10, 10]), Ok);
        assert_eq!(is_exceeded(Ok, &[Sample { used: 5, total: 0 }; 20], 80), Ok);
    }

    #[test]
    fn many_samples_above_are_too_many() {
        let mut used = vec![90; 10];
        used.extend([10; 10]);
        assert_eq!(is_exceeded(MonitorState::Ok, &samples(&used), 80), MonitorState::Exceeded);
    }
}
