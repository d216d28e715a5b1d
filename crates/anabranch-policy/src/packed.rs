//! Sequences laid end to end without padding: the form in which the model reads them.

/// Several sequences as one run of rows, one row a token, and the rows whose next token is scored.
///
/// Row `r` of sequence `s` attends to rows `bounds[s]..=r`. A scored row predicts the token after it; the last token of
/// a sequence is a target only, never a row, since nothing is predicted from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Token of each row.
    pub tokens: Vec<u32>,
    /// Position of each row within its sequence, from 0.
    pub positions: Vec<u32>,
    /// Sequence of each row.
    pub row_sequences: Vec<u32>,
    /// Where each sequence begins, and where the last one ends: one more entry than sequences.
    pub bounds: Vec<u32>,
    /// Rows whose next token is scored, ascending.
    pub scored: Vec<u32>,
    /// The token to score at each of those rows.
    pub targets: Vec<u32>,
}

impl Packed {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { bounds: vec![0], ..Self::default() }
    }

    /// Appends one sequence; `scored(i)` says whether its token `i` (from 1 on) is scored.
    ///
    /// The rows are all tokens but the last; a sequence of fewer than two tokens adds nothing.
    pub fn push(&mut self, tokens: &[u32], scored: impl Fn(usize) -> bool) {
        let Some((_, rows)) = tokens.split_last() else {
            return;
        };
        if rows.is_empty() {
            return;
        }
        let start = self.tokens.len();
        let sequence = self.bounds.len() as u32 - 1;
        self.tokens.extend_from_slice(rows);
        self.positions.extend(0..rows.len() as u32);
        self.row_sequences.extend(rows.iter().map(|_| sequence));
        self.bounds.push(self.tokens.len() as u32);
        for target in (1..tokens.len()).filter(|index| scored(*index)) {
            self.scored.push((start + target - 1) as u32);
            self.targets.push(tokens[target]);
        }
    }

    /// Rows of each sequence.
    pub fn lengths(&self) -> Vec<usize> {
        let rows = self.bounds.windows(2).map(|pair| pair[1] - pair[0]);
        rows.map(|rows| rows as usize).collect()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.bounds.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_lie_end_to_end() {
        let mut packed = Packed::new();
        packed.push(&[5, 6, 7], |i| i >= 2);
        packed.push(&[9], |_| true);
        packed.push(&[1, 2, 3, 4], |i| i != 2);
        assert_eq!(packed.tokens, [5, 6, 1, 2, 3]);
        assert_eq!(packed.positions, [0, 1, 0, 1, 2]);
        assert_eq!(packed.row_sequences, [0, 0, 1, 1, 1]);
        assert_eq!(packed.bounds, [0, 2, 5]);
        assert_eq!(packed.scored, [1, 2, 4]);
        assert_eq!(packed.targets, [7, 2, 4]);
        assert_eq!(packed.lengths(), [2, 3]);
        assert_eq!((packed.rows(), packed.sequences()), (5, 2));
    }
}
