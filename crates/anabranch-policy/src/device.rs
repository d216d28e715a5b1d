//! The device that computes, chosen at run time among the backends that were compiled in.

use std::fmt;
use std::str::FromStr;

use cubecl::Runtime;

use crate::error::PolicyError;

/// The value of `--device`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// CUDA if its driver and compiler can be used, else wgpu.
    #[default]
    Auto,
    /// CUDA, or an error.
    Cuda,
    /// wgpu (Vulkan, Metal, or a software rasteriser), or an error.
    Wgpu,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Cuda => "cuda",
            Self::Wgpu => "wgpu",
        })
    }
}

/// A text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a device; expected auto, cuda or wgpu")]
pub struct ParseDeviceError(String);

impl FromStr for DeviceChoice {
    type Err = ParseDeviceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "cuda" => Ok(Self::Cuda),
            "wgpu" => Ok(Self::Wgpu),
            other => Err(ParseDeviceError(other.to_string())),
        }
    }
}

/// An opened device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    backend: Backend,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backend {
    #[cfg(feature = "cuda")]
    Cuda,
    #[cfg(feature = "wgpu")]
    Wgpu,
}

/// Work that is generic over the runtime, to be done on whichever device was opened.
pub(crate) trait OnDevice {
    /// What the work returns.
    type Output;
    /// Does the work.
    fn run<R: Runtime>(self, device: anabranch_kernels::Device<R>) -> Self::Output;
}

impl Device {
    /// Opens a device and checks that it answers.
    ///
    /// # Errors
    /// Returns [`PolicyError::Device`] with what is missing and how to mend it. For [`DeviceChoice::Auto`] this happens
    /// only if no backend is usable; the error has the reasons of each.
    pub fn open(choice: DeviceChoice) -> Result<Self, PolicyError> {
        match choice {
            DeviceChoice::Cuda => open_cuda(),
            DeviceChoice::Wgpu => open_wgpu(),
            DeviceChoice::Auto => open_cuda().or_else(|cuda| {
                open_wgpu().map_err(|wgpu| PolicyError::Device {
                    device: "auto",
                    missing: format!("no backend is usable: {cuda}; {wgpu}"),
                    remedy: "mend one of them".into(),
                })
            }),
        }
    }

    /// Returns `cuda` or `wgpu`.
    pub fn name(&self) -> &'static str {
        match self.backend {
            #[cfg(feature = "cuda")]
            Backend::Cuda => "cuda",
            #[cfg(feature = "wgpu")]
            Backend::Wgpu => "wgpu",
        }
    }

    /// Does generic work on this device.
    #[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(clippy::needless_pass_by_value))]
    pub(crate) fn run<W: OnDevice>(self, work: W) -> W::Output {
        match self.backend {
            #[cfg(feature = "cuda")]
            Backend::Cuda => {
                let device = cubecl::cuda::CudaDevice::default();
                work.run::<cubecl::cuda::CudaRuntime>(anabranch_kernels::Device::new(&device))
            }
            #[cfg(feature = "wgpu")]
            Backend::Wgpu => {
                let device = cubecl::wgpu::WgpuDevice::default();
                work.run::<cubecl::wgpu::WgpuRuntime>(anabranch_kernels::Device::new(&device))
            }
        }
    }
}

/// Opens the runtime's own server. If that fails, another thread panics, and this function returns an error.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn answers<R: Runtime>(name: &'static str, remedy: &str) -> Result<(), PolicyError>
where
    R::Device: Default,
{
    let opened = std::panic::catch_unwind(|| R::client(&R::Device::default()).properties().clone());
    match opened {
        Ok(_) => Ok(()),
        Err(panic) => Err(PolicyError::Device {
            device: name,
            missing: format!("cannot open it: {}", panic_text(panic.as_ref())),
            remedy: remedy.into(),
        }),
    }
}

/// Returns the message of a caught panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(feature = "wgpu")]
const WGPU_REMEDY: &str = "install a Vulkan driver, on Debian `apt-get install mesa-vulkan-drivers libvulkan1` (works \
                           without a GPU), or choose another device";

#[cfg(feature = "wgpu")]
fn open_wgpu() -> Result<Device, PolicyError> {
    use cubecl::wgpu::{AutoGraphicsApi, GraphicsApi, WgpuRuntime};

    if WgpuRuntime::enumerate_all_devices(&AutoGraphicsApi::backend()).is_empty() {
        return Err(PolicyError::Device {
            device: "wgpu",
            missing: "no Vulkan device".into(),
            remedy: WGPU_REMEDY.into(),
        });
    }
    answers::<WgpuRuntime>("wgpu", WGPU_REMEDY)?;
    Ok(Device { backend: Backend::Wgpu })
}

#[cfg(not(feature = "wgpu"))]
fn open_wgpu() -> Result<Device, PolicyError> {
    Err(left_out("wgpu", "rebuild with the feature `wgpu`"))
}

#[cfg(feature = "cuda")]
fn open_cuda() -> Result<Device, PolicyError> {
    const REMEDY: &str = "check the driver with nvidia-smi, or choose another device";

    cuda_libraries()?;
    let refuse = |missing: String| PolicyError::Device { device: "cuda", missing, remedy: REMEDY.into() };
    cudarc::driver::result::init().map_err(|error| refuse(format!("cannot start the driver: {error:?}")))?;
    match cudarc::driver::result::device::get_count() {
        Ok(count) if count > 0 => {}
        Ok(_) => return Err(refuse("the driver found no GPU".into())),
        Err(error) => return Err(refuse(format!("the driver cannot count GPUs: {error:?}"))),
    }
    answers::<cubecl::cuda::CudaRuntime>("cuda", REMEDY)?;
    Ok(Device { backend: Backend::Cuda })
}

#[cfg(not(feature = "cuda"))]
fn open_cuda() -> Result<Device, PolicyError> {
    Err(left_out("cuda", "rebuild with the feature `cuda`"))
}

/// Driver, run-time compiler and the header that generated kernels include.
#[cfg(feature = "cuda")]
fn cuda_libraries() -> Result<(), PolicyError> {
    let refuse = |missing: &str, remedy: &str| {
        Err(PolicyError::Device { device: "cuda", missing: missing.into(), remedy: remedy.into() })
    };
    // SAFETY: each call loads a library by name, which runs its initialisers, and nothing else.
    #[allow(unsafe_code, reason = "a missing library has no safe probe: cudarc panics on first use")]
    let (driver, compiler) =
        unsafe { (cudarc::driver::sys::is_culib_present(), cudarc::nvrtc::sys::is_culib_present()) };
    if !driver {
        return refuse("libcuda is not found", "install NVIDIA's driver, or choose another device");
    }
    if !compiler {
        let remedy =
            "install NVRTC (part of the CUDA toolkit) and put it on the library path, or choose another device";
        return refuse("libnvrtc is not found", remedy);
    }
    let header = cubecl::cuda::install::cuda_path().map(|path| path.join("include/cuda_runtime.h"));
    if !header.is_some_and(|header| header.exists()) {
        let remedy = "install the CUDA toolkit's headers and point CUDA_PATH at the directory above `include`, or choose \
                      another device";
        return refuse("include/cuda_runtime.h is not found under CUDA_PATH", remedy);
    }
    Ok(())
}

#[cfg(not(all(feature = "cuda", feature = "wgpu")))]
fn left_out(device: &'static str, remedy: &str) -> PolicyError {
    PolicyError::Device { device, missing: "this build leaves it out".into(), remedy: remedy.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_in_and_out() {
        for choice in [DeviceChoice::Auto, DeviceChoice::Cuda, DeviceChoice::Wgpu] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let error = "gpu".parse::<DeviceChoice>().unwrap_err().to_string();
        assert!(error.contains("auto, cuda or wgpu"), "{error}");
    }

    /// Runs itself in a process that can load no Vulkan driver and no CUDA library.
    #[cfg(feature = "wgpu")]
    #[test]
    fn missing_drivers_are_errors_with_a_remedy() {
        const CHILD: &str = "ANABRANCH_DEVICE_TEST_CHILD";
        if std::env::var_os(CHILD).is_some() {
            let wgpu = Device::open(DeviceChoice::Wgpu).unwrap_err().to_string();
            assert!(wgpu.contains("mesa-vulkan-drivers"), "{wgpu}");
            println!("the child saw the error");
            return;
        }
        let name = "device::tests::missing_drivers_are_errors_with_a_remedy";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .env("VK_DRIVER_FILES", "/nonexistent.json")
            .env("VK_ICD_FILENAMES", "/nonexistent.json")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("the child saw the error"), "{text}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    }
}
