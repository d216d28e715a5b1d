//! Plain values for dataset fields, settings and the `extra` map of groups.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Named values in a fixed order.
pub type Fields = BTreeMap<String, Value>;

/// A value like those of JSON. Unlike a JSON value, it can be encoded in formats that do not describe themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
    /// Several values.
    List(Vec<Value>),
    /// Named values.
    Map(Fields),
}

impl Value {
    /// The text, if this is one.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The whole number, if this is one.
    pub fn as_int(&self) -> Option<i64> {
        if let Self::Int(int) = self { Some(*int) } else { None }
    }

    /// The number, whole or not, if this is one.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Int(int) => Some(*int as f64),
            Self::Float(float) => Some(*float),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", serde_json::Value::from(self.clone()))
    }
}

impl From<serde_json::Value> for Value {
    fn from(json: serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(bool) => Self::Bool(bool),
            serde_json::Value::Number(number) => {
                number.as_i64().map_or_else(|| Self::Float(number.as_f64().unwrap_or(f64::NAN)), Self::Int)
            }
            serde_json::Value::String(text) => Self::Text(text),
            serde_json::Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            serde_json::Value::Object(map) => {
                Self::Map(map.into_iter().map(|(key, value)| (key, Self::from(value))).collect())
            }
        }
    }
}

impl From<Value> for serde_json::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(bool) => Self::Bool(bool),
            Value::Int(int) => Self::from(int),
            Value::Float(float) => Self::from(float),
            Value::Text(text) => Self::String(text),
            Value::List(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            Value::Map(map) => Self::Object(map.into_iter().map(|(key, value)| (key, Self::from(value))).collect()),
        }
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident),*) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}
from!(bool => Bool, i64 => Int, i32 => Int, u32 => Int, f64 => Float, f32 => Float, &str => Text, String => Text);

impl From<u64> for Value {
    /// Counts above `i64::MAX` become floats.
    fn from(count: u64) -> Self {
        i64::try_from(count).map_or(Self::Float(count as f64), Self::Int)
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::from(count as u64)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_goes_in_and_out() {
        let json: serde_json::Value = serde_json::from_str(r#"{"a":[1,2.5,"x",null,true],"b":{"c":-3}}"#).unwrap();
        let value = Value::from(json.clone());
        assert_eq!(serde_json::Value::from(value.clone()), json);
        assert_eq!(value.to_string(), r#"{"a":[1,2.5,"x",null,true],"b":{"c":-3}}"#);
    }
}
