//! Machine code of kernels that the program was built with.
//!
//! `scripts/compile_kernels.py --pack` writes an archive of it, and the cargo feature `embedded-kernels` puts that
//! archive into the program.

use std::io::{Cursor, Read};

use zip::ZipArchive;

use super::Kernel;

/// What the program was built with.
#[cfg(feature = "embedded-kernels")]
const ARCHIVE: &[u8] = include_bytes!(env!(
    "TRAINER_KERNELS",
    "the feature `embedded-kernels` needs TRAINER_KERNELS, the path of the archive that \
     `python3 scripts/compile_kernels.py --pack ARCHIVE` writes"
));
#[cfg(all(feature = "cuda", not(feature = "embedded-kernels")))]
const ARCHIVE: &[u8] = &[];

/// No kernel has more machine code than this many bytes.
const MOST_BYTES: u64 = 64 << 20;

/// The machine code for one kind of GPU.
#[derive(Debug, Clone)]
pub(super) struct Shipped {
    archive: ZipArchive<Cursor<&'static [u8]>>,
    architecture: String,
}

impl Shipped {
    /// What the program was built with for GPUs of the compute capability `(major, minor)`. `None` where there is
    /// nothing for such a GPU, or where `nvrtc`, the version of the NVRTC that is installed (such as `13.0`), is
    /// of an earlier major number than the one it was made by: the driver may be too old to load it.
    #[cfg(feature = "cuda")]
    pub(super) fn open(capability: (i32, i32), nvrtc: &str) -> Option<Self> {
        Self::open_in(ARCHIVE, capability, nvrtc)
    }

    /// The archive's comment is the major version of NVRTC that its code was made by. Its entries are named
    /// `ARCHITECTURE/HASH`, such as `sm_90a/…`, by the hash of the kernel's text. Each is compressed by zlib.
    fn open_in(archive: &'static [u8], (major, minor): (i32, i32), nvrtc: &str) -> Option<Self> {
        let archive = ZipArchive::new(Cursor::new(archive)).ok()?;
        let made_by: u32 = std::str::from_utf8(archive.comment()).ok()?.parse().ok()?;
        let installed: u32 = nvrtc.split('.').next()?.parse().ok()?;
        if installed < made_by {
            return None;
        }
        let has = |name: &str| {
            let folder = format!("{name}/");
            archive.file_names().flatten().any(|entry| entry.starts_with(&folder))
        };
        // Code for one kind of GPU alone has an `a` behind the number; other code runs on later GPUs of the same
        // major number too.
        let exact = format!("sm_{major}{minor}a");
        let earlier = (0..=minor).rev().map(|minor| format!("sm_{major}{minor}"));
        let architecture = std::iter::once(exact).chain(earlier).find(|name| has(name))?;
        Some(Self { archive, architecture })
    }

    /// The machine code of `kernel`; `None` where it was not shipped.
    pub(super) fn read(&mut self, kernel: &Kernel) -> Option<Vec<u8>> {
        let hash = blake3::hash(kernel.text().as_bytes()).to_hex();
        let entry = self.archive.by_name(&format!("{}/{hash}", self.architecture)).ok()?;
        let mut code = Vec::new();
        flate2::read::ZlibDecoder::new(entry).take(MOST_BYTES).read_to_end(&mut code).ok()?;
        Some(code)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::write::{SimpleFileOptions, ZipWriter};

    use super::*;

    fn kernel(text: &'static str) -> Kernel {
        Kernel::new("one", 32, &[], &[text])
    }

    /// An archive made by NVRTC 13, with code for each of some architectures and texts.
    fn archive(entries: &[(&str, &'static str)]) -> &'static [u8] {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        archive.set_comment("13").expect("is short");
        let stored =
            SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        for (architecture, text) in entries {
            let hash = blake3::hash(kernel(text).text().as_bytes()).to_hex();
            archive.start_file(format!("{architecture}/{hash}"), stored).expect("begins");
            let mut compressed = flate2::write::ZlibEncoder::new(&mut archive, Default::default());
            compressed.write_all(format!("{architecture}: {text}").as_bytes()).expect("writes");
            compressed.finish().expect("ends");
        }
        archive.finish().expect("is whole").into_inner().leak()
    }

    fn read(archive: &'static [u8], capability: (i32, i32), nvrtc: &str) -> Option<String> {
        let code = Shipped::open_in(archive, capability, nvrtc)?.read(&kernel("a"))?;
        Some(String::from_utf8(code).expect("is text"))
    }

    #[test]
    fn a_gpu_gets_the_code_that_runs_on_it() {
        let all = archive(&[("sm_80", "a"), ("sm_89", "a"), ("sm_90a", "a"), ("sm_80", "b")]);
        let cases = [
            ((8, 0), Some("sm_80: a")),
            ((8, 6), Some("sm_80: a")),
            ((8, 9), Some("sm_89: a")),
            ((9, 0), Some("sm_90a: a")),
            ((7, 5), None),
            ((10, 0), None),
        ];
        for (capability, expected) in cases {
            assert_eq!(read(all, capability, "13.0").as_deref(), expected, "{capability:?}");
            assert_eq!(read(all, capability, "14.1").as_deref(), expected, "{capability:?}");
            assert_eq!(read(all, capability, "12.9"), None, "NVRTC is older than the code");
        }
    }

    #[test]
    fn what_is_not_there_or_is_damaged_is_not_given() {
        let all = archive(&[("sm_80", "b")]);
        assert_eq!(read(all, (8, 0), "13.0"), None, "another text");
        assert_eq!(read(&[], (8, 0), "13.0"), None, "no archive");
        let whole = archive(&[("sm_80", "a")]);
        for place in 0..whole.len() {
            let mut broken = whole.to_vec();
            broken[place] ^= 1;
            let found = read(broken.leak(), (8, 0), "13.0");
            assert!(found.is_none_or(|code| code == "sm_80: a"), "byte {place}");
            assert_eq!(read(&whole[..place], (8, 0), "13.0"), None, "cut to {place} bytes");
        }
    }
}
