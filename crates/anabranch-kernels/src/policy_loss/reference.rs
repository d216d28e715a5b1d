//! The same loss in plain f64.

use super::{Clip, Correction, LOG_RATIO_LIMIT, Metrics};

/// One token; see [`super::Inputs`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// ℓ.
    pub log_prob: f64,
    /// p.
    pub proximal: f64,
    /// b.
    pub behaviour: f64,
    /// A.
    pub advantage: f64,
    /// Whether the token takes part.
    pub mask: bool,
    /// Entropy.
    pub entropy: f64,
}

/// The metrics and `scale` · ∂(Σ loss)/∂ℓ.
pub fn forward_backward(clip: &Clip, correction: &Correction, tokens: &[Token], scale: f64) -> (Metrics, Vec<f64>) {
    let mut metrics = Metrics::default();
    let mut grads = Vec::with_capacity(tokens.len());
    for token in tokens {
        let grad = if token.mask {
            let (of_token, grad) = one(clip, *correction, token);
            metrics = metrics.merge(of_token);
            grad
        } else {
            0.0
        };
        grads.push(scale * grad);
    }
    (metrics, grads)
}

/// A token's metrics and the derivative of its loss.
fn one(clip: &Clip, correction: Correction, token: &Token) -> (Metrics, f64) {
    let limit = f64::from(LOG_RATIO_LIMIT);
    let Token { log_prob, proximal, behaviour, advantage, entropy, .. } = *token;
    let ratio = (log_prob - proximal).clamp(-limit, limit).exp();
    let importance = (proximal - behaviour).clamp(-limit, limit).exp();
    let weight = match correction {
        Correction::None => 1.0,
        Correction::Decoupled => importance,
        Correction::Truncated { cap } => importance.min(f64::from(cap)),
    };
    // The bounds as the f32 settings give them, so that both sides agree on which tokens lie beyond.
    let held = ratio.clamp(f64::from(1.0 - clip.low), f64::from(1.0 + clip.high));
    let mut loss = -(ratio * advantage).min(held * advantage);
    let mut clipped = held * advantage < ratio * advantage;
    if let Some(dual) = clip.dual
        && advantage < 0.0
        && loss > -f64::from(dual) * advantage
    {
        loss = -f64::from(dual) * advantage;
        clipped = true;
    }
    let moves = !clipped && (log_prob - proximal).abs() <= limit;
    let grad = if moves { -weight * ratio * advantage } else { 0.0 };
    let d = (log_prob - behaviour).clamp(-limit, limit);
    let metrics = Metrics {
        loss_sum: weight * loss,
        tokens: 1.0,
        clipped: f64::from(u8::from(clipped)),
        kl_k3_sum: d.exp_m1() - d,
        ratio_sum: ratio,
        max_ratio_deviation: (log_prob - proximal).clamp(-limit, limit).exp_m1().abs(),
        weight_sum: importance,
        weight_square_sum: importance * importance,
        entropy_sum: entropy,
    };
    (metrics, grad)
}
