//! Publication: new weights on the engines, in an order that no crash can turn into a lie.

use std::time::Duration;

use crate::Run;
use crate::run::Draft;
use anabranch_core::{Cause, Digest, Engine, Error, EventKind, Stamp, TrainingStep, Version, WeightSync};

/// A publication that is over.
#[derive(Copy, Clone, Debug)]
pub struct Publication {
    /// The version.
    pub version: Version,
    /// How long generation stood still.
    pub paused: Duration,
    /// The record that generation went on.
    pub resumed: Stamp,
}

/// Publishes weights: for a chain without `publish_every`, which must publish once before it generates. The publication
/// waits for its turn, one runs at a time per run.
///
/// `weights` become the next version: `Publishing` is durable before the engine is touched, the clock advances when they
/// are installed, then generation goes on. `digest` is that of the weights.
///
/// # Errors
/// Where the log or the engine fails. The version number is used up then.
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
/// assert_eq!(run.clock().version(), Some(Version(0)));
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

/// The same, enabled by `enablers`.
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

/// Installs weights again that an earlier session published, under the same version.
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
