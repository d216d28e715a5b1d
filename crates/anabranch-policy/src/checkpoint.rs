//! A model as a Hugging Face directory: `config.json` and `*.safetensors`, whole or sharded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::config::Config;
use crate::error::PolicyError;
use crate::layout::Layout;
use crate::parameters::Parameters;

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Writes a directory that `transformers` loads: `config.json` and `model.safetensors`, 32-bit.
///
/// # Errors
/// Returns [`PolicyError::Io`] with the path.
pub fn write_directory(directory: &Path, config: &Config, parameters: &Parameters) -> Result<(), PolicyError> {
    std::fs::create_dir_all(directory).map_err(PolicyError::io("creating", directory))?;
    config.write(&directory.join(CONFIG))?;
    let tensors: Vec<NamedTensor> = parameters
        .tensors()
        .map(|(slot, values)| NamedTensor {
            name: slot.name.clone(),
            shape: slot.shape.clone(),
            values: values.to_vec(),
        })
        .collect();
    write_tensors(&directory.join(WEIGHTS), &tensors)
}

/// Reads a Hugging Face directory; 16-bit tensors are widened.
///
/// # Errors
/// Returns [`PolicyError::Tensor`] with the name of a tensor that is missing, superfluous or of another shape, and
/// [`PolicyError::Io`] or [`PolicyError::Malformed`] with the path.
pub fn read_directory(directory: &Path) -> Result<(Config, Parameters), PolicyError> {
    let config = Config::read(&directory.join(CONFIG))?;
    let layout = Arc::new(Layout::new(&config));
    let mut data = vec![0.0; layout.len()];
    let mut missing: BTreeSet<&str> = layout.slots().iter().map(|s| s.name.as_str()).collect();
    for file in weight_files(directory)? {
        for tensor in read_tensors(&directory.join(file))? {
            let Some(slot) = layout.slot(&tensor.name) else {
                // Buffers of old exports, and the copy of a tied head, carry no information of their own.
                if tensor.name.ends_with("rotary_emb.inv_freq") || (config.tied && tensor.name == "lm_head.weight") {
                    continue;
                }
                return Err(PolicyError::Tensor {
                    name: tensor.name,
                    problem: format!("is not part of the model in {}", directory.display()),
                });
            };
            if slot.shape != tensor.shape {
                return Err(PolicyError::Tensor {
                    name: tensor.name,
                    problem: format!("expected shape {:?}, found {:?}", slot.shape, tensor.shape),
                });
            }
            data[slot.range()].copy_from_slice(&tensor.values);
            missing.remove(slot.name.as_str());
        }
    }
    if let Some(name) = missing.first() {
        return Err(PolicyError::Tensor {
            name: (*name).to_string(),
            problem: format!("missing in {}", directory.display()),
        });
    }
    let parameters = Parameters::from_flat(layout, data)?;
    Ok((config, parameters))
}

/// Returns the files with the weights: those of the index if there is an index, else the single file.
fn weight_files(directory: &Path) -> Result<Vec<String>, PolicyError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let path = directory.join(INDEX);
    if !path.exists() {
        return Ok(vec![WEIGHTS.into()]);
    }
    let text = std::fs::read_to_string(&path).map_err(PolicyError::io("reading", &path))?;
    let index: Index = serde_json::from_str(&text).map_err(|error| PolicyError::malformed(&path, &error))?;
    let files: BTreeSet<String> = index.weight_map.into_values().collect();
    // A file name from an index must not lead out of the directory.
    if let Some(file) = files.iter().find(|file| file.contains(['/', '\\'])) {
        let problem = format!("expected a file name within the directory, found {file:?}");
        return Err(PolicyError::malformed(&path, &problem));
    }
    Ok(files.into_iter().collect())
}

/// One tensor with its name and values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedTensor {
    /// The tensor's name.
    pub name: String,
    /// Its shape, row-major.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Vec<f32>,
}

/// Writes tensors as one `safetensors` file of 32-bit floats, replacing it in one motion.
pub(crate) fn write_tensors(path: &Path, tensors: &[NamedTensor]) -> Result<(), PolicyError> {
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|tensor| tensor.values.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let mut views = Vec::with_capacity(tensors.len());
    for (tensor, bytes) in tensors.iter().zip(&bytes) {
        let view = TensorView::new(Dtype::F32, tensor.shape.clone(), bytes)
            .map_err(|error| PolicyError::malformed(path, &error))?;
        views.push((tensor.name.as_str(), view));
    }
    // `transformers` refuses a file without this mark.
    let mark = [("format".to_string(), "pt".to_string())];
    let file =
        safetensors::serialize(views, Some(mark.into())).map_err(|error| PolicyError::malformed(path, &error))?;
    let part = path.with_extension("part");
    std::fs::write(&part, file).map_err(PolicyError::io("writing", &part))?;
    std::fs::rename(&part, path).map_err(PolicyError::io("renaming to", path))
}

/// Reads all tensors of one `safetensors` file, widened to 32-bit floats.
pub(crate) fn read_tensors(path: &Path) -> Result<Vec<NamedTensor>, PolicyError> {
    let bytes = std::fs::read(path).map_err(PolicyError::io("reading", path))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| PolicyError::malformed(path, &error))?;
    let mut tensors = Vec::with_capacity(file.len());
    for (name, view) in file.tensors() {
        let data = view.data();
        let values = match view.dtype() {
            Dtype::F32 => data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
            Dtype::BF16 => data
                .chunks_exact(2)
                .map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))
                .collect(),
            Dtype::F16 => data.chunks_exact(2).map(|b| half_to_float(u16::from_le_bytes([b[0], b[1]]))).collect(),
            other => {
                return Err(PolicyError::Tensor {
                    name,
                    problem: format!("expected type F32, BF16 or F16 in {}, found {other:?}", path.display()),
                });
            }
        };
        tensors.push(NamedTensor { name, shape: view.shape().to_vec(), values });
    }
    Ok(tensors)
}

/// IEEE half precision to single precision, exactly.
fn half_to_float(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let exponent = u32::from(bits >> 10) & 0x1f;
    let fraction = u32::from(bits) & 0x3ff;
    match exponent {
        0 => {
            // Subnormal: fraction · 2⁻²⁴, exact in single precision.
            let magnitude = fraction as f32 * 2.0_f32.powi(-24);
            f32::from_bits(magnitude.to_bits() | sign)
        }
        0x1f => f32::from_bits(sign | 0x7f80_0000 | (fraction << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (fraction << 13)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> (Config, Parameters) {
        let mut config = Config::tiny(16);
        config.kv_heads = 2;
        let parameters = Parameters::init(&config, 3).unwrap();
        (config, parameters)
    }

    #[test]
    fn directory_round_trip_is_exact() {
        let directory = tempfile::tempdir().unwrap();
        let (config, parameters) = model();
        write_directory(directory.path(), &config, &parameters).unwrap();
        let (read_config, read) = read_directory(directory.path()).unwrap();
        assert_eq!(read_config, config);
        assert_eq!(read.digest(), parameters.digest());
        assert_eq!(read, parameters);
    }

    #[test]
    fn shards_and_half_precision_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let (config, parameters) = model();
        config.write(&directory.path().join(CONFIG)).unwrap();
        let mut map = BTreeMap::new();
        let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        for (shard, file) in names.iter().enumerate() {
            let mut data = Vec::new();
            for (index, (slot, values)) in parameters.tensors().enumerate() {
                if index % 2 == shard {
                    map.insert(slot.name.clone(), (*file).to_string());
                    let bytes: Vec<u8> =
                        values.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect();
                    data.push((slot.name.clone(), slot.shape.clone(), bytes));
                }
            }
            let views = data.iter().map(|(name, shape, bytes)| {
                let view = TensorView::new(Dtype::BF16, shape.clone(), bytes).unwrap();
                (name.as_str(), view)
            });
            let file = directory.path().join(file);
            std::fs::write(file, safetensors::serialize(views, None).unwrap()).unwrap();
        }
        let index = serde_json::json!({ "metadata": {}, "weight_map": map });
        std::fs::write(directory.path().join(INDEX), index.to_string()).unwrap();
        let (_, read) = read_directory(directory.path()).unwrap();
        for (wide, narrow) in parameters.data().iter().zip(read.data()) {
            assert_eq!(wide.to_bits() & 0xffff_0000, narrow.to_bits());
        }
    }

    #[test]
    fn missing_and_misshapen_tensors_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let (config, parameters) = model();
        write_directory(directory.path(), &config, &parameters).unwrap();
        let path = directory.path().join(WEIGHTS);
        let mut tensors = read_tensors(&path).unwrap();
        let index = tensors.iter().position(|t| t.name == "model.norm.weight").unwrap();
        let removed = tensors.swap_remove(index);
        write_tensors(&path, &tensors).unwrap();
        let error = read_directory(directory.path()).unwrap_err().to_string();
        assert!(error.contains("model.norm.weight") && error.contains("missing"), "{error}");

        tensors.push(NamedTensor { shape: vec![8, 8], ..removed });
        write_tensors(&path, &tensors).unwrap();
        let error = read_directory(directory.path()).unwrap_err().to_string();
        assert!(error.contains("expected shape [64], found [8, 8]"), "{error}");
    }

    #[test]
    fn an_index_cannot_lead_out_of_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let (config, _) = model();
        config.write(&directory.path().join(CONFIG)).unwrap();
        let index = r#"{"weight_map": {"lm_head.weight": "../elsewhere.safetensors"}}"#;
        std::fs::write(directory.path().join(INDEX), index).unwrap();
        let error = read_directory(directory.path()).unwrap_err().to_string();
        assert!(error.contains("elsewhere"), "{error}");
    }

    #[test]
    fn half_precision_is_widened_exactly() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0400, 6.103_515_6e-5),
            (0x0001, 5.960_464_5e-8),
            (0x8000, -0.0),
            (0x7c00, f32::INFINITY),
        ] {
            assert_eq!(half_to_float(bits).to_bits(), f32::to_bits(value), "{bits:#x}");
        }
        assert!(half_to_float(0x7e00).is_nan());
    }
}
