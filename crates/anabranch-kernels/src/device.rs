//! A runtime's device, and the buffers that live on it.

use bytemuck::Pod;
use cubecl::prelude::*;
use cubecl::stream_id::StreamId;

use crate::tensor::{Ids, Tensor, elements};

/// The one stream every tensor of this crate lives on.
///
/// CubeCL gives each thread its own stream by default and orders two streams only through the buffers' first owner.
/// Weights that a learner thread writes in place and an engine thread reads need a single order, so every [`Device`]
/// uses this one.
const STREAM: StreamId = StreamId { value: 0xA17A };

/// A device of the runtime `R`: creates tensors, reads them back and is handed to every kernel wrapper.
///
/// Clones share the same queue. All work is ordered as it was submitted, from whichever thread.
pub struct Device<R: Runtime> {
    client: ComputeClient<R>,
}

impl<R: Runtime> Clone for Device<R> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone() }
    }
}

impl<R: Runtime> std::fmt::Debug for Device<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("runtime", &R::name(&self.client)).finish()
    }
}

impl<R: Runtime> Device<R> {
    /// Opens the runtime's device.
    pub fn new(device: &R::Device) -> Self {
        let mut client = R::client(device);
        // SAFETY: a stream id is only an ordering domain; this one is used by every client this crate makes.
        unsafe { client.set_stream(STREAM) };
        Self { client }
    }

    /// The CubeCL client, for kernels outside this crate.
    pub fn client(&self) -> &ComputeClient<R> {
        &self.client
    }

    /// Uploads `values` as a tensor of `shape`.
    ///
    /// # Panics
    /// Panics if the shape's product is not the number of values.
    pub fn tensor(&self, values: &[f32], shape: &[usize]) -> Tensor<R> {
        self.upload(values, shape)
    }

    /// Uploads ids, positions or offsets as a one-dimensional u32 tensor.
    pub fn ids(&self, values: &[u32]) -> Ids<R> {
        self.upload(values, &[values.len()])
    }

    /// Uploads u32 values as a tensor of `shape`.
    ///
    /// # Panics
    /// Panics if the shape's product is not the number of values.
    pub fn tensor_u32(&self, values: &[u32], shape: &[usize]) -> Ids<R> {
        self.upload(values, shape)
    }

    fn upload<E: Pod>(&self, values: &[E], shape: &[usize]) -> Tensor<R, E> {
        let len: usize = shape.iter().product();
        assert!(
            len == values.len(),
            "Device::tensor: `shape` {shape:?} holds {len} elements, `values` has {}",
            values.len()
        );
        let handle = if values.is_empty() {
            self.client.empty(size_of::<E>())
        } else {
            self.client.create_from_slice(bytemuck::cast_slice(values))
        };
        Tensor::from_handle(handle, shape)
    }

    /// A tensor whose contents are undefined until a kernel writes them.
    pub fn empty(&self, shape: &[usize]) -> Tensor<R> {
        self.allocate(shape)
    }

    /// A one-dimensional u32 tensor whose contents are undefined until a kernel writes them.
    pub fn empty_ids(&self, len: usize) -> Ids<R> {
        self.allocate(&[len])
    }

    fn allocate<E>(&self, shape: &[usize]) -> Tensor<R, E> {
        let len: usize = shape.iter().product();
        Tensor::from_handle(self.client.empty(len.max(1) * size_of::<E>()), shape)
    }

    /// A tensor of zeros (one launch).
    pub fn zeros(&self, shape: &[usize]) -> Tensor<R> {
        let out = self.empty(shape);
        crate::elementwise::fill(self, 0.0, &out);
        out
    }

    /// Reads several tensors with a single synchronisation.
    pub fn read_many(&self, tensors: &[&Tensor<R>]) -> Vec<Vec<f32>> {
        let handles = tensors.iter().map(|t| t.handle().clone()).collect();
        let bytes = self.client.read(handles);
        bytes.iter().zip(tensors).map(|(bytes, tensor)| elements(bytes, tensor.len())).collect()
    }

    /// Waits until everything submitted so far has run.
    ///
    /// # Panics
    /// Panics if the device reports an error: a kernel that failed to compile or to launch.
    pub fn sync(&self) {
        cubecl::future::block_on(self.client.sync()).expect("the device failed while running submitted kernels");
    }
}
