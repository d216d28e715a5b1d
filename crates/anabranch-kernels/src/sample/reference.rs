//! Sampling in plain f64.

use super::RowSettings;
use crate::{head, philox};

/// The probabilities a row is drawn from: after temperature, top-k and top-p.
///
/// # Panics
/// Panics if there are no logits.
#[allow(clippy::float_cmp, reason = "the largest of the values is one of them")]
pub fn distribution(logits: &[f64], settings: &RowSettings) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if settings.temperature == 0.0 {
        let first = logits.iter().position(|&z| z == largest);
        return (0..logits.len()).map(|i| f64::from(u8::from(Some(i) == first))).collect();
    }
    let weight = |z: f64| ((z - largest) / f64::from(settings.temperature)).exp();
    let mut sorted = logits.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let mut least = *sorted.last().expect("a row has logits");
    if settings.top_k > 0 && (settings.top_k as usize) < sorted.len() {
        least = sorted[settings.top_k as usize - 1];
    }
    if settings.top_p < 1.0 {
        let kept: Vec<f64> = sorted.into_iter().filter(|&z| z >= least).collect();
        let total: f64 = kept.iter().map(|&z| weight(z)).sum();
        let mut mass = 0.0;
        for z in kept {
            mass += weight(z);
            least = z;
            if mass >= f64::from(settings.top_p) * total {
                break;
            }
        }
    }
    let total: f64 = logits.iter().filter(|&&z| z >= least).map(|&z| weight(z)).sum();
    logits.iter().map(|&z| if z >= least { weight(z) / total } else { 0.0 }).collect()
}

/// What a row's draw should be.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// The token drawn.
    pub token: usize,
    /// How far the random number is from the nearest edge between two tokens: below the rounding of f32 the device may
    /// rightly take the neighbour.
    pub margin: f64,
    /// log p at the row's temperature (1 for greedy), before truncation.
    pub log_prob: f64,
    /// log p in the truncated distribution.
    pub log_prob_truncated: f64,
    /// log p at temperature 1.
    pub log_prob_untempered: f64,
}

/// Draws from one row.
pub fn draw(logits: &[f64], settings: &RowSettings) -> Draw {
    let point = f64::from(philox::reference::uniform(settings.key, settings.counter));
    let (mut below, mut token, mut margin) = (0.0, 0, f64::INFINITY);
    let distribution = distribution(logits, settings);
    for (i, p) in distribution.iter().enumerate().filter(|(_, p)| **p > 0.0) {
        if point >= below {
            token = i;
        }
        if below > 0.0 {
            margin = margin.min((point - below).abs());
        }
        below += p;
    }
    let temperature = if settings.temperature == 0.0 { 1.0 } else { f64::from(settings.temperature) };
    Draw {
        token,
        margin,
        log_prob: head::reference::row(logits, token, temperature).0,
        log_prob_truncated: distribution[token].ln(),
        log_prob_untempered: head::reference::row(logits, token, 1.0).0,
    }
}
