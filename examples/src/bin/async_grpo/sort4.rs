//! The task: the prompt has four digits, the answer has the same digits in ascending order.

use std::path::Path;

use anabranch::policy::{PolicyEngine, Vocabulary};
use anabranch::{Dataset, Fields, Jsonl, Sampling};
use anyhow::{Context, Result, anyhow};

/// Number of tokens in an answer.
const ANSWER: u32 = 4;

/// The datasets and their vocabulary.
pub struct Sort4 {
    vocabulary: Vocabulary,
    pub train: Dataset,
    pub held_out: Dataset,
}

impl Sort4 {
    pub fn open(train: &Path, held_out: &Path) -> Result<Self> {
        let vocabulary = Vocabulary::digits();
        let open = |path: &Path| -> Result<Dataset> {
            let dataset = Jsonl::open(path)?.encode(|prompt| vocabulary.prompt(prompt))?;
            for row in 0..dataset.len() {
                let fields = dataset.prompt(0, row).map(|prompt| prompt.fields).unwrap_or_default();
                answer(&vocabulary, &fields).with_context(|| format!("{}: row {}", path.display(), row + 1))?;
            }
            Ok(dataset)
        };
        Ok(Self { train: open(train)?, held_out: open(held_out)?, vocabulary })
    }

    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// Returns the share of the positions of `response` that agree with the answer of its prompt. A prompt without an answer
    /// gives 0, but [`open`](Self::open) accepts no such prompt.
    pub fn reward(&self, fields: &Fields, response: &[u32]) -> f64 {
        let Ok(expected) = answer(&self.vocabulary, fields) else { return 0.0 };
        let right = expected.iter().zip(response).filter(|(expected, token)| expected == token).count();
        right as f64 / f64::from(ANSWER)
    }

    /// Returns the share of held-out prompts that the weights on `engine` answer correctly with greedy sampling.
    pub async fn accuracy(&self, engine: &PolicyEngine) -> Result<f64> {
        let rows = (0..self.held_out.len()).filter_map(|row| self.held_out.prompt(0, row)).collect::<Vec<_>>();
        let prompts = rows.iter().map(|prompt| prompt.tokens.clone()).collect::<Vec<_>>();
        let answers = engine.greedy(&prompts, ANSWER).await?;
        let right = rows.iter().zip(&answers).filter(|(row, answer)| self.reward(&row.fields, answer) >= 1.0).count();
        Ok(right as f64 / rows.len() as f64)
    }

    /// Sampling settings for answers of fixed length: no stop token.
    pub fn sampling(temperature: f32) -> Sampling {
        Sampling { temperature, max_tokens: ANSWER, ..Sampling::default() }
    }
}

fn answer(vocabulary: &Vocabulary, fields: &Fields) -> Result<Vec<u32>> {
    let text = fields.get("answer").and_then(|answer| answer.as_text());
    let text = text.ok_or_else(|| anyhow!("expected a text `answer` of {ANSWER} digits"))?;
    let tokens = vocabulary.encode(text)?;
    if tokens.len() != ANSWER as usize {
        return Err(anyhow!("answer {text:?} has {} digits, expected {ANSWER}", tokens.len()));
    }
    Ok(tokens)
}
