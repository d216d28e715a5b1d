//! A character vocabulary: one token a character, plus the special tokens of the demo.

use crate::error::PolicyError;

/// Characters and special tokens, numbered in order: `<bos>`, `<eos>`, then one id a character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    characters: Vec<char>,
}

/// Number of special tokens before the first character.
const SPECIALS: u32 = 2;

impl Vocabulary {
    /// The token that begins every sequence.
    pub const BOS: u32 = 0;
    /// The token that ends a response, in tasks that have one.
    pub const EOS: u32 = 1;

    /// A vocabulary of these characters, in this order.
    ///
    /// # Errors
    /// Returns [`PolicyError::Config`] when a character stands twice.
    pub fn new(characters: &str) -> Result<Self, PolicyError> {
        let characters: Vec<char> = characters.chars().collect();
        for (position, character) in characters.iter().enumerate() {
            if characters[..position].contains(character) {
                return Err(PolicyError::Config {
                    field: "characters",
                    found: format!("{character:?} twice"),
                    expected: "each character once".into(),
                });
            }
        }
        Ok(Self { characters })
    }

    /// The demo's vocabulary of 16: two specials, the ten digits, and `= + - ,`.
    pub fn digits() -> Self {
        Self { characters: "0123456789=+-,".chars().collect() }
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.characters.len() + SPECIALS as usize
    }

    /// Never true: the special tokens are always there.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Ids of a text, without special tokens.
    ///
    /// # Errors
    /// Returns [`PolicyError::UnknownCharacter`] with the character and its position.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, PolicyError> {
        text.chars()
            .enumerate()
            .map(|(position, character)| {
                let index = self.characters.iter().position(|known| *known == character);
                match index {
                    Some(index) => Ok(index as u32 + SPECIALS),
                    None => Err(PolicyError::UnknownCharacter {
                        character,
                        position,
                        known: self.characters.iter().collect(),
                    }),
                }
            })
            .collect()
    }

    /// Ids of a prompt: `<bos>`, then the text.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn prompt(&self, text: &str) -> Result<Vec<u32>, PolicyError> {
        let mut ids = vec![Self::BOS];
        ids.extend(self.encode(text)?);
        Ok(ids)
    }

    /// The text of these ids; special tokens and unknown ids leave no trace.
    pub fn decode(&self, ids: &[u32]) -> String {
        ids.iter()
            .filter_map(|id| id.checked_sub(SPECIALS))
            .filter_map(|index| self.characters.get(index as usize))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_vocabulary_has_sixteen_ids() {
        let vocabulary = Vocabulary::digits();
        assert_eq!(vocabulary.len(), 16);
        let ids = vocabulary.prompt("3140=").unwrap();
        assert_eq!(ids, [0, 5, 3, 6, 2, 12]);
        assert_eq!(vocabulary.decode(&ids), "3140=");
    }

    #[test]
    fn unknown_characters_are_named_with_their_place() {
        let error = Vocabulary::digits().encode("12x4").unwrap_err().to_string();
        assert!(error.contains("'x'") && error.contains("position 2"), "{error}");
        assert!(Vocabulary::new("aba").is_err());
    }
}
