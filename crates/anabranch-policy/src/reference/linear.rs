//! Row-major products with a weight of shape `[out, in]`, and the norm.

use super::Real;

/// `y[r, o] = Σᵢ x[r, i] · w[o, i]`; `x` is `[rows, width]`, `w` is `[out, width]`.
pub(super) fn linear<T: Real>(x: &[T], w: &[T], width: usize) -> Vec<T> {
    let dot = |a: &[T], b: &[T]| a.iter().zip(b).map(|(a, b)| *a * *b).sum();
    x.chunks_exact(width).flat_map(|row| w.chunks_exact(width).map(move |weight| dot(row, weight))).collect()
}

/// Adds the gradient in `w` to `dw` and returns the gradient in `x`; `dy` is `[rows, out]`.
pub(super) fn linear_backward<T: Real>(x: &[T], w: &[T], dy: &[T], dw: &mut [T], width: usize) -> Vec<T> {
    let out = w.len() / width;
    let mut dx = vec![T::ZERO; x.len()];
    for ((row, dx), dy) in x.chunks_exact(width).zip(dx.chunks_exact_mut(width)).zip(dy.chunks_exact(out)) {
        for (o, dy) in dy.iter().enumerate() {
            for i in 0..width {
                dx[i] += *dy * w[o * width + i];
                dw[o * width + i] += *dy * row[i];
            }
        }
    }
    dx
}

/// `y = x / √(mean(x²) + ε) · w`, row by row; also the factor `1/√(…)` of each row.
pub(super) fn rms_norm<T: Real>(x: &[T], w: &[T], eps: f64) -> (Vec<T>, Vec<T>) {
    let width = w.len();
    let mut factors = Vec::with_capacity(x.len() / width);
    let mut y = Vec::with_capacity(x.len());
    for row in x.chunks_exact(width) {
        let mean = row.iter().map(|v| *v * *v).sum::<T>() / T::of(width as f64);
        let factor = T::ONE / (mean + T::of(eps)).sqrt();
        y.extend(row.iter().zip(w).map(|(v, w)| *v * factor * *w));
        factors.push(factor);
    }
    (y, factors)
}

/// Adds the gradient in `w` to `dw` and the gradient in `x` to `dx`.
pub(super) fn rms_norm_backward<T: Real>(x: &[T], w: &[T], factors: &[T], dy: &[T], dw: &mut [T], dx: &mut [T]) {
    let width = w.len();
    for (row, factor) in factors.iter().enumerate() {
        let at = row * width..(row + 1) * width;
        let (x, dy, dx) = (&x[at.clone()], &dy[at.clone()], &mut dx[at]);
        let inner = (0..width).map(|i| dy[i] * w[i] * x[i]).sum::<T>();
        let shared = inner * *factor * *factor * *factor / T::of(width as f64);
        for i in 0..width {
            dw[i] += dy[i] * x[i] * *factor;
            dx[i] += dy[i] * w[i] * *factor - x[i] * shared;
        }
    }
}

/// Rotates each head of `x` (`[rows, heads · head_dim]`) by its row's position, in the half-split convention:
/// element `i` pairs with `i + head_dim/2`, at angle `position · θ^(−2i/head_dim)`. `direction` −1 undoes it.
pub(super) fn rotate<T: Real>(x: &mut [T], positions: &[u32], head_dim: usize, theta: f64, direction: f64) {
    let half = head_dim / 2;
    let width = x.len() / positions.len();
    for (row, position) in x.chunks_exact_mut(width).zip(positions) {
        for head in row.chunks_exact_mut(head_dim) {
            for i in 0..half {
                let frequency = theta.powf(-2.0 * i as f64 / head_dim as f64);
                let angle = f64::from(*position) * frequency * direction;
                let (sin, cos) = (T::of(angle.sin()), T::of(angle.cos()));
                let (a, b) = (head[i], head[i + half]);
                head[i] = a * cos - b * sin;
                head[i + half] = b * cos + a * sin;
            }
        }
    }
}
