//! Contiguous device buffers with a shape.

use std::marker::PhantomData;

use bytemuck::Pod;
use cubecl::prelude::*;
use cubecl::server::Handle;

use crate::device::Device;

/// Views start at multiples of this many elements: 256 bytes, the largest binding alignment a backend may ask for.
pub const VIEW_ALIGNMENT: usize = 64;

/// A contiguous row-major buffer of `E` on the device. Cloning makes another name for the same memory.
pub struct Tensor<R: Runtime, E = f32> {
    handle: Handle,
    shape: Vec<usize>,
    // `fn() -> R`: a tensor is Send and Sync whatever the runtime's own type is.
    marker: PhantomData<fn() -> (R, E)>,
}

/// Token ids, positions, slots and offsets.
pub type Ids<R> = Tensor<R, u32>;

impl<R: Runtime, E> Clone for Tensor<R, E> {
    fn clone(&self) -> Self {
        Self::from_handle(self.handle.clone(), &self.shape)
    }
}

impl<R: Runtime, E> std::fmt::Debug for Tensor<R, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor<{}>{:?}", std::any::type_name::<E>(), self.shape)
    }
}

impl<R: Runtime, E> Tensor<R, E> {
    pub(crate) fn from_handle(handle: Handle, shape: &[usize]) -> Self {
        Self { handle, shape: shape.to_vec(), marker: PhantomData }
    }

    /// The sizes of the dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The CubeCL handle, for kernels outside this crate.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The same memory under another shape.
    ///
    /// # Panics
    /// Panics if the number of elements differs.
    #[must_use]
    pub fn reshape(&self, shape: &[usize]) -> Self {
        let len: usize = shape.iter().product();
        assert!(
            len == self.len(),
            "Tensor::reshape: {:?} has {} elements, `shape` {shape:?} has {len}",
            self.shape,
            self.len()
        );
        Self::from_handle(self.handle.clone(), shape)
    }

    /// A window onto this tensor's memory: `shape` elements from element `offset` on.
    ///
    /// # Panics
    /// Panics if the window does not fit, or `offset` is not a multiple of [`VIEW_ALIGNMENT`].
    #[must_use]
    pub fn view(&self, offset: usize, shape: &[usize]) -> Self {
        let len: usize = shape.iter().product();
        assert!(
            offset.is_multiple_of(VIEW_ALIGNMENT),
            "Tensor::view: `offset` {offset} is not a multiple of {VIEW_ALIGNMENT} elements"
        );
        assert!(
            offset + len <= self.len(),
            "Tensor::view: elements {offset}..{} lie outside a tensor of {}",
            offset + len,
            self.len()
        );
        let bytes = size_of::<E>() as u64;
        let handle = self
            .handle
            .clone()
            .offset_start(offset as u64 * bytes)
            .offset_end((self.len() - offset - len) as u64 * bytes);
        Self::from_handle(handle, shape)
    }

    /// A kernel argument over all elements. A kernel that reads vectors counts them itself: lengths are in elements
    /// here.
    pub(crate) fn arg(&self) -> ArrayArg<R> {
        // SAFETY: `handle` holds at least `len` elements of `E` (set at allocation and kept by `view` and `reshape`).
        unsafe { ArrayArg::from_raw_parts(self.handle.clone(), self.len()) }
    }

    /// The sizes of a two-dimensional tensor.
    pub(crate) fn matrix(&self, op: &str, name: &str) -> (usize, usize) {
        match self.shape[..] {
            [rows, columns] => (rows, columns),
            _ => panic!("{op}: `{name}` must be a matrix, its shape is {:?}", self.shape),
        }
    }

    /// Refuses any other shape, naming the operation and the argument.
    pub(crate) fn expect(&self, op: &str, name: &str, shape: &[usize]) {
        assert!(self.shape == shape, "{op}: `{name}` must have shape {shape:?}, it has {:?}", self.shape);
    }
}

impl<R: Runtime, E: Pod> Tensor<R, E> {
    /// Copies the elements to the host, after everything submitted before has run.
    pub fn read(&self, device: &Device<R>) -> Vec<E> {
        let bytes = device.client().read_one_unchecked(self.handle.clone());
        elements(&bytes, self.len())
    }
}

/// The first `len` elements in `bytes`, whatever their alignment.
pub(crate) fn elements<E: Pod>(bytes: &[u8], len: usize) -> Vec<E> {
    bytes.chunks_exact(size_of::<E>()).take(len).map(bytemuck::pod_read_unaligned).collect()
}
