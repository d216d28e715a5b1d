//! The session clock on tokio.

use anabranch_core::SessionClock;
use tokio::time::Instant;

/// Returns a clock that starts now and follows tokio's time. In a test with paused time it is paused too.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let timer = anabranch_stream::tokio_clock();
/// tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
/// assert_eq!(timer.now(), 3_600_000_000_000);
/// # }
/// ```
pub fn tokio_clock() -> SessionClock {
    let start = Instant::now();
    SessionClock::new(move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
