//! The combinators of anabranch: asynchronous RL post-training as one chain of [`futures::Stream`] adaptors.
//!
//! [`RolloutExt`] has all of them. The items carry their lease, and through it the run. You can therefore put any
//! adaptor of [`StreamExt`](futures::StreamExt) or [`TryStreamExt`](futures::TryStreamExt) between two operators,
//! except between `train` and its own `checkpoint_every` and `publish_every`.
//!
//! ```
//! use anabranch_core::{Dataset, Error, Fields};
//! use anabranch_sim::{HashChain, Sim};
//! use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Run, Samples, Unused};
//! use futures::TryStreamExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let run = Run::in_memory();
//! let engine = Sim::fixed(4, std::time::Duration::ZERO);
//! let learner = run.restore(HashChain::new(0))?;
//! let rows = (0..12).map(|row| (vec![row], Fields::new())).collect();
//!
//! let mut steps = run
//!     .prompts(Dataset::new("d", rows).expect("twelve rows"))
//!     .epochs(2)
//!     .shuffle(7)
//!     .unused(Unused::Retry { max_attempts: 3 })
//!     .generate(&engine, InFlight::groups(4), Samples(2))
//!     .score(|response| response.response().len() == 4)
//!     .admit("complete", |group| group.reward_mean() == Some(1.0))
//!     .log(&run)
//!     .buffer(Capacity::groups(8))
//!     .fresh(MaxStaleness(4))
//!     .batch(3)
//!     .train(learner)
//!     .checkpoint_every(2)
//!     .publish_every(1, &engine);
//!
//! let mut last = None;
//! while let Some(step) = steps.try_next().await? {
//!     println!("{step}");
//!     last = Some(step);
//! }
//! assert_eq!(last.map(|step| step.step.0), Some(8));
//! # Ok(())
//! # }
//! ```

mod admission;
mod admit;
mod batch;
mod bounds;
mod buffer;
#[cfg(feature = "by-hand")]
pub mod by_hand;
mod demand;
mod disposition;
mod entry;
mod ext;
pub mod filters;
mod fresh;
mod generate;
mod lease;
mod log;
mod pace;
mod panics;
mod prompts;
mod publish;
mod replay;
mod response;
mod rollout;
mod run;
mod score;
mod score_async;
mod tokio_clock;
mod train;
mod upstream;

pub use admit::Admit;
pub use anabranch_core::Order;
pub use batch::Batches;
pub use bounds::{Capacity, Granularity, InFlight, MaxStaleness, Samples};
pub use buffer::Buffer;
pub use disposition::Unused;
pub use ext::RolloutExt;
pub use fresh::Fresh;
pub use generate::{Generate, Session, Stopped, Turn};
pub use lease::Lease;
pub use log::Log;
pub use pace::Pace;
pub use prompts::Prompts;
pub use publish::{Publication, publish};
pub use replay::{Replay, Replayed, Retrained, replay_log, retrain};
pub use response::{OwnedResponse, Response};
pub use rollout::Rollout;
pub use run::{Evaluation, Hold, Restored, Run, RunBuilder};
pub use score::Score;
pub use score_async::ScoreAsync;
pub use tokio_clock::tokio_clock;
pub use train::Train;
