//! The tables of a run as streams of Arrow record batches.

use anabranch_parquet::{Table, TableRows, Unsealed};

use crate::{ReadLog, RunLog, segments};

impl RunLog {
    /// The rows of a table of this run while it is open: those in its sealed segments, then those of what it has recorded
    /// since. A run in memory has them too.
    ///
    /// ```
    /// use anabranch::prelude::*;
    /// use anabranch::sim::{HashChain, Sim};
    /// use anabranch::{Dataset, Fields, Table};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let run = RunLog::open("runs/example", Durability::None)?;
    /// let engine = Sim::fixed(2, std::time::Duration::ZERO);
    /// let prompts = run.prompts(Dataset::new("d", (0..8).map(|row| (vec![row], Fields::new())).collect())?);
    /// let groups = prompts.generate(&engine, InFlight::groups(2), Samples(3)).log(&run);
    /// let steps = groups.batch(2).train(run.restore(HashChain::new(3))?).publish_every(1, &engine);
    /// steps.try_collect::<Vec<_>>().await?;
    ///
    /// let samples = run.table(Table::Samples).columns(["group_id", "sample", "tokens"]);
    /// let batches: Vec<_> = samples.try_collect().await?;
    /// assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 8 * 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn table(&self, table: Table) -> TableRows {
        let (log, payloads) = (self.live(), self.live());
        let log = Unsealed::new(move |first, most| Ok(log.events(first, most)?), move |id| Ok(payloads.payload(id)?));
        TableRows::of_log(table, self.path().map(segments::folder), log)
    }
}

impl ReadLog {
    /// The rows of a table of this run: those in its sealed segments, then those of the rest of its log. The stream keeps
    /// the run open for reading until it is dropped.
    pub fn table(&self, table: Table) -> TableRows {
        let (log, payloads) = (self.0.clone(), self.0.clone());
        let events = move |first, most| Ok(log.events_from(first).take(most).collect::<Result<_, _>>()?);
        let log = Unsealed::new(events, move |id| Ok(payloads.payload(id)?));
        TableRows::of_log(table, Some(segments::folder(self.path())), log)
    }
}
