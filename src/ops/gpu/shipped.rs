//! Machine code of kernels that the program was built with.
//!
//! `scripts/compile_kernels.py --pack` writes an archive of it, and the cargo feature `embedded-kernels` puts that
//! archive into the program. It holds our own kernels, and those that Burn generates while it trains and that
//! `scripts/burn_kernels.py` has collected.

use std::io::{Cursor, Read};

use serde::de::DeserializeOwned;
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
    /// Whether the program was built with anything.
    #[cfg(feature = "cuda")]
    pub(super) const IS_THERE: bool = !ARCHIVE.is_empty();

    /// What the program was built with for GPUs of the compute capability `(major, minor)`. `None` where there is
    /// nothing for such a GPU, or where `nvrtc`, the version of the NVRTC that is installed (such as `13.0`), is
    /// of an earlier major number than the one it was made by: the driver may be too old to load it.
    #[cfg(feature = "cuda")]
    pub(super) fn open(capability: (i32, i32), nvrtc: &str) -> Option<Self> {
        Self::open_in(ARCHIVE, capability, nvrtc)
    }

    /// The archive's comment is the major version of NVRTC that its code was made by. Its entries are named
    /// `ARCHITECTURE/HASH`, such as `sm_90a/…`, by the hash of the kernel's text, and those of Burn by where CubeCL
    /// keeps the hashes of texts, `cuda-second-line/0.11.3/ptx_sm90-cpp/HASH`. Each is compressed by zlib.
    pub(super) fn open_in(
        archive: &'static [u8],
        (major, minor): (i32, i32),
        nvrtc: &str,
    ) -> Option<Self> {
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
        self.read_entry(&format!("{}/{hash}", self.architecture))
    }

    /// The hashes of texts that CubeCL knows as generated in `namespace`, such as
    /// `cuda-second-line/0.11.3/ptx_sm90-cpp`, and for which there is machine code.
    pub(super) fn generated(&self, namespace: &str) -> Vec<u128> {
        let hash = |name: &str| {
            let hash = name.strip_prefix(namespace)?.strip_prefix('/')?;
            u128::from_str_radix(hash, 16).ok()
        };
        self.archive.file_names().flatten().filter_map(|name| hash(&name)).collect()
    }

    /// What is told of the kernel whose text has the hash `hash` in `namespace`, and its machine code. The
    /// former is a line of JSON in front of the latter.
    pub(super) fn read_generated<T: DeserializeOwned>(
        &mut self,
        namespace: &str,
        hash: u128,
    ) -> Option<(T, Vec<u8>)> {
        let mut entry = self.read_entry(&format!("{namespace}/{hash:032x}"))?;
        let end = entry.iter().position(|byte| *byte == b'\n')?;
        let told = serde_json::from_slice(&entry[..end]).ok()?;
        entry.drain(..=end);
        Some((told, entry))
    }

    fn read_entry(&mut self, name: &str) -> Option<Vec<u8>> {
        let entry = self.archive.by_name(name).ok()?;
        let mut content = Vec::new();
        flate2::read::ZlibDecoder::new(entry).take(MOST_BYTES).read_to_end(&mut content).ok()?;
        Some(content)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use zip::write::{SimpleFileOptions, ZipWriter};

    use super::*;

    fn kernel(text: &'static str) -> Kernel {
        Kernel::new("one", 32, &[], &[text])
    }

    /// An archive made by NVRTC 13, with code for each of some architectures and texts.
    fn archive(entries: &[(&str, &'static str)]) -> &'static [u8] {
        let named = |(architecture, text): &(&str, &'static str)| {
            let hash = blake3::hash(kernel(text).text().as_bytes()).to_hex();
            (format!("{architecture}/{hash}"), format!("{architecture}: {text}"))
        };
        archive_of(&entries.iter().map(named).collect::<Vec<_>>())
    }

    pub(in crate::ops::gpu) fn archive_of(entries: &[(String, String)]) -> &'static [u8] {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        archive.set_comment("13").expect("is short");
        let stored =
            SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        for (name, content) in entries {
            archive.start_file(name, stored).expect("begins");
            let mut compressed = flate2::write::ZlibEncoder::new(&mut archive, Default::default());
            compressed.write_all(content.as_bytes()).expect("writes");
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

    const SPACE: &str = "cuda-second-line/0.11.3/ptx_sm90-cpp";

    /// A number in the place of what CubeCL is told, and machine code.
    type Told = (u32, Vec<u8>);

    /// All that is shipped of generated kernels for Hopper, in the namespace [`SPACE`].
    fn generated(archive: &'static [u8]) -> Vec<(u128, Option<Told>)> {
        let Some(mut shipped) = Shipped::open_in(archive, (9, 0), "13.0") else {
            return Vec::new();
        };
        let hashes = shipped.generated(SPACE);
        hashes.into_iter().map(|hash| (hash, shipped.read_generated(SPACE, hash))).collect()
    }

    fn named(space: &str, hash: &str, content: &str) -> (String, String) {
        (format!("{space}/{hash}"), content.to_owned())
    }

    #[test]
    fn generated_kernels_are_those_of_one_version_and_one_architecture() {
        let own = named("sm_90a", "ff", "ours");
        let hash = format!("{:032x}", 255);
        let all = archive_of(&[
            own,
            named(SPACE, &hash, "7\ncode\nof it"),
            named("cuda-second-line/0.11.4/ptx_sm90-cpp", &hash, "8\nlater"),
            named("cuda-second-line/0.11.3/ptx_sm90-cpp-2", &hash, "9\nanother"),
            named("cuda-second-line/0.11.3/ptx_sm80-cpp", &hash, "10\nearlier"),
        ]);
        assert_eq!(generated(all), [(255, Some((7, b"code\nof it".to_vec())))]);
    }

    #[test]
    fn what_is_not_told_of_a_generated_kernel_as_it_should_be_is_not_given() {
        let hash = format!("{:032x}", 1);
        for content in ["", "7", "seven\ncode", "-7\ncode", "\ncode"] {
            let all = archive_of(&[named("sm_90a", "ff", ""), named(SPACE, &hash, content)]);
            assert_eq!(generated(all), [(1, None)], "{content:?}");
        }
        for name in ["", "g", "-1", "1/2", "100000000000000000000000000000000"] {
            let all = archive_of(&[named("sm_90a", "ff", ""), named(SPACE, name, "7\ncode")]);
            assert!(generated(all).iter().all(|(_, read)| read.is_none()), "{name:?}");
        }
        let whole = archive_of(&[named("sm_90a", "ff", ""), named(SPACE, &hash, "7\ncode")]);
        for place in 0..whole.len() {
            let mut broken = whole.to_vec();
            broken[place] ^= 1;
            let read = generated(broken.leak()).into_iter().filter_map(|(_, read)| read);
            assert!(read.into_iter().all(|read| read == (7, b"code".to_vec())), "byte {place}");
            assert_eq!(generated(&whole[..place]), [], "cut to {place} bytes");
        }
    }
}
