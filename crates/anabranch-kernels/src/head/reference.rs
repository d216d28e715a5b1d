//! The head in plain f64.

/// log p(target) and the entropy of softmax(`logits`/τ).
pub fn row(logits: &[f64], target: usize, temperature: f64) -> (f64, f64) {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|z| ((z - largest) / temperature).exp()).sum();
    let log_p = |z: f64| (z - largest) / temperature - sum.ln();
    let entropy = -logits.iter().map(|&z| log_p(z).exp() * log_p(z)).sum::<f64>();
    (log_p(logits[target]), entropy)
}

/// Logits of every row: `hidden` [n, d], `weight` [V, d].
pub fn logits(hidden: &[f64], weight: &[f64], width: usize) -> Vec<f64> {
    hidden
        .chunks_exact(width)
        .flat_map(|h| weight.chunks_exact(width).map(|w| h.iter().zip(w).map(|(a, b)| a * b).sum()))
        .collect()
}

/// (log p(target), entropy) of every row.
pub fn forward(
    hidden: &[f64],
    weight: &[f64],
    width: usize,
    targets: &[u32],
    temperature: f64,
) -> (Vec<f64>, Vec<f64>) {
    let vocab = weight.len() / width;
    logits(hidden, weight, width)
        .chunks_exact(vocab)
        .zip(targets)
        .map(|(z, &target)| row(z, target as usize, temperature))
        .unzip()
}

/// (gradient in hidden, gradient in the weight) for ∂L/∂ℓ and ∂L/∂H of every row.
pub fn backward(
    hidden: &[f64],
    weight: &[f64],
    width: usize,
    targets: &[u32],
    temperature: f64,
    grad_log_prob: &[f64],
    grad_entropy: &[f64],
) -> (Vec<f64>, Vec<f64>) {
    let vocab = weight.len() / width;
    let z = logits(hidden, weight, width);
    let mut grad_hidden = vec![0.0; hidden.len()];
    let mut grad_weight = vec![0.0; weight.len()];
    for (t, z) in z.chunks_exact(vocab).enumerate() {
        let target = targets[t] as usize;
        let (_, entropy) = row(z, target, temperature);
        for j in 0..vocab {
            let (log_p, _) = row(z, j, temperature);
            let p = log_p.exp();
            let hit = f64::from(u8::from(j == target));
            let grad = (grad_log_prob[t] * (hit - p) - grad_entropy[t] * p * (log_p + entropy)) / temperature;
            for i in 0..width {
                grad_hidden[t * width + i] += grad * weight[j * width + i];
                grad_weight[j * width + i] += grad * hidden[t * width + i];
            }
        }
    }
    (grad_hidden, grad_weight)
}
