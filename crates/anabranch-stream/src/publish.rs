//! Publication: installs new weights on the engines, in an order that keeps the log true if the process crashes.

use std::time::Duration;

use crate::Run;
use crate::run::Draft;
use anabranch_core::{Cause, Digest, Engine, Error, EventKind, Stamp, TrainingStep, Version, WeightSync};

/// A finished publication.
#[derive(Copy, Clone, Debug)]
pub struct Publication {
    /// The version.
    pub version: Version,
    /// How long generation was paused.
    pub paused: Duration,
    /// The record that generation resumed.
    pub resumed: Stamp,
}

/// Publishes weights. A chain without `publish_every` must call this once before it generates. A run makes one
/// publication at a time; others wait.
///
/// `weights` become the next version. `Publishing` is durable before the engine is paused, the clock advances when the
/// weights are installed, and then generation resumes. `digest` is the digest of the weights.
///
/// # Errors
/// Returns an error if the log or the engine fails. The version number is then used up.
///
/// ```
/// use anabranch_core::{Digest, Version, WeightSync};
/// use anabranch_stream::Run;
/// use anabranch_sim::Sim;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), anabranch_core::Error> {
/// let (run, engine) = (Run::in_memory(), Sim::fixed(4, std::time::Duration::ZERO));
/// let publication = anabranch_stream::publish(&run, &engine, 7, Digest::of(b"7"), WeightSync::Retract).await?;
/// assert_eq!(publication.version, Version(0));
/// assert_eq!(run.version(), Some(Version(0)));
/// # Ok(())
/// # }
/// ```
pub async fn publish<E: Engine + ?Sized>(
    run: &Run,
    engine: &E,
    weights: E::Weights,
    digest: Digest,
    mode: WeightSync,
) -> Result<Publication, Error> {
    publish_after(run, engine, weights, digest, mode, Vec::new()).await
}

/// Publishes weights, as enabled by `enablers`.
pub(crate) async fn publish_after<E: Engine + ?Sized>(
    run: &Run,
    engine: &E,
    weights: E::Weights,
    digest: Digest,
    mode: WeightSync,
    enablers: Vec<(Cause, Stamp)>,
) -> Result<Publication, Error> {
    let _turn = run.publication_turn().await;
    let (version, begun) = run.begin_publication(digest, mode, enablers);
    begun.durable.clone().await?;
    let pause_began = run.now();
    engine.pause(mode).await?;
    let (paused, standstill) = (run.now(), run.stand_still());
    engine.install(weights, version).await?;
    let enablers = vec![(Cause::Publishing, begun.stamp(0))];
    let published = run.complete_publication(version, digest, pause_began, paused, enablers);
    let resumed = resume(run, engine, version, published.stamp(0)).await?;
    drop(standstill);
    Ok(Publication { version, paused: Duration::from_nanos(resumed.at - pause_began), resumed })
}

/// Installs weights that an earlier session published again, under the same version.
pub(crate) async fn reinstall<E: Engine + ?Sized>(
    run: &Run,
    engine: &E,
    weights: E::Weights,
    (version, step, digest): (Version, TrainingStep, Digest),
    mode: WeightSync,
) -> Result<Publication, Error> {
    let _turn = run.publication_turn().await;
    let pause_began = run.now();
    engine.pause(mode).await?;
    engine.install(weights, version).await?;
    let reinstalled = run.reinstall(version, step, digest);
    reinstalled.durable.clone().await?;
    let resumed = resume(run, engine, version, reinstalled.stamp(0)).await?;
    Ok(Publication { version, paused: Duration::from_nanos(resumed.at - pause_began), resumed })
}

async fn resume<E: Engine + ?Sized>(run: &Run, engine: &E, version: Version, installed: Stamp) -> Result<Stamp, Error> {
    engine.resume().await?;
    let enablers = vec![(Cause::Installed, installed)];
    Ok(run.record(vec![Draft::new(EventKind::GenerationResumed { version }, enablers)], &[]).stamp(0))
}
