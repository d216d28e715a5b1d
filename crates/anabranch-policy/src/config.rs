//! Shape of a Llama-family decoder, as written in a Hugging Face `config.json`.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::error::PolicyError;

/// Shape and constants of a Llama-family decoder.
///
/// Attention is grouped-query: `heads` query heads share `kv_heads` key/value heads. Queries and
/// keys are rotated by `RoPE` in the half-split convention of Hugging Face.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Number of token ids.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the `SwiGLU` feed-forward layer.
    pub ffn: usize,
    /// Number of decoder layers.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Added to the mean square in `RMSNorm`.
    pub rms_eps: f64,
    /// Longest sequence the model was made for, in tokens.
    pub max_positions: usize,
    /// Whether the output head shares the embedding matrix.
    pub tied: bool,
    /// Id of the token that begins a sequence.
    pub bos: Option<u32>,
    /// Ids of the tokens that end a response.
    pub eos: Vec<u32>,
}

impl Config {
    /// The demo's model: 2 layers, width 64, 4 heads, ffn 160, untied head; 96 576 parameters with a vocabulary of 16.
    pub fn tiny(vocab: usize) -> Self {
        Self {
            vocab,
            hidden: 64,
            ffn: 160,
            layers: 2,
            heads: 4,
            kv_heads: 4,
            head_dim: 16,
            rope_theta: 1e4,
            rms_eps: 1e-5,
            max_positions: 64,
            tied: false,
            bos: None,
            eos: Vec::new(),
        }
    }

    /// Checks that the sizes fit together.
    ///
    /// # Errors
    /// Returns [`PolicyError::Config`] with the first field that does not fit.
    pub fn validate(&self) -> Result<(), PolicyError> {
        for (field, value) in [
            ("vocab_size", self.vocab),
            ("hidden_size", self.hidden),
            ("intermediate_size", self.ffn),
            ("num_hidden_layers", self.layers),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_positions),
        ] {
            if value == 0 {
                return Err(refuse(field, &value, "at least 1"));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let expected = format!("a divisor of num_attention_heads = {}", self.heads);
            return Err(refuse("num_key_value_heads", &self.kv_heads, &expected));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(refuse("head_dim", &self.head_dim, "an even number, for RoPE"));
        }
        for (field, value) in [("rope_theta", self.rope_theta), ("rms_norm_eps", self.rms_eps)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(refuse(field, &value, "a positive and finite number"));
            }
        }
        for id in self.bos.iter().chain(&self.eos) {
            if *id as usize >= self.vocab {
                let expected = format!("an id below vocab_size = {}", self.vocab);
                return Err(refuse("bos_token_id or eos_token_id", id, &expected));
            }
        }
        Ok(())
    }

    /// Width of all query heads together.
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key heads (or all value heads) together.
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Number of trained parameters.
    pub fn parameters(&self) -> usize {
        let attention = self.hidden * (2 * self.q_dim() + 2 * self.kv_dim());
        let layer = attention + 3 * self.hidden * self.ffn + 2 * self.hidden;
        let heads = if self.tied { 1 } else { 2 };
        heads * self.vocab * self.hidden + self.layers * layer + self.hidden
    }

    /// Reads `config.json`.
    ///
    /// # Errors
    /// Returns [`PolicyError::Io`] or [`PolicyError::Malformed`] with the path, and [`PolicyError::Config`] if the file
    /// asks for something that this model does not implement (attention bias, scaled `RoPE`, an activation other than
    /// `SiLU`).
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let text = std::fs::read_to_string(path).map_err(PolicyError::io("reading", path))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| PolicyError::malformed(path, &error))?;
        let Value::Object(fields) = value else {
            return Err(PolicyError::malformed(path, &"expected a JSON object"));
        };
        Self::from_json(&fields)
    }

    /// Reads the fields of a `config.json`.
    ///
    /// # Errors
    /// Returns [`PolicyError::Config`] with the field that is missing, of the wrong type, or not implemented.
    pub fn from_json(fields: &Map<String, Value>) -> Result<Self, PolicyError> {
        if let Some(kind) = fields.get("model_type").and_then(Value::as_str)
            && kind != "llama"
        {
            return Err(refuse("model_type", &kind, "\"llama\", the only type implemented"));
        }
        for field in ["attention_bias", "mlp_bias"] {
            if fields.get(field).and_then(Value::as_bool) == Some(true) {
                return Err(refuse(field, &true, "false, because biases are not implemented"));
            }
        }
        if let Some(name) = fields.get("hidden_act").and_then(Value::as_str)
            && name != "silu"
        {
            return Err(refuse("hidden_act", &name, "\"silu\", the only activation implemented"));
        }
        let hidden = required(fields, "hidden_size")?;
        let heads = required(fields, "num_attention_heads")?;
        let head_dim = match optional(fields, "head_dim")? {
            Some(width) => width,
            None => hidden.checked_div(heads).unwrap_or(0),
        };
        let config = Self {
            vocab: required(fields, "vocab_size")?,
            hidden,
            ffn: required(fields, "intermediate_size")?,
            layers: required(fields, "num_hidden_layers")?,
            heads,
            kv_heads: optional(fields, "num_key_value_heads")?.unwrap_or(heads),
            head_dim,
            rope_theta: rope_theta(fields)?,
            rms_eps: number(fields, "rms_norm_eps")?.unwrap_or(1e-6),
            max_positions: optional(fields, "max_position_embeddings")?.unwrap_or(2048),
            tied: fields.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false),
            bos: token_ids(fields, "bos_token_id")?.first().copied(),
            eos: token_ids(fields, "eos_token_id")?,
        };
        config.validate()?;
        Ok(config)
    }

    /// The fields of a `config.json` that `transformers` loads, old and new spellings of `RoPE` alike.
    pub fn to_json(&self) -> Value {
        let eos = match self.eos.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            many => json!(many),
        };
        json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "attention_bias": false,
            "mlp_bias": false,
            "attention_dropout": 0.0,
            "rope_theta": self.rope_theta,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "rms_norm_eps": self.rms_eps,
            "max_position_embeddings": self.max_positions,
            "tie_word_embeddings": self.tied,
            "bos_token_id": self.bos,
            "eos_token_id": eos,
            "torch_dtype": "float32",
            "dtype": "float32",
        })
    }

    /// Writes `config.json`.
    ///
    /// # Errors
    /// Returns [`PolicyError::Io`] with the path.
    pub fn write(&self, path: &Path) -> Result<(), PolicyError> {
        let text = format!("{:#}\n", self.to_json());
        std::fs::write(path, text).map_err(PolicyError::io("writing", path))
    }
}

fn refuse(field: &'static str, found: &dyn ToString, expected: &str) -> PolicyError {
    PolicyError::Config { field, found: found.to_string(), expected: expected.to_string() }
}

fn optional(fields: &Map<String, Value>, field: &'static str) -> Result<Option<usize>, PolicyError> {
    match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) => Ok(Some(number as usize)),
            None => Err(refuse(field, value, "a whole number")),
        },
    }
}

fn required(fields: &Map<String, Value>, field: &'static str) -> Result<usize, PolicyError> {
    optional(fields, field)?.ok_or_else(|| refuse(field, &"no such field", "a value"))
}

fn number(fields: &Map<String, Value>, field: &'static str) -> Result<Option<f64>, PolicyError> {
    match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64() {
            Some(number) => Ok(Some(number)),
            None => Err(refuse(field, value, "a number")),
        },
    }
}

/// `rope_theta` is beside the other fields before transformers 5, and inside `rope_parameters` since then.
fn rope_theta(fields: &Map<String, Value>) -> Result<f64, PolicyError> {
    for field in ["rope_scaling", "rope_parameters"] {
        let Some(Value::Object(rope)) = fields.get(field) else {
            continue;
        };
        let kind = rope.get("rope_type").or_else(|| rope.get("type"));
        if let Some(kind) = kind.and_then(Value::as_str)
            && kind != "default"
        {
            return Err(refuse(field, &kind, "unscaled RoPE (\"default\"), the only one implemented"));
        }
        if let Some(theta) = number(rope, "rope_theta")? {
            return Ok(theta);
        }
    }
    Ok(number(fields, "rope_theta")?.unwrap_or(1e4))
}

fn token_ids(fields: &Map<String, Value>, field: &'static str) -> Result<Vec<u32>, PolicyError> {
    let one = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| refuse(field, value, "a token id or a list of token ids"))
    };
    match fields.get(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(ids)) => ids.iter().map(one).collect(),
        Some(value) => Ok(vec![one(value)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiny_has_the_parameters_of_the_demo() {
        assert_eq!(Config::tiny(16).parameters(), 96_576);
        Config::tiny(16).validate().unwrap();
    }

    #[test]
    fn json_round_trip() {
        let mut config = Config::tiny(33);
        config.kv_heads = 2;
        config.bos = Some(1);
        config.eos = vec![2, 5];
        config.tied = true;
        let Value::Object(fields) = config.to_json() else { panic!("an object") };
        assert_eq!(Config::from_json(&fields).unwrap(), config);
    }

    #[test]
    fn old_files_without_head_dim_or_groups() {
        let fields = json!({
            "vocab_size": 10, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
            "num_attention_heads": 2, "rope_theta": 5e5, "eos_token_id": 3,
        });
        let config = Config::from_json(fields.as_object().unwrap()).unwrap();
        assert_eq!((config.head_dim, config.kv_heads, config.eos), (4, 2, vec![3]));
        assert!((config.rope_theta - 5e5).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_implemented_is_named() {
        let with = |field: &str, value: Value| {
            let mut fields = Config::tiny(16).to_json();
            fields[field] = value;
            Config::from_json(fields.as_object().unwrap()).unwrap_err().to_string()
        };
        assert!(with("attention_bias", json!(true)).contains("attention_bias"));
        assert!(with("hidden_act", json!("gelu")).contains("gelu"));
        assert!(with("rope_scaling", json!({"rope_type": "llama3"})).contains("llama3"));
        assert!(with("num_key_value_heads", json!(3)).contains("num_key_value_heads"));
        assert!(with("vocab_size", Value::Null).contains("found no such field"));
        assert!(with("eos_token_id", json!(16)).contains("eos_token_id"));
        assert!(with("model_type", json!("mamba")).contains("mamba"));
    }
}
