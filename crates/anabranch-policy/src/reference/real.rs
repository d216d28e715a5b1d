//! The arithmetic that the reference needs, for both float widths.

use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// `f32` or `f64`.
pub trait Real:
    Copy
    + Debug
    + PartialOrd
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Sum
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// The nearest value to `value`.
    fn of(value: f64) -> Self;
    /// Widened.
    fn wide(self) -> f64;
    /// e to this power.
    fn exp(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
}

macro_rules! real {
    ($float:ty) => {
        impl Real for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            fn of(value: f64) -> Self {
                value as $float
            }
            fn wide(self) -> f64 {
                f64::from(self)
            }
            fn exp(self) -> Self {
                <$float>::exp(self)
            }
            fn ln(self) -> Self {
                <$float>::ln(self)
            }
            fn sqrt(self) -> Self {
                <$float>::sqrt(self)
            }
        }
    };
}

real!(f32);
real!(f64);
